"""`kfm nodd`: announcements of open data, units and watermarks, dead letters, imports, reconciliation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import msgspec

from kfm.cli.options import CommandGroup, StateChoice, past_ms, session_options
from kfm.cli.output import clipped, encode, one_line, table, utc
from kfm.cli.process import data
from kfm.cli.progress import watched
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.quantities import counted, duration, moment
from kfm.model.rationales import require_rationale
from kfm.model.redaction import MASK_KEY, mask
from kfm.model.times import parse_rfc3339, rfc3339
from kfm.model.units import PROVIDER_NAME, provider_of, scheme_of
from kfm.reports.lookup import find_unit, unit_of_activity
from kfm.reports.state_words import UNITS, of_quarantined, of_request, of_unit
from kfm.reports.units import HASH_PREFIX, dead_document, find_dead

if TYPE_CHECKING:
    from kfm.nodd.dataset_registry import Generic, IntakePolicy
    from kfm.nodd.grammar import Dataset
    from kfm.nodd.messages.record_outcomes import RecordOutcome

LIMIT_MAX = 10_000
SHOWN_MAX = 20
UNITS_SHOWN_MAX = 100_000


@click.group(name="nodd", cls=CommandGroup)
def command() -> None:
    """Read announcements of NOAA's open data; list their units."""


# --- units and watermarks -----------------------------------------------------------


