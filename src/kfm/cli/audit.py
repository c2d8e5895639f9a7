"""`kfm audit`: verify, anchor, list and export the audit log."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import one_line, table
from kfm.cli.session import CommandSession
from kfm.model.errors import ChainBroken, UsageError
from kfm.model.quantities import counted, moment
from kfm.reports.audit import entry_document

LIMIT_MAX = 10_000
ROWS_TOLD = 100_000
CHECK = "python3 -I verify_audit.py"
UNSEEN = "from there on, a cut end or a chain that was written anew would not be seen"


@click.group(name="audit", cls=CommandGroup)
def command() -> None:
    """Verify, seal, anchor, list and export the audit log."""


class ProgressNote:
    """A line now and then, so that a long check does not look like a hang."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._count, self._total = 0, 0

    def phase(self, name: str, total: int | None = None) -> None:  # noqa: ARG002 - there is only one
        self._count, self._total = 0, total or 0

    def advance(self, amount: int, note: str = "") -> None:  # noqa: ARG002 - rows have no names
        before, self._count = self._count, self._count + amount
        if before // ROWS_TOLD != self._count // ROWS_TOLD:
            self._session.note(f"checked {self._count:,} of {max(self._total, self._count):,} rows")

    def done(self) -> None: ...


def _progress(session: CommandSession) -> Any:
    from kfm.cli.progress import ProgressLines, watcher

    drawn = watcher(is_tty=session.output == "text" and sys.stderr.isatty())
    return ProgressNote(session) if isinstance(drawn, ProgressLines) else drawn


def _anchors(app: Any, named: Sequence[str]) -> tuple[list[str], list[Any], int]:
    """The files that were read, this environment's anchors in them, and how many others there were."""
    from kfm.audit import anchors

    found, files = [], []
    for path in named or (app.loaded.resolve(app.settings.audit.anchors),):
        there = anchors.read(path)
        if there is None:
            if named:
                raise UsageError(f"There is no file {path}.", remedy="Name the file that holds the anchors.")
            continue
        files.append(os.path.relpath(path) if path.startswith(os.getcwd() + "/") else path)
        found += there
    own = anchors.of_environment(found, app.settings.environment)
    return files, own, len(found) - len(own)


# --- verify ----------------------------------------------------------------------------


@command.command(name="verify")
@click.option(
    "--anchors",
    multiple=True,
    metavar="FILE",
    help="Anchors to compare with, kept elsewhere; may be repeated. Else the file of audit.anchors.",
)
@session_options
def verify(session: CommandSession, anchors: tuple[str, ...]) -> int:
    """Verify the audit log: its chain of hashes, seals and anchors.

    Every entry carries the hash of the one before it, so an edited, deleted, moved or added row is found
    and named. That the end was cut off, or that everything was written anew, shows only against an anchor:
    `kfm audit anchor` makes one, and the rows after the last are said to be unanchored. The events that runs
    posted, and the history of units, are checked against the seals in the chain; what came after the last
    seal is counted. Promotions, switches, approvals, invocations and units are compared with what chain and
    history tell of them: one that was edited by itself is named.

    Exit status 0 if everything is sound, 1 if it is not.
    """
    from kfm.audit.chain import SealsVerdict, links, verify, verify_seals
    from kfm.audit.records import RecordsVerdict, compare_records
    from kfm.model.audit import UNITS

    with session.app(read_only=True) as app:
        files, kept, others = _anchors(app, anchors)  # before the rows: none can be beyond their end
        verdict = verify(app.ledger, kept, _progress(session))
        seals, units, records = SealsVerdict(), SealsVerdict(), RecordsVerdict()
        if verdict.sound:
            seals = verify_seals(app.ledger, links(app.ledger))
            units = verify_seals(app.ledger, links(app.ledger), UNITS)
            records = compare_records(app.ledger)
        environment = app.settings.environment
    sound = verdict.sound and seals.sound and units.sound and records.sound
    document = {
        "environment": environment,
        "sound": sound,
        "rows": verdict.rows,
        "head": {"number": verdict.head_number, "hash": verdict.head_hash},
        "anchors": {
            "files": files,
            "agree": verdict.anchors,
            "through": verdict.anchored_number,
            "of_other_environments": others,
        },
        "unanchored_since": verdict.unanchored_since,
        "unchained": verdict.unchained,
        "finding": verdict.finding,
        "events": seals if verdict.sound else None,
        "units": units if verdict.sound else None,
        "records": records if verdict.sound else None,
    }
    lines = _verdict_lines(verdict, files)
    if verdict.sound:  # what is wrong comes first
        kinds = sorted(((seals, "event"), (units, "page")), key=lambda kind: kind[0].sound)
        sealed = [line for found, what in kinds for line in _seal_lines(found, what)]
        edited = [_record_line(finding) for finding in records.findings]
        lines = [*lines, *sealed] if sound else [*edited, *sealed, *lines]
    session.emit(document, lines)
    if others:
        session.note(f"{counted(others, 'anchor')} of other environments: not compared")
    if not sound:
        session.note('what to do now: docs/how-to/audit.md, "When it is broken"')
    if sound and verdict.unanchored_since is not None and verdict.head_number:
        session.note("anchor it with: kfm audit anchor")
    return 0 if sound else 1


