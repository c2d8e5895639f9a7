"""Preparation of a version: discover, fetch, transform, validate. The same for a run and a dry-run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET
from msgspec.structs import replace

from kfm.calls.guard import retry_text
from kfm.model.arrival import asked_until_ms, not_yet_answer
from kfm.model.derived import InputPin, missing_of
from kfm.model.errors import KfmError, PathConflict, StoreCorrupt
from kfm.model.input_hash import fingerprint as fingerprint_of
from kfm.model.item_ids import item_id
from kfm.model.records import (
    Asset,
    Fetched,
    Found,
    Item,
    Promotion,
    PublishedRun,
    Record,
    ValidationReport,
)
from kfm.model.records import Check as CheckResult
from kfm.model.run_state import MAIN, Fence
from kfm.model.runs import Code, DataColumn
from kfm.model.settings import NotYet
from kfm.model.versions import Version
from kfm.model.windows import SNAPSHOT
from kfm.pipelines.declaration import Pipeline
from kfm.ports import Objects, Retrying
from kfm.ports import Source as Upstream
from kfm.publish.contract import Contract, bbox_of, check_rows_min, load_contract, validate
from kfm.publish.manifest import merge_items
from kfm.publish.publisher import Publisher, Staged
from kfm.runs.artifacts import RunLog
from kfm.runs.fetch import fetch_all
from kfm.runs.kernel import Kernel
from kfm.runs.nodes import TRANSFORM, Nodes
from kfm.runs.subjects import RunSubject
from kfm.runs.transform import Context, Input, conduct, own_branch, publish_as_fetched, run_pipeline
from kfm.sources.dataset import DatasetSource
from kfm.sources.source_kinds import answers_empty

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

Check = Callable[[], None]
Head = tuple[Promotion, Version] | None


class Discovered(Record, frozen=True):
    found: tuple[Found, ...]
    fingerprint: str
    pins: tuple[InputPin, ...] = ()  # of a derived dataset: the versions that it is made of
    answers_empty: bool = False  # upstream itself says so where there is nothing


class PreparedVersion(Record, frozen=True):
    """What a run would promote, and what its contract says of it."""

    fingerprint: str
    item: Item | None  # None: upstream has nothing for this window
    report: ValidationReport | None  # None: no contract was declared
    staged: Staged
    branch: str | None = None  # where the nodes of its pipeline worked
    pins: tuple[InputPin, ...] = ()
    arrived_ms: int = 0  # when what it is made from was seen first
    found: Literal["data", "empty", "absent"] = "data"  # at upstream


def discover(upstream: Upstream, subject: RunSubject) -> Discovered:
    found = tuple(upstream.discover(subject.window))
    by_path: dict[str, str] = {}
    for each in found:
        if by_path.setdefault(each.path, each.uri) != each.uri:
            raise PathConflict(f"{each.path} would hold {by_path[each.path]} and {each.uri}.")
    return Discovered(
        found=found,
        fingerprint=fingerprint_of(found),
        pins=upstream.pins if isinstance(upstream, DatasetSource) else (),
        answers_empty=answers_empty(upstream),
    )


def not_yet_of(error: KfmError, subject: RunSubject) -> NotYet | None:
    """The rule of the source that an error of its discovery falls under."""
    status = error.facts.get("status")
    known = status if isinstance(status, int) else None
    return not_yet_answer(subject.source.not_yet, status=known, found=None, is_unchanged=False)


def not_yet_in(discovered: Discovered, subject: RunSubject, ledger: LedgerReader) -> NotYet | None:
    """The rule of the source that what was discovered falls under."""
    is_unchanged = "unchanged" in subject.source.not_yet and bool(discovered.found)
    if is_unchanged:
        newest = ledger.newest_fingerprint(subject.source.id, subject.window, without=fingerprint_of(()))
        is_unchanged = newest == discovered.fingerprint
    return not_yet_answer(
        subject.source.not_yet, status=None, found=discovered.found, is_unchanged=is_unchanged
    )


def asked_until(kernel: Kernel, subject: RunSubject) -> int:
    """Until when the window is asked for while its data has not come."""
    ages = [rule.age_ms_max for contract, _ in _contracts(kernel, subject) for rule in contract.freshness]
    return asked_until_ms(subject.source, subject.window, min(ages, default=None))


def prepare(
    kernel: Kernel,
    subject: RunSubject,
    upstream: Upstream,
    discovered: Discovered,
    objects: Objects,
    publisher: Publisher,
    log: RunLog,
    check: Check,
    nodes: Nodes,
    *,
    run_id: str,
    arrived_ms: int,
    fence: Fence | None = None,
) -> PreparedVersion:
    """`arrived_ms`: what a snapshot is dated by, where its inputs have no times of their own."""
    fetched = _fetch(kernel, upstream, discovered.found, objects, log, check, nodes)
    seen = tuple(replace(each.found, checksum=f"sha256:{each.sha256}", size=each.size) for each in fetched)
    nodes.learn(inputs=seen, pins=discovered.pins)

    nodes.begin(TRANSFORM, discovered.fingerprint)
    nodes.learn(inputs=seen, pins=discovered.pins)
    # A derived dataset is made of all its inputs, or not at all.
    pipeline = subject.source.pipeline if not missing_of(discovered.pins) else None
    function = kernel.load_pipeline(pipeline) if pipeline else publish_as_fetched
    log.step("pipeline", pipeline or "publish as fetched")
    context = Context(
        [Input(each, objects) for each in fetched],
        subject.window,
        publisher,
        lambda message: log.step("pipeline", message),
        dataset_id=subject.dataset.id,
        source_id=subject.source.id,
        partition=subject.work.partition,
        dry_run=publisher.dry_run,
        check=check,
    )

    def log_try(sentence: str, error_class: str) -> None:
        log.step("pipeline", sentence, level="warning", error_class=error_class)

    try:
        with nodes.own_calls(log_try) if pipeline else nullcontext():
            if isinstance(function, Pipeline):
                conduct(
                    kernel.pipeline_kernel(objects, dry_run=fence is None),
                    function,
                    context,
                    publisher,
                    run_id=run_id,
                    fence=fence,
                )
            else:
                run_pipeline(function, context)
    except Exception:
        check()  # after a stop that is what ended it, whatever the function raised
        raise
    check()
    staged = publisher.staged()
    nodes.learn(outputs=staged.assets)
    nodes.begin("validate", discovered.fingerprint)
    report = _validate(kernel, subject, staged.assets, objects, log, nodes)
    check()
    state = _run_state(subject, run_id, discovered.fingerprint, report)
    return PreparedVersion(
        fingerprint=discovered.fingerprint,
        item=_item(subject, staged.assets, objects, state, _as_of(seen, arrived_ms))
        if staged.assets
        else None,
        report=report,
        staged=staged,
        pins=discovered.pins,
        arrived_ms=arrived_ms,
        branch=own_branch(run_id) if isinstance(function, Pipeline) else None,
        found=_found(discovered, fetched, staged),
    )


def _found(
    discovered: Discovered, fetched: Sequence[Fetched], staged: Staged
) -> Literal["data", "empty", "absent"]:
    """Whether there is data for the window. Nothing found is an absence, unless upstream answers for each
    window: then it has said that there is nothing, as it does with a body of no bytes."""
    if any(asset.size for asset in staged.assets):
        return "data"
    if discovered.answers_empty and not any(each.size for each in fetched):
        return "empty"
    if staged.assets:
        return "data"
    return "empty" if discovered.found else "absent"  # of what was found the pipeline made nothing


def _fetch(
    kernel: Kernel,
    upstream: Upstream,
    found: tuple[Found, ...],
    objects: Objects,
    log: RunLog,
    check: Check,
    nodes: Nodes,
) -> list[Fetched]:
    log.step("fetch", f"{len(found)} objects", objects=len(found))
    kernel.progress.phase("fetch", sum(each.size or 0 for each in found) or None)

    def progressed(amount: int, note: str = "") -> None:
        kernel.progress.advance(amount, note)

    def log_retry(retrying: Retrying) -> None:
        log.step("fetch", retry_text(retrying), level="warning", error_class=retrying.error_class)

    fetched = fetch_all(
        upstream,
        found,
        objects,
        clock=kernel.clock,
        guard=partial(nodes.guard, on_retry=log_retry),
        limits=kernel.settings.limits,
        on_progress=progressed,
        check=check,
    )
    kernel.progress.done()
    fetched_bytes = sum(each.size for each in fetched)
    log.run_event("run.metrics", objects=len(fetched), bytes=fetched_bytes, phase="fetch")
    nodes.fetched(len(fetched), fetched_bytes)
    return fetched


def _run_state(
    subject: RunSubject, run_id: str, fingerprint: str, report: ValidationReport | None
) -> PublishedRun:
    """What an item says of the run that made it. All of it follows from the work, so that bytes repeat."""
    return PublishedRun(
        dataset_id=subject.dataset.id,
        run_id=run_id,
        lakefs_branch=MAIN,
        inputs_hash=fingerprint,
        validation_summary=(report or ValidationReport(checks=())).summary(),
        outcome="success",
        code_sha=subject.work.output_version,
    )


def _as_of(seen: Sequence[Found], arrived_ms: int) -> tuple[int, int]:
    """The oldest and the newest time of the inputs; where one has none, when they arrived."""
    times = [one.modified_ms for one in seen if one.modified_ms is not None]
    return (min(times), max(times)) if times and len(times) == len(seen) else (arrived_ms, arrived_ms)


def _item(
    subject: RunSubject,
    assets: tuple[Asset, ...],
    objects: Objects,
    run_state: PublishedRun,
    as_of: tuple[int, int],
) -> Item:
    return Item(
        id=item_id(subject.source.id, subject.window, subject.work.partition),
        source_id=subject.source.id,
        window_start_ms=subject.window.start_ms,
        window_end_ms=subject.window.end_ms,
        partition=subject.work.partition,
        assets=assets,
        bbox=bbox_of(assets, objects.open),
        run_state=run_state,
        as_of=as_of if subject.window == SNAPSHOT else UNSET,
    )


def _validate(
    kernel: Kernel, subject: RunSubject, assets: Sequence[Asset], objects: Objects, log: RunLog, nodes: Nodes
) -> ValidationReport | None:
    contracts = _contracts(kernel, subject)
    nodes.learn(outputs=tuple(assets), columns=_columns(contracts))
    rows_min = subject.source.expect.rows_min if subject.source.expect is not None else None
    if not contracts and rows_min is None:
        log.step("validate", "no contract is declared", level="warning")
        return None
    if not assets:
        return None
    rights = subject.dataset.rights
    public = rights is not None and rights.care.level == "public"
    checks: list[CheckResult] = []
    for contract, prefix in contracts:
        mine = [asset for asset in assets if asset.path.startswith(prefix)]
        report = validate(
            contract,
            mine,
            objects.open,
            now_ms=kernel.ledger.now_ms(),
            window=None if subject.window == SNAPSHOT else subject.window,
            show_values=public,
        )
        checks += report.checks
    if rows_min is not None:
        checks.append(check_rows_min(rows_min, contracts, assets, objects.open))
    whole = ValidationReport(checks=tuple(checks))
    nodes.validated(whole)
    for failed in (check for check in checks if not check.passed):
        log.step("validate", f"{failed.name}: {failed.detail}", level="error", path=failed.path)
    log.step("validate", "contract kept" if whole.passed else "contract broken", summary=whole.summary())
    return whole


def code_of(subject: RunSubject) -> Code | None:
    """Where the pipeline's own code is."""
    pipeline = subject.source.pipeline
    return Code(path=pipeline, sha=subject.work.output_version) if pipeline else None


