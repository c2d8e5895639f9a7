"""`kfm explain`: the page of an error code, or why something is as it is, from the records."""

from __future__ import annotations

import re
from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import one_line, short_id
from kfm.cli.pipeline_project import directory_option, opened
from kfm.cli.session import CommandSession
from kfm.reports.error_pages import error_page
from kfm.reports.explain import subjects
from kfm.reports.lookup import is_wal_id

_DIGEST = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")
REASON_TELLING_CHARS = 40


@click.command()
@click.argument("what", metavar="ID")
@directory_option
@session_options
def command(session: CommandSession, directory: str | None, what: str) -> None:
    """Explain an error code, or why something is as it is.

    ID is a code such as KFM204; a run, or the beginning of its id; one of its nodes (3fa9c2/fetch), also of
    an earlier attempt (3fa9c2#2/fetch); a pass of a pipeline, or a node of it (3fa9c2/soil.map; of the newest
    pass: last/soil.map); a call that was refused or did nothing; a request of a schedule, a webhook or a
    person; a unit (wal_id); a dataset or a source. The first line is the reason, the others what led to it;
    each ends with the record that it was read from. Nothing is changed.
    """
    if subjects.is_code(what):
        page = error_page(what.upper())
        session.emit(page, page_lines(page))
        return
    if is_wal_id(what):
        with session.app(read_only=True) as app:
            account = subjects.account_of_unit(app.ledger, app.settings, what)
        session.emit(account, [_line(sentence) for sentence in (account.reason, *account.chain)])
        return
    with opened(session, directory) as place:
        governed = place.loaded is not None
        told = subjects.account_of_pipeline(place.store, place.tables, what, governed=governed)
    if told is not None:
        session.emit(told, [_DIGEST.sub(r"\1", _line(each)) for each in (told.reason, *told.chain)])
        return
    with session.app(read_only=True) as app:
        account = subjects.account_of_records(app.ledger, app.settings, what, app.clock.now_ms())
    session.emit(account, [_line(sentence) for sentence in (account.reason, *account.chain)])


def _line(sentence: Any) -> str:
    record = f"[{sentence.record.type}:{_shortened(sentence.record.type, sentence.record.id)}]"
    return f"{one_line(sentence.text)} {click.style(one_line(record), dim=True)}"


def _shortened(kind: str, name: str) -> str:
    """Enough to find it again; JSON has all of it."""
    if kind in ("run", "pass", "request"):
        return short_id(name)
    if kind == "run-state":
        run_id, slash, node = name.partition("/")
        return f"{short_id(run_id)}{slash}{node}"
    if kind == "attempt":
        run_id, mark, rest = name.partition("#")
        return f"{short_id(run_id)}{mark}{rest}"
    return _DIGEST.sub(r"\1", name)


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