def _seal_lines(seals: Any, what: str) -> list[str]:
    """Events of runs, or pages of the history of units."""
    of = " of units" if what == "page" else ""
    if not seals.sound:
        return [click.style(f"BROKEN seal in row {seals.broken_seal}: {one_line(seals.detail)}", fg="red")]
    lines = []
    if seals.seals:
        lines.append(f"sealed: {counted(seals.sealed, what)}{of} by {counted(seals.seals, 'seal')}")
    if seals.retired:
        lines.append(f"retired: {counted(seals.retired, what)}{of} by retention; their seals stay")
    if seals.unsealed:
        since = f" since {what} {seals.unsealed_since}" if seals.unsealed_since else ""
        lines.append(f"unsealed: {counted(seals.unsealed, what)}{of}{since}; `kfm audit seal` seals them")
    return lines


def _record_line(finding: Any) -> str:
    row = f" (row {finding.row} of the chain)" if finding.row is not None else ""
    return click.style(f"BROKEN record: {one_line(finding.detail)}{row}", fg="red")


def _verdict_lines(verdict: Any, files: Sequence[str]) -> list[str]:
    lines = []
    if verdict.finding is not None:
        found = verdict.finding
        lines.append(click.style(f"BROKEN at row {found.number}: {one_line(found.detail)}", fg="red"))
        if verdict.anchored_number:
            lines.append(f"  rows 1 to {verdict.anchored_number} are as they were anchored")
        if found.since < found.number:
            lines.append(
                f"  rows {found.since} to {found.number - 1} fit together; no anchor vouches for them"
            )
    elif not verdict.rows:
        lines.append("sound: nothing has been recorded yet")
    else:
        end = f", head {verdict.head_number} with hash {verdict.head_hash}" if verdict.head_number else ""
        lines.append(click.style(f"sound: {counted(verdict.rows, 'row')}{end}", fg="green"))
    if verdict.unchained:
        waiting = counted(verdict.unchained, "row")
        lines.append(f"unchained: {waiting} from before the ledger was a chain; the next entry takes them in")
    if verdict.anchors:
        agree = "anchor agrees" if verdict.anchors == 1 else "anchors agree"
        where = f"{verdict.anchors} {agree} ({', '.join(map(one_line, files))})"
        lines.append(f"anchored: up to row {verdict.anchored_number}; {where}")
    if verdict.unanchored_since is not None:
        none = "" if verdict.anchors else "there is no anchor; "
        if verdict.finding is not None and files and none:
            none = "no anchor was reached before the break; "
        lines.append(f"unanchored since row {verdict.unanchored_since}: {none}{UNSEEN}")
    return lines


# --- seal ------------------------------------------------------------------------------


@command.command(name="seal")
@session_options
def seal(session: CommandSession) -> None:
    """Seal the events that were posted, and the history of units, since the last seal.

    One entry of the chain vouches for many rows by the root of their hashes: a later change to one of
    them is found. Runs do this by themselves when enough events have come together; before an anchor, or a
    release, it is worth doing by hand.
    """
    from kfm.audit.chain import seal_all

    with session.app() as app:
        made = seal_all(app.kernel.store, app.actor)
        pages = seal_all(app.kernel.store, app.actor, stream="units")
    count, history = (sum(one.count for one in each) for each in (made, pages))
    every = [*made, *pages]
    document = {
        "events": count,
        "pages": history,
        "seals": len(every),
        "root": every[-1].root if every else None,
    }
    parts = [counted(count, "event")] if made else []
    parts += [f"{counted(history, 'page')} of the history of units"] if pages else []
    line = f"sealed: {', '.join(parts)}" if parts else "nothing to seal: no event since the last seal"
    session.emit(document, [line])


# --- anchor ----------------------------------------------------------------------------