@command.command(name="units")
@click.option("--dataset", metavar="NAME", default="", help="Only of this dataset.")
@click.option(
    "--status", type=StateChoice(UNITS.values(), UNITS), default=None, help="Only with this status."
)
@click.option("--error-code", metavar="CODE", default="", help="Only those whose last error has this code.")
@click.option("--since", metavar="TIME", help="Only those that changed since then: RFC 3339, or 2h, 3d.")
@click.option(
    "--limit", type=click.IntRange(1, UNITS_SHOWN_MAX), default=50, help="At most so many.", show_default=True
)
@session_options
def units(
    session: CommandSession, dataset: str, status: str | None, error_code: str, since: str | None, limit: int
) -> None:
    """List units: the newest time that they cover first; with --dataset alone, the newest data time.

    A unit is one announced object in the ingest ledger. `kfm nodd show UNIT` has all of one, `kfm explain
    UNIT` what it waits for; `kfm replay` replays those that failed or were quarantined.
    """
    from kfm.model.units import UnitFilter
    from kfm.reports.units import unit_document

    with session.app(read_only=True) as app:
        wanted = UnitFilter(
            dataset=dataset,
            status=status or "",
            error_code=error_code,
            since_ms=0 if since is None else past_ms(since, "--since", app.ledger.now_ms()),
            limit=limit + 1,
        )
        found = app.ledger.unit_reader().find_units(wanted)
    shown, more = found[:limit], len(found) > limit
    documents = [unit_document(unit) for unit in shown]
    lines = unit_rows(shown) if shown else ["no units"]
    session.emit({"units": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"more units are not shown: use --limit (now {limit})")


@command.command(name="show")
@click.argument("unit", metavar="UNIT")
@session_options
def show(session: CommandSession, unit: str) -> None:
    """Show one unit: its record, its object, everything that it went through, and the runs it led to.

    UNIT is its id (wal_id), as it is in lists, lineage events, spans and the catalogue; or the id of one of
    its attempts: an OpenLineage run, or an activity in PROV (urn:kfm:attempt:…). For those all units are
    looked through.
    """
    show_unit(session, unit)


def show_unit(session: CommandSession, wanted: str) -> None:
    from kfm.reports.units import stored_document

    with session.app(read_only=True) as app:
        reader = app.ledger.unit_reader()
        document = stored_document(app.ledger, find_unit(reader, unit_of_activity(reader, wanted) or wanted))
    session.emit(document, stored_lines(document))


# --- watermarks ------------------------------------------------------------------------


@command.command(name="watermarks")
@click.argument("names", nargs=-1, metavar="[DATASET]...")
@session_options
def watermarks(session: CommandSession, names: tuple[str, ...]) -> None:
    """How far each dataset has come.

    NEWEST is the newest time that the catalogue covers, LAG how long ago that is, OLDEST OPEN the earliest
    time of a unit that is still to be worked on: of what was announced before it, nothing is left to do.
    """
    from kfm.reports.feeds import watermark_documents

    with session.app(read_only=True) as app:
        documents = watermark_documents(app.ledger.unit_reader(), app.ledger.now_ms(), names)
    rows = [
        (
            one["dataset"],
            utc(one["newest"]).removesuffix(" UTC") if one["newest"] else "-",
            duration(one["lag_ms"]) if one["lag_ms"] is not None else "-",
            utc(one["oldest_open"]["at"]).removesuffix(" UTC") if one["oldest_open"] else "-",
            str(one["open"]),
            str(one["given_up"]),
        )
        for one in documents
    ]
    header = ("DATASET", "NEWEST (UTC)", "LAG", "OLDEST OPEN (UTC)", "OPEN", "GIVEN UP")
    session.emit({"watermarks": documents}, table(header, rows) if rows else ["no units yet"], rows=documents)


def stored_lines(document: dict[str, Any]) -> list[str]:
    unit, budget = document["unit"], document["budget"]
    shown = {**unit, "status": of_unit(unit["status"])}
    facts = [(name.replace("_", " "), _text(shown[name])) for name in unit if unit[name] not in (None, {})]
    facts += [
        (f"object {name}".replace("_", " "), _text(value))
        for name, value in document["object"].items()
        if value not in (None, False)
    ]
    if budget["due"] is not None:
        facts.append(("due", utc(budget["due"])))
    facts += [("led to", request_line(one)) for one in document["requests"]]
    width = max(len(name) for name, _ in facts)
    rows = [
        (
            utc(move["at"]).removesuffix(" UTC"),
            move["event"],
            of_unit(move["status"]),
            str(move["attempts"]),
            move["worker_id"] or "-",
            _text(move["details"]) if move["details"] else "",
        )
        for move in document["history"]
    ]
    header = ("AT (UTC)", "EVENT", "STATUS", "ATTEMPT", "WORKER", "DETAILS")
    return [*(f"{name.ljust(width)}  {value}" for name, value in facts), "", *table(header, rows)]


def request_line(request: dict[str, Any]) -> str:
    """A request that a unit led to, and its run."""
    word = of_request(request["state"], request["outcome"], request["blocked_by"])
    run = f", run {request['run_id']}" if request["run_id"] else ""
    return (
        f"{request['dataset_id']} from {request['source_id']}, {word}: request {request['request_id']}{run}"
    )


def unit_rows(units: Any) -> list[str]:
    rows = [
        (
            moment(unit.updated_at_ms).removesuffix(" UTC"),
            unit.dataset,
            of_unit(unit.status),
            str(unit.attempts),
            unit.last_error_code or "-",
            unit.wal_id,
            unit.object_uri,
        )
        for unit in units
    ]
    return table(
        ("CHANGED (UTC)", "DATASET", "STATUS", "ATTEMPTS", "ERROR", "UNIT", "OBJECT"),
        rows,
        spare=("ATTEMPTS", "DATASET"),
    )


def _text(value: Any) -> str:
    return one_line(value if isinstance(value, str) else msgspec.json.encode(value).decode())


# --- parse and datasets ------------------------------------------------------------


@command.command(name="parse")
@click.option(
    "--key", nargs=2, metavar="BUCKET KEY", help="Read this key instead of a message. It is taken as it is."
)
@click.option(
    "--provider",
    metavar="NAME",
    help="Whose bucket --key means, or a message in S3's form: aws, gcp, azure, or another's name.",
)
@click.option(
    "--generic",
    multiple=True,
    metavar="BUCKET=DATASET",
    help="Take in objects of BUCKET that no known dataset claims, as plain items of DATASET. "
    "gs://BUCKET, az://ACCOUNT/CONTAINER and s3+NAME://BUCKET name other providers.",
)
@click.option("--topic", "topics", multiple=True, metavar="ARN", help="Let this SNS topic speak, too.")
@session_options
def parse_message(
    session: CommandSession,
    key: tuple[str, str] | None,
    provider: str | None,
    generic: tuple[str, ...],
    topics: tuple[str, ...],
) -> int:
    """Read a message from standard input and print one JSON line for each of its records.

    Understood are S3 events (raw, or within SNS, SQS, Lambda or EventBridge), notifications of NEXRAD chunks,
    Google Cloud Storage and Azure Event Grid. A line names the object's dataset, times, unit (wal_id) and
    catalogue item, or has `error_code` and `error`. Records that are ignored (tests, removals,
    repeats) have `ignored: true`. Nothing is fetched and nothing is stored.

    \b
    kfm nodd parse < message.json
    kfm nodd parse --key noaa-mrms-pds CONUS/PrecipRate_00.00/20260615/MRMS_PrecipRate_00.00_20260615-000000.grib2.gz

    Exit code 0 if every record that is not ignored was understood, else 1.
    """  # noqa: E501 - an example is one line
    from kfm.db.connection import system_clock
    from kfm.nodd.dataset_registry import load_registry
    from kfm.nodd.messages.record_outcomes import line, parse_key, parse_message

    if provider is not None and PROVIDER_NAME.match(provider) is None:
        raise UsageError(f"`{provider[:64]}` is no provider's name.")
    registry = load_registry(_policy(generic, topics))
    now_ms = system_clock().now_ms()
    outcomes: Sequence[RecordOutcome]
    if key is not None:
        outcomes = (parse_key(*key, registry, now_ms, provider),)
    else:
        outcomes = parse_message(_body(session), registry, now_ms, provider)
    rows = [msgspec.to_builtins(line(outcome)) for outcome in outcomes]
    code = int(any("error_code" in row and "ignored" not in row for row in rows))
    lines = [encode(row, "jsonl").rstrip("\n") for row in rows]
    session.emit({"records": rows, "exit_code": code}, lines, rows=rows)
    return code


@command.command(name="datasets")
@click.argument("names", nargs=-1, metavar="[DATASET]...")
@session_options
def datasets(session: CommandSession, names: tuple[str, ...]) -> None:
    """List the datasets that are known: their buckets, the topics that announce them, their keys.

    Those of installed plugins (entry points in the group `kfm.datasets`) are among them.
    """
    from kfm.nodd.dataset_registry import load_registry

    registry = load_registry()
    known = [dataset.name for dataset in registry.datasets]
    for name in names:
        if name not in known:
            from kfm.model.quantities import did_you_mean

            raise UsageError(
                f"There is no dataset `{name[:64]}`{did_you_mean(name, known)}",
                remedy="`kfm nodd datasets` lists them.",
            )
    rows = [_document(dataset) for dataset in registry.datasets if not names or dataset.name in names]
    session.emit({"datasets": rows}, [text for row in rows for text in _lines(row)], rows=rows)


def _body(session: CommandSession) -> bytes:
    """A little more than is ever read, so that too much can be detected."""
    from kfm.nodd.messages.json_bodies import BODY_BYTES_MAX

    if sys.stdin is None:  # closed by the caller
        return b""
    if sys.stdin.isatty():
        session.note("reading a message from standard input; Ctrl-D ends it")
    return sys.stdin.buffer.read(BODY_BYTES_MAX + 1)


def _policy(generic: Sequence[str], topics: Sequence[str]) -> IntakePolicy:
    from kfm.nodd.dataset_registry import IntakePolicy
    from kfm.nodd.messages.refusals import RecordRefusal
    from kfm.nodd.messages.sns import region_of

    for topic in topics:
        try:
            region_of(topic)
        except RecordRefusal:
            raise UsageError(f"--topic takes the ARN of an SNS topic, not `{topic[:128]}`.") from None
    return IntakePolicy(generic=tuple(map(_generic, generic)), topics=tuple(topics))


def _generic(text: str) -> Generic:
    from kfm.nodd.dataset_registry import Generic
    from kfm.nodd.messages.refusals import RecordRefusal
    from kfm.nodd.object_keys import check_bucket

    bucket, equals, dataset = text.rpartition("=")
    scheme, separator, rest = bucket.partition("://")
    provider = provider_of(scheme) if separator else "aws"
    try:
        if not equals or provider is None:
            raise RecordRefusal("RECORD_INVALID")
        return Generic(dataset=dataset, bucket=check_bucket(rest if separator else bucket), provider=provider)
    except RecordRefusal:
        raise UsageError(f"--generic takes BUCKET=DATASET, not `{text[:128]}`.") from None


def _document(dataset: Dataset) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "title": dataset.title,
        "stac_collection_id": dataset.collection,
        "media_type": dataset.media_type,
        "licence": dataset.licence,
        "buckets": [
            {
                "provider": place.provider,
                "uri": f"{scheme_of(place.provider)}://{place.bucket}",
                "platform": place.platform,
            }
            for place in dataset.places
        ],
        "topics": list(dataset.topics),
        "keys": [rule.pattern.text for rule in dataset.rules],
        "sidecars": dict(dataset.sidecars),
    }