def _columns(contracts: Sequence[tuple[Contract, str]]) -> tuple[DataColumn, ...]:
    """What the contracts say that the data holds."""
    return tuple(
        DataColumn(name=column.name, type=column.logical_type or "string")
        for contract, _prefix in contracts
        for table in contract.objects
        for column in table.properties
    )


def _contracts(kernel: Kernel, subject: RunSubject) -> list[tuple[Contract, str]]:
    """Each contract with the prefix of the paths that it speaks for."""
    source = subject.source
    named = [(source.contract, "")] if source.contract else []
    for member in source.members:
        contract = kernel.settings.source(member).contract
        if contract:
            named.append((contract, f"{member}/"))
    return [(load_contract(kernel.read_project(path), path), prefix) for path, prefix in named]


def require_objects(version: Version, head: Head, objects: Objects) -> None:
    """Nothing is promoted that can't be shown: every object that the head does not have must be at hand.
    Those of the head were looked at when it was promoted."""
    for _, item in version.changed_items(head[1] if head is not None else None):
        for asset in item.assets if item is not None else ():
            size = objects.size_of(asset.sha256)
            if size != asset.size:
                problem = "is not in the object store" if size is None else "holds other bytes"
                raise StoreCorrupt(
                    f"Object sha256:{asset.sha256} of {asset.path} {problem}.",
                    remedy="Bring the objects folder back, or run the work that made it again with --force. "
                    "Machines that share a ledger must share their objects, too.",
                )


def merged(
    prepared: Iterable[PreparedVersion], head: Head, subject: RunSubject, *, rewindowed: bool = False
) -> tuple[Version | None, str]:
    """The version to promote over this head (None: the head already shows it) and its id. `rewindowed`:
    it takes the place of windows of other lengths."""
    items = [one.item for one in prepared if one.item is not None]
    if not items:
        # Upstream has nothing for these windows. What was published stays published.
        return None, head[0].version_id if head else ""
    version = with_items(items, head, subject, rewindowed=rewindowed)
    if head is not None and version.is_same(head[1]):
        return None, head[0].version_id
    return version, version.version_id


def with_items(items: Sequence[Item], head: Head, subject: RunSubject, *, rewindowed: bool) -> Version:
    """The head with items of this source in their slots."""
    source = subject.source
    same = dict.fromkeys(source.names, source.id)
    old = head[1] if head else None
    return merge_items(old, subject.dataset, items, source.mode, same, rewindowed=rewindowed)
