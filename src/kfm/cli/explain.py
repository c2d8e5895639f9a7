"""`kfm explain`: the page of an error code, or why something is as it is, from the records."""

from __future__ import annotations

import inspect
import re
from typing import Any

import click

from kfm.cli.lookup import find_unit, is_wal_id
from kfm.cli.options import session_options
from kfm.cli.output import one_line, short_id
from kfm.cli.places import directory_option, find_pass, opened
from kfm.cli.session import Session
from kfm.core.errors import UsageError, all_errors

_PASS = re.compile(r"last|[0-9a-fA-F-]{4,36}")  # the newest; an id, or the beginning of one
_DIGEST = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")
REASON_TELLING_CHARS = 40


@click.command()
@click.argument("what", metavar="ID")
@directory_option
@session_options
def command(session: Session, directory: str | None, what: str) -> None:
    """Explain an error code, or why something is as it is.

    ID is a code such as KFM204; a run, or the beginning of its id; one of its nodes (3fa9c2/fetch), also of
    an earlier attempt (3fa9c2#2/fetch); a pass of a pipeline, or a node of it (3fa9c2/soil.map; of the newest
    pass: last/soil.map); a call that was refused or did nothing; a unit (wal_id); a dataset or a source. The
    first line is the reason, the others what led to it; each ends with the record that it was read from.
    Nothing is changed.
    """
    if re.fullmatch(r"(?i)kfm\d{3}", what):
        page = error_page(what.upper())
        session.emit(page, page_lines(page))
        return
    if is_wal_id(what):
        account = _of_unit(session, what)
        session.emit(account, [_line(sentence) for sentence in (account.reason, *account.chain)])
        return
    told = _of_pipeline(session, directory, what)
    if told is not None:
        session.emit(told, [_DIGEST.sub(r"\1", _line(each)) for each in (told.reason, *told.chain)])
        return
    with session.app(read_only=True) as app:
        from kfm.explain import explain

        account = explain(
            app.ledger,
            what,
            app.clock.now_ms(),
            datasets=[dataset.id for dataset in app.settings.datasets],
            sources=[source.id for source in app.settings.sources],
        )
    session.emit(account, [_line(sentence) for sentence in (account.reason, *account.chain)])


def _of_unit(session: Session, wal_id: str) -> Any:
    from kfm.explain.units import account_of_unit

    with session.app(read_only=True) as app:
        ledger = app.ledger
        reader = ledger.unit_reader()
        stored = find_unit(reader, wal_id)
        domain = app.settings.domain_of(stored.unit.dataset)
        return account_of_unit(stored, reader.history_of(wal_id), ledger.switches(), domain, ledger.now_ms())


def _of_pipeline(session: Session, directory: str | None, what: str) -> Any:
    """The account of a pass, or of a node of one; None: it means something else."""
    run, slash, node = what.partition("/")
    with opened(session, directory) as place:
        if (
            not slash
            and not _PASS.fullmatch(run)
            and place.loaded is not None
            and place.tables.get(run) is None
        ):
            return None  # the name of a dataset or a source, most likely
        if place.loaded is not None and place.store.run(run) is not None and not slash:
            return None  # a governed run: its pipeline is one part of it
        try:
            found = find_pass(place.tables, run)
        except UsageError:
            if place.loaded is None:
                raise
            return None
        if slash and node not in dict(found.graph):
            if place.loaded is None or place.store.run(found.run_id) is None:
                from kfm.runs.graph import near

                known = [name for name, _ in found.graph]
                raise UsageError(
                    f"Run {found.run_id} has no node `{node}`{near(node, known)}.",
                    remedy=f"`kfm graph {found.run_id}` shows them.",
                )
            return None
        from kfm.explain.passes import account_of_node, account_of_pass

        if not slash:
            return account_of_pass(place.tables, found)
        return account_of_node(place.tables, found, node, place.store.run(found.run_id))


def _line(sentence: Any) -> str:
    record = f"[{sentence.record.type}:{_shortened(sentence.record.type, sentence.record.id)}]"
    return f"{one_line(sentence.text)} {click.style(one_line(record), dim=True)}"


def _shortened(kind: str, name: str) -> str:
    """Enough to find it again; JSON has all of it."""
    if kind in ("run", "pass"):
        return short_id(name)
    if kind == "run-state":
        run_id, slash, node = name.partition("/")
        return f"{short_id(run_id)}{slash}{node}"
    if kind == "attempt":
        run_id, mark, rest = name.partition("#")
        return f"{short_id(run_id)}{mark}{rest}"
    return _DIGEST.sub(r"\1", name)


def error_page(code: str) -> dict[str, Any]:
    from kfm.lint.rules import page as rule_page

    if (rule := rule_page(code)) is not None:
        return rule
    for error in all_errors():
        if error.code == code:
            headline, _, rest = inspect.cleandoc(error.__doc__ or "").partition("\n")
            return {
                "kind": "error",
                "code": code,
                "name": error.__name__,
                "message": headline,
                "page": rest.strip(),
                "remedy": error.remedy,
                "exit_code": error.exit_code,
                "docs": f"docs/reference/errors.md#{code.lower()}",
            }
    from kfm.configuration.shape import nearest

    codes = [error.code for error in all_errors()]
    raise UsageError(
        f"There is no error {code}{nearest(code, codes)}",
        remedy="docs/reference/errors.md lists them all.",
    )


def page_lines(page: dict[str, Any]) -> list[str]:
    lines = [f"{page['code']} {page['name']} (exit code {page['exit_code']})", "", page["message"]]
    if page["page"]:
        lines += ["", *page["page"].splitlines()]
    return [*lines, "", f"fix: {page['remedy']}"]


def untold_refusals(gates: Any, reason: str) -> list[Any]:
    """The gates that refused, without the one that the reason already tells about."""
    return [
        gate
        for gate in gates
        if not gate.allowed and not gate.overridden and gate.reason[:REASON_TELLING_CHARS] not in reason
    ]
