"""`kfm nodd dead`: messages, or records of them, that could not be taken in."""

from __future__ import annotations

import sys

import click

from kfm.cli.options import session_options
from kfm.cli.output import clipped, one_line, table
from kfm.cli.session import Session
from kfm.core.errors import RationaleRequired, UsageError
from kfm.core.wording import counted, moment
from kfm.documents.dead import HASH_PREFIX, dead_document, find_dead

LIMIT_MAX = 10_000


@click.group(name="dead")
def dead() -> None:
    """List, show and release messages that could not be taken in.

    A message is known by the hash of its body. What it says is shown only where somebody asks for it.
    """


@dead.command(name="list")
@click.option("--error-code", metavar="CODE", default="", help="Only with this code.")
@click.option("--all", "everything", is_flag=True, help="Also what was released.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=50, help="At most so many.", show_default=True
)
@session_options
def list_dead(session: Session, error_code: str, everything: bool, limit: int) -> None:
    """List dead messages, newest first."""
    with session.app(read_only=True) as app:
        reader = app.ledger.unit_reader()
        found = reader.dead_messages("" if everything else "held", error_code, limit + 1)
    shown, more = found[:limit], len(found) > limit
    rows = [
        (
            moment(one.last_at_ms).removesuffix(" UTC"),
            one.queue,
            one.error_code,
            str(one.times),
            f"{short_hash(one.envelope_hash)}/{one.record_index}",
            clipped(one.error, 60),
        )
        for one in shown
    ]
    documents = [dead_document(one) for one in shown]
    header = ("LAST (UTC)", "QUEUE", "ERROR", "TIMES", "MESSAGE", "WHY")
    lines = table(header, rows) if rows else ["no dead messages"]
    session.emit({"dead": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"more is dead than is shown: use --limit (now {limit})")


@dead.command(name="show")
@click.argument("wanted", metavar="HASH")
@click.option("--body", "wants_body", is_flag=True, help="Print the message itself. Needs the role operate.")
@session_options
def show_dead(session: Session, wanted: str, wants_body: bool) -> None:
    """Show one dead message: each of its records, and what was wrong with it.

    HASH is that of its body; the beginning is enough. With --body the message itself is printed, and nothing
    else: `kfm nodd dead show HASH --body | kfm nodd parse` reads it again. A terminal is shown blanks for
    what it would obey.
    """
    with session.app(read_only=True, role="operate" if wants_body else None) as app:
        records = find_dead(app.ledger.unit_reader(), wanted)
    if wants_body:
        body = next((one.body for one in records if one.body is not None), None)
        if body is None:
            raise UsageError(
                "The message was too large to be kept.",
                remedy="Without --body its hash and its error are shown; ask its sender for the rest.",
            )
        if is_terminal():  # who reads it must not be commanded by it
            body = "\n".join(one_line(line) for line in body.split("\n"))
        sys.stdout.write(body if body.endswith("\n") else f"{body}\n")
        return
    document = {"records": [dead_document(one) for one in records]}
    lines = []
    for one in records:
        lines += [
            f"message   {one.envelope_hash}, record {one.record_index}",
            f"queue     {one_line(one.queue)}",
            f"error     {one.error_code}: {one_line(one.error)}",
            f"came      {counted(one.times, 'time')}, {moment(one.first_at_ms)} … {moment(one.last_at_ms)}",
            f"state     {one.state}",
        ]
    session.emit(document, lines, rows=document["records"])


@dead.command(name="release")
@click.argument("wanted", metavar="HASH")
@click.option("--rationale", metavar="TEXT", help="Why nobody has to look at it any more. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def release(session: Session, wanted: str, rationale: str | None, ticket: str | None) -> None:
    """Release a dead message: nobody has to look at it any more.

    It is not taken in by that. Send it again once what was wrong is mended, or pass it on with
    `kfm nodd dead show HASH --body`. Who released it, and why, is entered in the governance ledger.
    """
    if not (rationale or "").strip():
        raise RationaleRequired("A dead message is released with --rationale TEXT.")
    from kfm.core.records import GovernanceEntry

    with session.app() as app:
        store, said = app.kernel.store, app.loaded.discretion.said
        record = find_dead(store.unit_reader(), wanted)[0]
        entry = GovernanceEntry(
            kind="dead-message-release",
            subject=record.envelope_hash,
            actor=app.actor,
            recorded_at_ms=store.now_ms(),
            rationale=said(rationale),
            ticket=ticket and said(ticket),
            details={"queue": record.queue, "code": record.error_code},
        )
        released = store.units().release_dead(record.envelope_hash, entry)
    document = {"message": record.envelope_hash, "released": released}
    word = f"released  {counted(released, 'record')} of {short_hash(record.envelope_hash)}"
    session.emit(document, [word if released else "released already"])


# --- finding and telling -----------------------------------------------------------------


def is_terminal() -> bool:
    return sys.stdout.isatty()


def short_hash(envelope_hash: str) -> str:
    return envelope_hash.removeprefix(HASH_PREFIX)[:12]
