"""From what somebody typed, or asked for over HTTP, to the account of it. From the records alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kfm.core.errors import UsageError
from kfm.documents.finding import find_unit, is_wal_id
from kfm.documents.passes import find_pass

if TYPE_CHECKING:
    from kfm.core.settings import Settings
    from kfm.explain import Account
    from kfm.ports import LedgerReader

_CODE = re.compile(r"(?i)kfm\d{3}", re.ASCII)
_PASS = re.compile(r"last|[0-9a-fA-F-]{4,36}")  # the newest; an id, or the beginning of one


def explained(
    ledger: LedgerReader, tables: Any, settings: Settings, what: str, now_ms: int
) -> Account | dict[str, Any]:
    """The account of a run, a node, a pass, a call, a request, a unit, a dataset, a source; or a code's page.

    `tables` hold the passes of this environment.
    """
    if is_code(what):
        from kfm.documents.error_pages import error_page

        return error_page(what.upper())
    if is_wal_id(what):
        return account_of_unit(ledger, settings, what)
    told = account_of_pipeline(ledger, tables, what)
    return told if told is not None else account_of_records(ledger, settings, what, now_ms)


def is_code(what: str) -> bool:
    return _CODE.fullmatch(what) is not None


def account_of_records(ledger: LedgerReader, settings: Settings, what: str, now_ms: int) -> Account:
    from kfm.explain import explain

    return explain(
        ledger,
        what,
        now_ms,
        datasets=[dataset.id for dataset in settings.datasets],
        sources=[source.id for source in settings.sources],
    )


def account_of_unit(ledger: LedgerReader, settings: Settings, wal_id: str) -> Account:
    from kfm.explain.units import account_of_unit

    reader = ledger.unit_reader()
    stored = find_unit(reader, wal_id)
    domain = settings.domain_of(stored.unit.dataset)
    return account_of_unit(stored, reader.history_of(wal_id), ledger.switches(), domain, ledger.now_ms())


def account_of_pipeline(
    ledger: LedgerReader, tables: Any, what: str, *, governed: bool = True
) -> Account | None:
    """The account of a pass, or of a node of one; None: it means something else.

    `governed`: there is a configuration, so that a name may be one of its datasets, or of a run.
    """
    run, slash, node = what.partition("/")
    if not slash and not _PASS.fullmatch(run) and governed and tables.get(run) is None:
        return None  # the name of a dataset or a source, most likely
    if governed and ledger.run(run) is not None and not slash:
        return None  # a governed run: its pipeline is one part of it
    try:
        found = find_pass(tables, run)
    except UsageError:
        if not governed:
            raise
        return None
    if slash and node not in dict(found.graph):
        if not governed or ledger.run(found.run_id) is None:
            from kfm.runs.graph import near

            known = [name for name, _ in found.graph]
            raise UsageError(
                f"Run {found.run_id} has no node `{node}`{near(node, known)}.",
                remedy=f"`kfm graph {found.run_id}` shows them.",
            )
        return None
    from kfm.explain.passes import account_of_node, account_of_pass

    if not slash:
        return account_of_pass(tables, found)
    return account_of_node(tables, found, node, ledger.run(found.run_id))
