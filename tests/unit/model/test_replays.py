"""What a replay means, decided without a ledger."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.model.errors import UsageError
from kfm.model.gates import replay_gate, switch_command, switch_gate
from kfm.model.records import Switch
from kfm.model.replays import (
    BEYOND,
    MODES,
    Chosen,
    ReplayPlan,
    Selection,
    check_plan,
    check_reason,
    make_plan,
)
from kfm.model.settings import IngestPolicy

STATUSES = ("pending", "in_progress", "succeeded", "failed", "quarantined")
CODES = ("HTTP_503", "GZIP_BOMB", "REPLAY_MISMATCH", None)

chosen = st.builds(
    Chosen,
    wal_id=st.uuids().map(str),
    version=st.integers(1, 9),
    dataset=st.sampled_from(["hrrr", "gfs"]),
    status=st.sampled_from(STATUSES),
    error_code=st.sampled_from(CODES),
    attempts=st.integers(0, 50),
    grants=st.integers(1, 7),
    object_uri=st.just("s3://bucket/key"),
)
policies = st.sampled_from([(), ("GZIP_BOMB",), ("*",)]).map(
    lambda codes: IngestPolicy(replay_quarantined=codes)
)


def made(
    units: list[Chosen], mode: Any = "failed-only", limit: int | None = None, **policy: Any
) -> ReplayPlan:
    return make_plan(
        Selection(datasets=("hrrr",)),
        units,
        mode=mode,
        reason="test",
        policy_of=lambda _dataset: IngestPolicy(**policy),
        now_ms=0,
        limit=limit,
    )


@pytest.mark.req("WAL-13", "WAL-14", "WAL-18")
@given(
    units=st.lists(chosen, max_size=30, unique_by=lambda one: one.wal_id),
    mode=st.sampled_from(MODES),
    hrrr=policies,
    gfs=policies,
    limit=st.none() | st.integers(1, 10),
)
def test_what_comes_back_is_what_the_rules_say(
    units: list[Chosen], mode: Any, hrrr: IngestPolicy, gfs: IngestPolicy, limit: int | None
) -> None:
    """Exactly the eligible ones; every other is counted with a reason; counts add up; order is no matter."""
    by_dataset = {"hrrr": hrrr, "gfs": gfs}

    def plan(given: list[Chosen]) -> ReplayPlan:
        return make_plan(
            Selection(),
            given,
            mode=mode,
            reason="test",
            policy_of=by_dataset.__getitem__,
            now_ms=0,
            limit=limit,
        )

    wanted = set()
    for one in units:
        codes = by_dataset[one.dataset].replay_quarantined
        ended_for_good = one.grants >= 5
        allowed = {
            "failed": True,
            "quarantined": mode != "failed-only" and (codes == ("*",) or one.error_code in codes),
            "succeeded": mode == "repair-and-replace",
        }.get(one.status, False)
        if allowed and not ended_for_good:
            wanted.add(one.wal_id)
    found = plan(units)
    ids = [one.wal_id for one in found.units]
    assert ids == sorted(wanted)[: limit or len(wanted)]
    assert len(ids) + sum(found.left_out.values()) == len(units)
    assert found.left_out.get(BEYOND, 0) == len(wanted) - len(ids)
    for counts in (found.by_dataset, found.by_error_code, found.by_status):
        assert sum(counts.values()) == len(ids)
    replaces = mode == "repair-and-replace" and bool(ids)
    assert found.needs_approval == (replaces or any(one.status != "failed" for one in found.units))
    assert plan(units[::-1]).digest == found.digest
    check_plan(found)


@pytest.mark.req("WAL-13", "WAL-18")
@given(units=st.lists(chosen, min_size=1, max_size=5, unique_by=lambda one: one.wal_id), data=st.data())
def test_a_digest_holds_all_that_counts(units: list[Chosen], data: st.DataObject) -> None:
    """Another unit, version, state, mode or reason is another plan."""
    failed = [replace(one, status="failed", grants=1) for one in units]
    plan = made(failed, "repair-and-replace")
    one = data.draw(st.sampled_from(plan.units))
    changed = data.draw(
        st.sampled_from(
            [
                replace(
                    plan,
                    units=tuple(replace(u, version=u.version + 1) if u is one else u for u in plan.units),
                ),
                replace(
                    plan, units=tuple(replace(u, status="succeeded") if u is one else u for u in plan.units)
                ),
                replace(plan, units=tuple(u for u in plan.units if u is not one)),
                replace(plan, units=(*plan.units, one)),
                replace(plan, mode="backfill"),
                replace(plan, reason="incident"),
            ]
        )
    )
    with pytest.raises(UsageError, match="not as it was made"):
        check_plan(changed)


@pytest.mark.req("WAL-13")
def test_scope_is_what_narrows_by_itself() -> None:
    """A state, an end or a number of attempts alone still means everything that ever failed."""
    assert not Selection().has_scope
    assert not Selection(statuses=("failed",), attempts_max=3).has_scope
    assert not Selection(event_time_end_ms=1, created_before_ms=1).has_scope
    for said in (
        Selection(datasets=("hrrr",)),
        Selection(error_codes=("X",)),
        Selection(wal_ids=("a",)),
        Selection(event_time_start_ms=0),
        Selection(created_after_ms=0),
    ):
        assert said.has_scope


@pytest.mark.req("WAL-13")
def test_reasons_are_governed() -> None:
    """Those of the specification, and codes that the configuration names."""
    for reason in ("none", "dlq-drain", "incident", "backfill", "test"):
        check_reason(reason)
    check_reason("storm-2026", ("storm-2026",))
    with pytest.raises(UsageError, match="storm-2027"):
        check_reason("storm-2027", ("storm-2026",))


@pytest.mark.req("GOV-1", "WAL-14")
@pytest.mark.parametrize("position", ["paused", "stopped"])
@pytest.mark.parametrize(
    ("scope", "work", "replays"),
    [
        ("all", False, False),
        ("domain:weather", False, False),
        ("dataset:hrrr", False, False),
        ("dataset:gfs", True, True),
        ("replays:all", True, False),
        ("replays:hrrr", True, False),
        ("replays:gfs", True, True),
    ],
)
def test_switches_of_replays_stop_nothing_else(scope: str, work: bool, replays: bool, position: Any) -> None:
    """And whatever stops work stops replays; the reason has the command that lifts it."""
    thrown = [Switch(scope=scope, position=position, rationale="x", actor="ana", set_at_ms=1)]
    assert switch_gate(thrown, "hrrr", "weather", in_flight=False).allowed is work
    gate = replay_gate(thrown, "hrrr", "weather")
    assert gate.allowed is replays
    if not replays:
        assert f"`{switch_command(scope)}`" in gate.reason


@pytest.mark.req("WAL-14")
def test_grants_are_those_of_the_dataset() -> None:
    """What one dataset's policy grants does not help the units of another."""
    tired = Chosen(
        wal_id="a",
        version=1,
        dataset="hrrr",
        status="failed",
        error_code="HTTP_503",
        attempts=40,
        grants=5,
        object_uri="s3://b/k",
    )
    plan = make_plan(
        Selection(datasets=("hrrr", "gfs")),
        [tired, replace(tired, wal_id="b", dataset="gfs")],
        mode="failed-only",
        reason="test",
        policy_of=lambda _dataset: IngestPolicy(),
        now_ms=0,
        grants_of={"hrrr": 6, "gfs": 5}.__getitem__,
    )
    assert [unit.dataset for unit in plan.units] == ["hrrr"]
    assert plan.left_out == {"its grants are used up: 5 (`retry.grants` of its policy)": 1}
