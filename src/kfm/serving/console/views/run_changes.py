"""What a run changed for readers, and what it was made from."""

from __future__ import annotations

from kfm.core.records import Found, Manifest, Promotion, Record, Run
from kfm.core.wording import counted
from kfm.explain.inputs import seen
from kfm.publish.manifest import Change, diff, tally
from kfm.serving.console import words
from kfm.serving.console.visits import Visit
from kfm.serving.console.words import Word

SHOWN_MAX = 100
PROMOTIONS_MAX = 1000


class ChangeRow(Record, frozen=True):
    word: Word
    what: str
    name: str
    before: str
    after: str
    size_before: int | None
    size_after: int | None


class Changes(Record, frozen=True):
    said: str  # in one line
    version: int | None
    version_id: str
    rows: tuple[ChangeRow, ...]
    more: int


class Thing(Record, frozen=True):
    name: str
    address: str
    size: int | None
    mark: str


class Lineage(Record, frozen=True):
    inputs: tuple[Thing, ...]
    inputs_count: int | None  # None: what was found is not kept
    outputs: tuple[Thing, ...]
    outputs_count: int


def changes_and_lineage(visit: Visit, run: Run) -> tuple[Changes, Lineage]:
    made = _made(visit, run)
    manifest = visit.reader.manifest(made.version_id) if made else None
    return _changes(visit, run, made, manifest), _lineage(visit, run, manifest)


def _made(visit: Visit, run: Run) -> Promotion | None:
    if run.version_id is None:
        return None
    found = visit.reader.promotions(run.dataset_id, limit=PROMOTIONS_MAX)
    return next((each for each in found if each.run_id == run.run_id), None)


def _changes(visit: Visit, run: Run, made: Promotion | None, manifest: Manifest | None) -> Changes:
    if made is None or manifest is None:
        said = {
            "success": "It succeeded and changed nothing for readers.",
            "running": "Nothing yet: readers see a change only once it is whole.",
        }.get(run.status, "Nothing: readers still see what they saw before.")
        return Changes(said=said, version=None, version_id="", rows=(), more=0)
    before = visit.reader.promotion(run.dataset_id, made.sequence - 1)
    old = visit.reader.manifest(before.version_id) if before else None
    found, figures = diff(old, manifest), tally(old, manifest)
    said = (
        f"{counted(figures.added, 'file')} added, {figures.changed} changed, {figures.removed} removed, "
        f"{figures.unchanged} unchanged"
    )
    since = f", against version {before.sequence}" if before else ": the first version"
    return Changes(
        said=f"{said}{since}.",
        version=made.sequence,
        version_id=made.version_id,
        rows=tuple(map(_row, found[:SHOWN_MAX])),
        more=max(len(found) - SHOWN_MAX, 0),
    )


def _row(change: Change) -> ChangeRow:
    hashes = [each[:12] if each else "" for each in (change.sha256_before, change.sha256_after)]
    return ChangeRow(
        word=words.word(change.kind),
        what="file" if change.what == "asset" else change.what,
        name=change.name,
        before=change.before or hashes[0],
        after=change.after or hashes[1],
        size_before=change.size_before,
        size_after=change.size_after,
    )


def _lineage(visit: Visit, run: Run, manifest: Manifest | None) -> Lineage:
    fingerprint = seen(visit.reader, run)
    found = visit.reader.inputs(fingerprint) if fingerprint else None
    outputs = [
        Thing(name=asset.path, address="", size=asset.size, mark=asset.sha256[:12])
        for item in (manifest.items if manifest else ())
        if item.source_id == run.source_id
        and (item.window_start_ms, item.window_end_ms) == (run.window_start_ms, run.window_end_ms)
        for asset in item.assets
    ]
    return Lineage(
        inputs=tuple(map(_input, (found or ())[:SHOWN_MAX])),
        inputs_count=len(found) if found is not None else None,
        outputs=tuple(outputs[:SHOWN_MAX]),
        outputs_count=len(outputs),
    )


def _input(found: Found) -> Thing:
    from kfm.core.redact import redact_url

    mark = found.checksum or found.etag or found.version or ""
    return Thing(name=found.path, address=redact_url(found.uri), size=found.size, mark=mark.strip('"')[:24])