def _lines(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['name']}: {row['title']}",
        *(f"  bucket  {bucket['uri']}" for bucket in row["buckets"]),
        *(f"  topic   {topic}" for topic in row["topics"] or ("none is published",)),
    ]


# --- dead --------------------------------------------------------------------------


@command.group(name="dead", cls=CommandGroup)
def dead() -> None:
    """List, show and release messages that could not be taken in.

    A message is known by the hash of its body. Its text is shown only on request.
    """


@dead.command(name="list")
@click.option("--error-code", metavar="CODE", default="", help="Only with this code.")
@click.option("--all", "everything", is_flag=True, help="Also what was released.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=50, help="At most so many.", show_default=True
)
@session_options
def list_dead(session: CommandSession, error_code: str, everything: bool, limit: int) -> None:
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
    lines = table(header, rows, spare=("TIMES", "QUEUE")) if rows else ["no dead messages"]
    session.emit({"dead": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"more is dead than is shown: use --limit (now {limit})")


@dead.command(name="show")
@click.argument("wanted", metavar="HASH")
@click.option("--body", "wants_body", is_flag=True, help="Print the message itself. Needs the role operate.")
@session_options
def show_dead(session: CommandSession, wanted: str, wants_body: bool) -> None:
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
        data().write(body if body.endswith("\n") else f"{body}\n")
        return
    document = {"records": [dead_document(one) for one in records]}
    lines = []
    for one in records:
        lines += [
            f"message   {one.envelope_hash}, record {one.record_index}",
            f"queue     {one_line(one.queue)}",
            f"error     {one.error_code}: {one_line(one.error)}",
            f"came      {counted(one.times, 'time')}, {moment(one.first_at_ms)} … {moment(one.last_at_ms)}",
            f"state     {of_quarantined('dead-letter', one.state)}",
        ]
    session.emit(document, lines, rows=document["records"])


@dead.command(name="release")
@click.argument("wanted", metavar="HASH")
@click.option("--rationale", metavar="TEXT", help="Why it needs no attention any more. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def release(session: CommandSession, wanted: str, rationale: str | None, ticket: str | None) -> None:
    """Release a dead letter: it needs no attention any more.

    It is not taken in by that. Send it again once the cause is fixed, or forward it with
    `kfm nodd dead show HASH --body`. Who released it, and why, is entered in the audit log.
    """
    require_rationale(rationale, "A dead message is released with --rationale TEXT.")
    from kfm.model.records import Justification
    from kfm.nodd.dead_letters import release_dead_message

    with session.app() as app:
        said = app.loaded.discretion.said
        record = find_dead(app.ledger.unit_reader(), wanted)[0]
        by = Justification(actor=app.actor, rationale=said(rationale), ticket=ticket and said(ticket))
        released = release_dead_message(app, record, by)
    document = {"message": record.envelope_hash, "released": released}
    word = f"released  {counted(released, 'record')} of {short_hash(record.envelope_hash)}"
    session.emit(document, [word if released else "released already"])


def is_terminal() -> bool:
    return bool(data().isatty())


def short_hash(envelope_hash: str) -> str:
    return envelope_hash.removeprefix(HASH_PREFIX)[:12]


# --- reconcile ---------------------------------------------------------------------


@command.command(name="reconcile")
@click.argument("bucket", metavar="BUCKET")
@click.option("--dataset", metavar="ID", help="Only objects of this dataset.")
@click.option("--prefix", "prefixes", multiple=True, metavar="TEXT", help="Only keys that begin so.")
@click.option("--from", "start", metavar="TIME", help="Only keys with this time or a later one.")
@click.option("--to", "end", metavar="TIME", help="Only keys with an earlier time.")
@click.option("--limit", type=click.IntRange(min=1), default=1_000_000, show_default=True, metavar="N",
              help="Look at so many objects at most.")  # fmt: skip
@click.option("--open", "open_missing", is_flag=True, help="Take in what is missing, as a backfill.")
@click.option("--rationale", metavar="TEXT", help="Why; needed with --open.")
@session_options
def reconcile(session: CommandSession, bucket: str, **options: Any) -> int:
    """List BUCKET and compare it with the ledger: messages may be lost, a listing shows what was.

    BUCKET is a name, or an address: noaa-goes16, s3://noaa-goes16, gs://NAME, az://ACCOUNT/CONTAINER.
    Nothing is changed unless --open is given: then missing objects become units with the reason
    `backfill`, and changed ones are looked at again. `kfm worker` does the rest.

    \b
    Examples:
      kfm nodd reconcile noaa-goes16 --prefix ABI-L1b-RadC/2026/319/
      kfm nodd reconcile noaa-hrrr-bdp-pds --from 2026-11-15T00:00:00Z --open --rationale "queue was down"

    Exit codes: 0 nothing is missing, or all of it was opened · 1 something is missing · 4 no listing.
    """
    if options["open_missing"]:
        require_rationale(options["rationale"], "Opening units is on record: give --rationale TEXT.")
    from kfm.model.records import justified
    from kfm.nodd.reconciliation import reconcile_bucket, reconciliation_options

    asked = reconciliation_options(
        bucket,
        dataset=options["dataset"],
        prefixes=options["prefixes"],
        from_ms=_time(options["start"], "--from"),
        until_ms=_time(options["end"], "--to"),
        limit=options["limit"],
    )
    progress = watched(session)
    gaps: list[dict[str, Any]] = []

    def found(gap: Any) -> None:
        row = msgspec.to_builtins(gap)
        at_ms = row.pop("time_range_start_ms")
        row["time_range_start"] = None if at_ms is None else rfc3339(at_ms)
        if session.output == "jsonl":
            data().write(encode(row, "jsonl"))
        elif len(gaps) < (10_000 if session.output == "json" else SHOWN_MAX):
            gaps.append(row)

    with session.app(read_only=not options["open_missing"]) as app:
        progress.phase("listing")
        by = None
        if options["open_missing"]:
            by = justified(app.loaded.discretion.said, app.actor, options["rationale"])
        result = reconcile_bucket(app, asked, found, progress.advance, by=by)
        progress.done()
    missing = result.missing + result.changed
    code = int(missing > 0 and not options["open_missing"])
    document = {**msgspec.to_builtins(result), "gaps": gaps, "exit_code": code}
    session.emit(document, _reconcile_lines(result, gaps), rows=[])
    if missing and not options["open_missing"]:
        session.note("`--open --rationale TEXT` takes in what is missing")
    return code


def _time(text: str | None, flag: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_rfc3339(text)
    except UsageError:
        raise UsageError(f"{flag} takes a time such as 2026-11-15T00:00:00Z, not `{text[:64]}`.") from None


def _reconcile_lines(result: Any, gaps: list[dict[str, Any]]) -> list[str]:
    lines = [f"{gap['what']}: {gap['object_uri']}" for gap in gaps]
    left = result.missing + result.changed + result.gone - len(gaps)
    if left > 0:
        lines.append(f"and {left} more; -o jsonl prints all of them")
    lines.append(
        f"{counted(result.listed, 'object')} listed: {result.known} known, {result.missing} missing, "
        f"{result.changed} changed, {result.gone} known as removed, {result.unreadable} of no known dataset, "
        f"{result.outside} not asked for"
    )
    if result.opened:
        lines.append(f"{counted(result.opened, 'unit')} opened as backfill")
    if not result.complete:
        lines.append("there is more in the bucket: the limit was reached")
    return lines


# --- import ------------------------------------------------------------------------


@command.command(name="import")
@click.argument("file", type=click.File("rb"), metavar="FILE")
@click.option("--rationale", metavar="TEXT", help="Why; it is kept with the import.")
@session_options
def import_records(session: CommandSession, file: BinaryIO, rationale: str | None) -> int:
    """Take over the records of an older ledger: JSON Lines, one record a line; `-` is standard input.

    A record keeps its states, attempts and times; its id is made anew from dataset, address and start time.
    What is in the ledger already stays as it is, so the same file may be imported again. Messages are
    redacted, host names become logical ones. A line that can't be read, or that says `succeeded` where one of
    its statuses failed, is reported with its number, and the others are taken. The catalogue has no items of
    what succeeded elsewhere: docs/how-to/import-units.md says how to fill it.

    Exit codes: 0 all lines were taken, or known · 1 some could not be read · 2 no such file.
    """
    require_rationale(rationale, "An import is on record: give --rationale TEXT.")
    from kfm.nodd.ingest import registry_of
    from kfm.nodd.unit_import import Cleaning, import_units

    with session.app() as app:
        key = app.ledger.mark(MASK_KEY)
        report = import_units(
            file,
            app.writer.units(),
            registry_of(app),
            now_ms=app.ledger.now_ms(),
            actor=app.actor,
            rationale=app.loaded.discretion.said(rationale),
            cleaning=Cleaning(app.loaded.discretion, lambda name: mask(name, key)),
        )
    code = int(report.refused > 0)
    session.emit({**msgspec.to_builtins(report), "exit_code": code}, _import_lines(report))
    return code


def _import_lines(report: Any) -> list[str]:
    lines = [f"line {error.line}: {error.error}" for error in report.errors]
    if report.refused > len(report.errors):
        lines.append(f"and {report.refused - len(report.errors)} more")
    lines.append(
        f"{counted(report.lines, 'record')}: {report.created} taken, {report.known} known already, "
        f"{report.refused} not read"
    )
    return lines
