"""What was stored is what is read, value by value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.model.records import Asset, GateResult, GovernanceEntry, Invocation, Item, Manifest, Run, Switch
from kfm.model.settings import Care, Rights, Sovereignty
from kfm.model.versions import version_of
from tests.conformance.db.ledgers import Desk, digest, entry

pytestmark = pytest.mark.req("UPD-4")

quick = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
# PostgreSQL knows no NUL in text; JSON documents escape it.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
numbers = st.integers(-(2**53) + 1, 2**53 - 1)
maybe_text, maybe_number = st.none() | texts, st.none() | numbers
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
documents = st.recursive(
    st.none() | st.booleans() | numbers | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)
triggers = st.sampled_from(["cron", "webhook", "upstream-event", "manual", "retry"])

runs = st.builds(
    Run,
    run_id=st.just(""), source_id=texts, dataset_id=texts, pipeline_id=texts,
    idempotency_key=texts, work_key=texts, work_base=texts,
    revision=numbers, trigger_type=triggers, window_spec=texts, window_start_ms=numbers,
    window_end_ms=numbers, partition=maybe_text, pipeline_version=texts, status=st.just("running"),
    attempts=st.integers(1, 2**53 - 1), fence=st.just(0), start_time_ms=numbers, end_time_ms=maybe_number,
    fingerprint=maybe_text, version_id=maybe_text, error_code=maybe_text, error_message=maybe_text,
    force=numbers, correction=maybe_text,
)  # fmt: skip
gates = st.builds(
    GateResult, gate=any_text, allowed=st.booleans(), reason=any_text,
    policy_ids=st.lists(any_text, max_size=2).map(tuple), overridable=st.booleans(),
    overridden=st.booleans(), halts=st.booleans(),
)  # fmt: skip
invocations = st.builds(
    Invocation, invocation_id=st.just(""), run_id=st.just(""), source_id=texts,
    dataset_id=texts, trigger_type=triggers, idempotency_key=texts,
    outcome=st.sampled_from([None, "success", "noop", "failed", "refused", "busy"]), actor=texts,
    requested_at_ms=numbers, claimed_actor=maybe_text, rationale=maybe_text, ticket=maybe_text,
    reason=maybe_text, gates=st.lists(gates, max_size=3).map(tuple),
)  # fmt: skip
entries = st.builds(
    GovernanceEntry, kind=texts, subject=texts, actor=texts, recorded_at_ms=numbers, rationale=maybe_text,
    ticket=maybe_text, details=st.dictionaries(any_text, documents, max_size=3),
)  # fmt: skip
switches = st.builds(
    Switch, scope=texts, position=st.sampled_from(["running", "paused", "stopped"]), rationale=texts,
    actor=texts, set_at_ms=numbers,
)  # fmt: skip
rights = st.builds(
    Rights, license=any_text, care=st.builds(Care, label=any_text),
    sovereignty=st.none() | st.builds(Sovereignty, authority=any_text, consent=st.just("granted")),
)  # fmt: skip
assets = st.builds(Asset, path=any_text, sha256=any_text, size=numbers, media_type=any_text)
degrees = st.integers(-180, 180).map(str)
items = st.builds(
    Item, id=any_text, source_id=any_text, window_start_ms=numbers, window_end_ms=numbers,
    partition=st.none() | any_text, assets=st.lists(assets, max_size=2).map(tuple),
    bbox=st.none() | st.tuples(degrees, degrees, degrees, degrees),
)  # fmt: skip
manifests = st.builds(
    Manifest, dataset_id=st.just("ks-streamflow"), title=any_text, description=any_text, domain=any_text,
    keywords=st.lists(any_text, max_size=2).map(tuple), rights=rights,
    items=st.lists(items, max_size=2, unique_by=lambda item: item.id).map(
        lambda some: tuple(sorted(some, key=lambda item: item.id))
    ),
)  # fmt: skip


@quick
@given(run=runs)
def test_runs(desk: Desk, run: Run) -> None:
    """A run."""
    own = f" {desk.calls}"
    keys = {name: getattr(run, name) + own for name in ("idempotency_key", "work_key", "work_base")}
    run = replace(run, run_id=f"00000000-0000-8000-8000-{desk.calls:012x}", **keys)
    admitted = desk.admit(run, scope=f"dataset:{run.run_id}").run
    assert admitted == replace(run, fence=1)
    assert desk.store.run(run.run_id) == desk.store.run_by_key(run.idempotency_key) == admitted
    assert desk.store.latest_run(run.work_base) == admitted


@quick
@given(call=invocations)
def test_invocations(desk: Desk, call: Invocation) -> None:
    """A call, with what the gates said."""
    desk.calls += 1
    call = replace(call, invocation_id=f"call {desk.calls}", run_id=f"run {desk.calls}")
    desk.store.record_invocation(call)
    assert desk.store.invocations(run_id=call.run_id) == [call]


@quick
@given(made=entries)
def test_governance(desk: Desk, made: GovernanceEntry) -> None:
    """An entry of the audit log."""
    desk.store.append_governance([made])
    assert desk.store.governance(limit=1) == [made]


@quick
@given(made=switches)
def test_switches(desk: Desk, made: Switch) -> None:
    """A switch."""
    desk.store.set_switch(made, entry("switch"))
    assert made in desk.store.switches()


def _apart(number: int, item: Item) -> Item:
    """Two files of a version have two paths, and none is a folder of the other."""
    return replace(
        item,
        assets=tuple(
            replace(asset, path=f"{number}-{each}-{asset.path}".replace("/", ""))
            for each, asset in enumerate(item.assets)
        ),
    )


@quick
@given(
    shown=manifests,
    states=st.dictionaries(texts, documents, max_size=3),
    events=st.lists(st.tuples(texts, st.dictionaries(any_text, documents, max_size=2)), max_size=3),
)
def test_versions_states_and_events(
    desk: Desk, shown: Manifest, states: dict[str, Any], events: list[tuple[str, dict[str, Any]]]
) -> None:
    """A version and what was published beside it."""
    shown = replace(shown, items=tuple(_apart(number, item) for number, item in enumerate(shown.items)))
    run = desk.admitted(f"run {desk.calls}")
    version = digest(f"version {desk.calls}")
    answer = desk.promote(
        run, version=version_of(shown), version_id=version, states=tuple(states.items()), events=tuple(events)
    )
    assert answer.answer == "promoted"
    head = desk.store.head("ks-streamflow")
    assert head is not None
    found = desk.store.version(version)
    assert found is not None
    assert head[1].manifest() == shown == found.manifest()
    assert states.items() <= desk.store.states("ks-streamflow").items()
    assert desk.store.events(run.run_id) == events