@command.command(name="anchor")
@click.option("--to", metavar="FILE", help="Add the anchor to FILE; else to the file of audit.anchors.")
@session_options
def anchor(session: CommandSession, to: str | None) -> None:
    """Write an anchor: the ledger's last hash, so that later changes to history can be proven.

    The chain is verified first, against the anchors that there are; a broken one is not anchored. One line
    is added to a file beside the configuration. Keep that file where an account that can change the database
    can't change it, too: commit it to git and push, or send it to another person.
    """
    from kfm.audit import anchors
    from kfm.audit.chain import verify

    with session.app(read_only=True, role="operate") as app:
        path = to or app.loaded.resolve(app.settings.audit.anchors)
        _, kept, _ = _anchors(app, ())
        if to is not None and os.path.exists(to):
            kept += _anchors(app, (to,))[1]
        verdict = verify(app.ledger, kept, _progress(session))
        if verdict.finding is not None:
            raise ChainBroken(
                f"Row {verdict.finding.number}: {verdict.finding.detail}. Nothing was anchored."
            )
        made = None
        if verdict.head_number:
            made = anchors.made(verdict, app.settings.environment, app.clock.now_ms())
    is_new = made is not None and (made.number, made.hash) not in {
        (one.number, one.hash) for one in anchors.read(path) or () if one.environment == made.environment
    }
    if made is not None and is_new:
        anchors.append(path, made)
    document = {"anchor": made, "file": path, "added": is_new}
    if made is None:
        waiting = (
            f"; {counted(verdict.unchained, 'old row')} wait for the next entry" if verdict.unchained else ""
        )
        session.emit(document, [f"nothing to anchor: the chain has no row yet{waiting}"])
        return
    word = "anchored" if is_new else "anchored already"
    session.emit(document, [f"{word}: row {made.number} with hash {made.hash} in {path}"])
    if is_new:
        session.note(f"keep it elsewhere, too: git add {path} && git commit, then push")


# --- list ------------------------------------------------------------------------------


@command.command(name="list")
@click.option(
    "--kind",
    metavar="KIND",
    help="Only entries of this kind: gate-refused, review, force, switch, promotion, seal, release, gc, …",
)
@click.option("--subject", metavar="ID", help="Only entries about this run, dataset or scope.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=20, help="At most so many.", show_default=True
)
@session_options
def list_entries(session: CommandSession, kind: str | None, subject: str | None, limit: int) -> None:
    """List what people and gates decided, newest first.

    ROW is the entry's number in the chain. JSON output has everything that was recorded.
    """
    from kfm.audit.chain import newest

    with session.app(read_only=True) as app:
        found = newest(app.ledger, kind=kind, subject=subject, limit=limit + 1)
        kinds = sorted({one.entry.kind for one in newest(app.ledger, limit=LIMIT_MAX)}) if not found else []
    shown, more = found[:limit], len(found) > limit
    header = ("ROW", "RECORDED (UTC)", "KIND", "SUBJECT", "BY", "WHY")
    lines = table(header, [_row(one) for one in shown], spare=("ROW",)) if shown else ["no entries"]
    documents = [entry_document(one) for one in shown]
    session.emit({"entries": documents, "more": more}, lines, rows=documents)
    if kind is not None and kinds and kind not in kinds:
        session.note(f"kinds on record: {', '.join(map(one_line, kinds))}")
    if more and session.output == "text":
        session.note(f"more entries are not shown: use --limit (now {limit})")


def _row(one: Any) -> tuple[str, ...]:
    why = one.entry.rationale or one.entry.details.get("reason") or "-"
    return (
        str(one.number),
        moment(one.entry.recorded_at_ms).removesuffix(" UTC"),
        one.entry.kind,
        one.entry.subject,
        one.entry.actor,
        str(why),
    )


# --- export ----------------------------------------------------------------------------


@command.command(name="export")
@click.argument("folder", metavar="DIR")
@click.option("--internal", is_flag=True, help="Mask and withhold nothing. Not for publishing.")
@click.option("--units", is_flag=True, help="Add the history of units, unit-pages.jsonl. It may be large.")
@click.option("--anchors", multiple=True, metavar="FILE", help="Anchors to compare with and to add.")
@session_options
def export(
    session: CommandSession, folder: str, internal: bool, units: bool, anchors: tuple[str, ...]
) -> None:
    """Write the chain and its ledgers into DIR, with a script that checks them without kfm.

    \b
    audit-chain.jsonl        every link of the chain, and anchors.jsonl the anchors
    pipeline_retry_log.json  runs that were tried again: attempts, delays, error classes, CARE labels
    versioning_ledger.json   every promoted version, with its run and its row in the chain
    postmortems.json         and reviews.json: what followed from halts
    verify_audit.py          the check: python3 -I verify_audit.py DIR [--anchors FILE]

    Datasets whose CARE level is restricted or blocked, or whose people have not consented, are masked, and
    entries about them are withheld: the chain still verifies. --internal shows everything.
    """
    from kfm.audit.chain_export import export

    with session.app(read_only=True) as app:
        _, kept, _ = _anchors(app, anchors)
        made = export(
            app.ledger,
            app.settings,
            app.files,
            folder,
            kept,
            internal=internal,
            units=units,
            progress=_progress(session),
        )
    lines = [
        f"{folder}: {counted(made.chain.number, 'row')} of the chain, {counted(len(made.files), 'file')}"
    ]
    if made.withheld:
        lines.append(f"withheld: {counted(made.withheld, 'row')} about masked datasets or with secrets")
    if made.unanchored_since is not None:
        lines.append(f"unanchored since row {made.unanchored_since}: {UNSEEN}")
    session.emit({"folder": folder, "export": made}, lines)
    session.note(
        f"its reader checks it with a verify_audit.py from elsewhere: {CHECK} {folder} --anchors FILE"
    )
    if internal:
        session.note("this export masks nothing: do not publish it")
