"""Feeds over the API: how far each has come, its hours by product, its failures by cause, dead messages."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.datasets.completeness import CompletenessReader, completeness_of
from kfm.model.errors import UsageError
from kfm.model.feeds import HOUR_MS
from kfm.model.records import justified
from kfm.model.times import parse_rfc3339, rfc3339
from kfm.reports.feeds import (
    INCIDENTS_MAX,
    LATELY_HOURS,
    cell_document,
    dead_cause_document,
    failure_document,
    feed_failures,
    feed_hours,
    feed_standing,
    feed_standings,
    feeds_known,
    flow_document,
    flow_sums,
    standing_document,
    watermark_documents,
)
from kfm.reports.units import dead_document, find_dead
from kfm.web.api.operations import ApiCall, cursor_position
from kfm.web.api.reads import page, rest
from kfm.web.problems import missing

HOURS_MAX = 31 * 24
GAPS_TOLD_MAX = 1000
LISTED_MAX = 100_000


def _completeness(call: ApiCall) -> CompletenessReader:
    return completeness_of(call.app, schedules=lambda: call.context.schedules)


def _names(call: ApiCall, completeness: CompletenessReader) -> list[str]:
    known = feeds_known(completeness, call.app.ledger.unit_reader().totals())
    return [one for one in known if not call.visibility.hides_units(one)]


def _feed(call: ApiCall, completeness: CompletenessReader) -> str:
    wanted = call.visibility.meant(call.path["feed_id"])
    if wanted is None or wanted not in _names(call, completeness):
        raise missing("feed")
    return wanted


def feeds(call: ApiCall) -> Any:
    """How each feed is, by name."""
    ledger, completeness, query = call.app.ledger, _completeness(call), call.query
    reader, now_ms = ledger.unit_reader(), ledger.now_ms()
    names = [one for one in _names(call, completeness) if one > (query["cursor"] or "")]
    shown, more = page(names, query["limit"])
    marks = {one["dataset"]: one for one in watermark_documents(reader, now_ms, shown)} if shown else {}
    return {
        "feeds": [
            standing_document(one, marks.get(one.dataset))
            for one in feed_standings(completeness, ledger, shown, now_ms, reader.causes())
        ],
        "dead_messages": [dead_cause_document(one) for one in reader.dead_causes()],
        **rest(more, *shown[-1:]),
    }


def watermarks(call: ApiCall) -> Any:
    """What `kfm nodd watermarks` prints."""
    ledger, wanted = call.app.ledger, call.visibility.meant(call.query["dataset"])
    found = watermark_documents(ledger.unit_reader(), ledger.now_ms(), [wanted] if wanted else [])
    return {"watermarks": [one for one in found if not call.visibility.hides_units(one["dataset"])]}


def one_feed(call: ApiCall) -> Any:
    """One feed, and the hours of a span: the newest first, by the last day if no span is asked for."""
    ledger, completeness, query = call.app.ledger, _completeness(call), call.query
    name, reader, now_ms = _feed(call, completeness), ledger.unit_reader(), ledger.now_ms()
    end_ms = -(-(now_ms if query["end"] is None else query["end"]) // HOUR_MS) * HOUR_MS
    start_ms = end_ms - LATELY_HOURS * HOUR_MS if query["start"] is None else query["start"]
    start_ms = -(-start_ms // HOUR_MS) * HOUR_MS
    if not 0 <= end_ms - start_ms <= HOURS_MAX * HOUR_MS:
        raise UsageError(f"A span of at most {HOURS_MAX} hours can be asked for, from `start` to `end`.")
    hours = feed_hours(completeness, reader, name, start_ms, end_ms)
    cells = sorted(
        (one for one in hours.cells if query["product"] in (None, one.product)),
        key=lambda one: (-one.start_ms, one.source_id),
    )
    left = enumerate(cells)
    place = cursor_position(query["cursor"])
    if place is not None:
        at_ms, number = place[0], int(place[1]) if place[1].isdigit() and len(place[1]) < 9 else 0
        numbers: dict[int, int] = {}
        behind = []
        for index, one in left:
            numbers[one.start_ms] = numbers.get(one.start_ms, -1) + 1
            if one.start_ms < at_ms or (one.start_ms == at_ms and numbers[one.start_ms] > number):
                behind.append((index, one))
    else:
        behind = list(left)
    shown, more = page(behind, query["limit"])
    last: tuple[object, ...] = ()
    if more:
        index, cell = shown[-1]
        last = (cell.start_ms, sum(1 for one in cells[:index] if one.start_ms == cell.start_ms))
    flow = flow_sums(reader.flow(name, start_ms, end_ms), start_ms, min(end_ms, now_ms) // HOUR_MS * HOUR_MS)
    mark = watermark_documents(reader, now_ms, [name])
    standing = feed_standing(completeness, ledger, name, now_ms)
    return {
        "feed": standing_document(standing, mark[0] if mark else None),
        "start": rfc3339(start_ms),
        "end": rfc3339(end_ms),
        "hours": [cell_document(one) for _, one in shown],
        "flow": [flow_document(one, hours.delays) for one in flow],
        "next_steps": [one.command for one in hours.coverage.reconcile],
        **rest(more, *last),
    }


def failures(call: ApiCall) -> Any:
    """What failed, is quarantined or waits for a retry, by cause."""
    ledger, query = call.app.ledger, call.query
    name = _feed(call, _completeness(call))
    incidents = ledger.incidents(state="open", limit=INCIDENTS_MAX)
    found = feed_failures(ledger.unit_reader().causes(name), incidents, call.app.settings.ingest)
    skipped = 0 if query["cursor"] is None else int(query["cursor"])
    shown, more = page(found[skipped:], query["limit"])
    return {
        "dataset": name,
        "failures": [failure_document(one, one.cause.message) for one in shown],
        **rest(more, skipped + len(shown)),
    }


# --- dead messages ---------------------------------------------------------------------


def _records(call: ApiCall) -> list[Any]:
    try:
        return find_dead(call.app.ledger.unit_reader(), call.path["message"])
    except UsageError:
        raise missing("message") from None


def one_dead_letter(call: ApiCall) -> Any:
    """Its records, without the message itself."""
    return {
        "records": [
            {**dead_document(one), "error": call.visibility.unattributed(one.error)} for one in _records(call)
        ]
    }


def release_dead_letter(call: ApiCall) -> Any:
    """It needs no attention any more. It is not taken in by that."""
    from kfm.nodd.dead_letters import release_dead_message

    record, app, body = _records(call)[0], call.app, call.body
    by = justified(app.loaded.discretion.said, call.identity.subject, body.rationale, body.ticket, body.actor)
    return {"message": record.envelope_hash, "released": release_dead_message(app, record, by)}


# --- reconciliation --------------------------------------------------------------------


def reconcile(call: ApiCall) -> Any:
    """A bucket of the feed, compared with the ledger; with `open` what is missing is taken in."""
    from kfm.nodd.ingest import registry_of
    from kfm.nodd.reconciliation import reconcile_bucket, reconciliation_options

    app, body = call.app, call.body
    name = call.visibility.meant(call.path["feed_id"]) or ""
    buckets = _buckets(registry_of(app), name)
    if buckets is None:
        raise missing("feed")
    asked = reconciliation_options(
        body.bucket or next(iter(buckets), ""),
        dataset=name,
        prefixes=(body.prefix,) if body.prefix else (),
        from_ms=None if body.start is None else parse_rfc3339(body.start),
        until_ms=None if body.end is None else parse_rfc3339(body.end),
        limit=LISTED_MAX if body.limit is None else body.limit,
    )
    if (asked.provider, asked.bucket) not in buckets.values():
        known = ", ".join(buckets)
        raise UsageError(f"`{asked.bucket}` is no bucket of {name}.", remedy=f"It has these: {known}.")
    gaps: list[dict[str, Any]] = []

    def found(gap: Any) -> None:
        if len(gaps) < GAPS_TOLD_MAX:
            row = msgspec.to_builtins(gap)
            at_ms = row.pop("time_range_start_ms")
            gaps.append({**row, "time_range_start": None if at_ms is None else rfc3339(at_ms)})

    by = justified(app.loaded.discretion.said, call.identity.subject, body.rationale, body.ticket, body.actor)
    result = reconcile_bucket(app, asked, found, lambda _count: None, by=by if body.open else None)
    is_left = result.missing + result.changed > 0 and not body.open
    return {**msgspec.to_builtins(result), "gaps": gaps, "exit_code": int(is_left)}


def _buckets(registry: Any, name: str) -> dict[str, tuple[str, str]] | None:
    """Where objects of a dataset lie, by the names that a person types; None: no such dataset."""
    from kfm.model.units import scheme_of

    if name not in registry.names:
        return None
    return {
        bucket if provider == "aws" else f"{scheme_of(provider)}://{bucket}": (provider, bucket)
        for provider, bucket in registry.places_of(name)
    }
