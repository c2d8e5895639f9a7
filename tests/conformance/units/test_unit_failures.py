"""Failures: tried again within a grant, then given up with all that a replay needs; poison is found alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfm.model.records import GovernanceEntry, Justification
from kfm.model.retry import Classification, retry_rules
from kfm.model.retry_budgets import fate_of
from kfm.model.units import ClaimedUnit, UnitFailure
from tests.conformance.units.scene import Scene, done, id_of, taken, undone

ATTEMPTS_MAX = 8
GRANTS_MAX = 5


def by_rule(
    scene: Scene, claimed: ClaimedUnit, *, retryable: bool = True, charged: bool = True
) -> UnitFailure:
    """A failure, and what the rules make of it."""
    outlook = fate_of(
        Classification(retryable=retryable, error_class="http"),
        grants=claimed.grants,
        grant_attempts=claimed.grant_attempts,
        granted_at_ms=claimed.granted_at_ms,
        now_ms=claimed.granted_at_ms,
        unit_random=0.5,
        charged=charged,
    )
    return undone(
        claimed,
        outlook.fate,
        reason=outlook.reason,
        not_before_ms=1 if outlook.fate == "retry" else None,
        charged=charged,
    )


@pytest.mark.req("WAL-4", "WAL-3")
def test_a_quarantine_fails_first(scene: Scene) -> None:
    """Both steps are in the history, each with its version, in one transaction."""
    scene.failed("a", "quarantine", error_code="GZIP_BOMB")
    unit = scene.stored("a").unit
    assert (unit.status, unit.last_error_code, unit.version) == ("quarantined", "GZIP_BOMB", 4)
    moves = scene.history("a")
    assert [(move.event, move.version) for move in moves] == [
        ("created", 1),
        ("claimed", 2),
        ("failed", 3),
        ("quarantined", 4),
    ]
    assert moves[2].at_ms == moves[3].at_ms
    assert moves[2].details["error_code"] == "GZIP_BOMB"
    assert moves[2].worker_id == "w1"
    scene.check()


@pytest.mark.req("WAL-6", "WAL-3")
def test_attempts_count_what_was_opened(scene: Scene) -> None:
    """0 at creation, 1 at the first claim; a retry counts when it sets pending, the claim not again."""
    scene.take(taken("a"))
    assert scene.stored("a").unit.attempts == 0
    for attempt in (1, 2, 3):
        claimed = scene.claimed("a")
        assert (claimed.attempts, claimed.grant_attempts) == (attempt, attempt)
        scene.end(undone(claimed))
        assert scene.stored("a").unit.attempts == attempt + 1
    assert [move.attempts for move in scene.history("a")] == [0, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    assert scene.count("pending") == 1
    scene.check()


@pytest.mark.req("WAL-14")
def test_what_a_breaker_refused_spends_nothing(scene: Scene) -> None:
    """Neither an attempt nor one of the grant's, and no lineage, since nothing was tried."""
    for _ in range(3):
        claimed = scene.claimed("a")
        assert (claimed.attempts, claimed.grant_attempts) == (1, 1)
        scene.end(undone(claimed, charged=False, error_code="KFM403"))
    assert (scene.stored("a").unit.attempts, scene.stored("a").grant_attempts) == (1, 0)
    assert scene.messages() == 0
    scene.check()


@pytest.mark.req("WAL-14", "RET-2")
def test_a_grant_that_is_spent_leaves_a_dead_letter(scene: Scene) -> None:
    """Eight attempts, then it stays failed, is held for a drain, opens an incident, is not claimed again."""
    assert retry_rules().matrix["upstream-event"].attempts_max == ATTEMPTS_MAX
    for _ in range(ATTEMPTS_MAX):
        claimed = scene.claimed("a")
        scene.end(by_rule(scene, claimed))
    unit = scene.stored("a").unit
    assert (unit.status, unit.attempts) == ("failed", ATTEMPTS_MAX)
    scene.due()
    assert scene.claim() == []
    (held,) = scene.store.held()
    assert (held.kind, held.grain, held.subject) == ("dead-letter", "unit", id_of("a"))
    assert (held.state, held.attempts, held.reason) == ("held", ATTEMPTS_MAX, "attempts-spent")
    assert (held.source_ids, held.payload_hash) == ((unit.object_uri,), "e1")
    (incident,) = scene.store.incidents()
    assert (incident.state, incident.kind, incident.name) == ("open", "dead-letter", "hrrr")
    assert _entries(scene, "quarantine") == [], "only a quarantine is an entry of its own"
    assert scene.count("attempts:8") == 1
    scene.check()


@pytest.mark.req("WAL-14")
def test_the_last_grant_ends_in_quarantine(scene: Scene) -> None:
    """Four grants that are spent wait for a drain; the fifth does not."""
    assert retry_rules().grants_max == GRANTS_MAX
    scene.take(taken("a"))
    for grant in range(1, GRANTS_MAX + 1):
        for _ in range(ATTEMPTS_MAX):
            claimed = scene.claimed("a")
            assert claimed.grants == grant
            scene.end(by_rule(scene, claimed))
        assert scene.status("a") == ("failed" if grant < GRANTS_MAX else "quarantined")
        if grant < GRANTS_MAX:  # as an approved replay does it
            scene.sql(
                f"UPDATE units SET status = 'pending', not_before_ms = 1, grants = {grant + 1}, "
                "grant_attempts = 0, version = version + 1, attempts = attempts + 1"
            )
    (held,) = scene.store.held()
    assert (held.kind, held.reason, held.attempts) == ("quarantine", "grants-spent", 40)


@pytest.mark.req("RET-2")
def test_a_quarantine_is_held_and_entered(scene: Scene) -> None:
    """What trying again can't cure halts at once: a row, an incident, and an entry in the chain."""
    claimed = scene.claimed("a")
    scene.end(by_rule(scene, claimed, retryable=False))
    assert scene.status("a") == "quarantined"
    (held,) = scene.store.held()
    assert (held.kind, held.error_code) == ("quarantine", "HTTP_503")
    (entered,) = _entries(scene, "quarantine")
    assert (entered.subject, entered.details["held_id"]) == (id_of("a"), held.held_id)
    assert entered.details["dataset_id"] == "hrrr"
    (incident,) = scene.store.incidents()
    assert (incident.kind, incident.affected) == ("quarantine", 1)
    scene.check()


def _entries(scene: Scene, kind: str) -> list[GovernanceEntry]:
    return [one for one in scene.store.governance() if one.kind == kind]


@pytest.mark.req("RET-2")
def test_an_incident_ends_with_the_last_unit_that_suffered(scene: Scene) -> None:
    """New bytes settle what was held of a unit; when none is held for it any more, the cause is over."""
    scene.failed("a", "quarantine")
    scene.failed("b", "quarantine")
    (incident,) = scene.store.incidents()
    assert (incident.state, incident.affected) == ("open", 2)
    for name, state in (("a", "open"), ("b", "resolved")):
        scene.take(taken(name, "e2", "02"))
        scene.succeeded(name)
        assert scene.store.incidents()[0].state == state
    assert [held.state for held in scene.store.held()] == ["resolved", "resolved"]
    scene.check()


def test_messages_that_no_column_takes(scene: Scene) -> None:
    """A failure never fails to be recorded because of what it says."""
    claimed = scene.claimed("a")
    scene.end(undone(claimed, "quarantine", error_message="nul \0 half \ud800"))
    assert scene.stored("a").unit.last_error_message == "nul \N{SYMBOL FOR NULL} half ?"
    assert scene.messages() == 1
    scene.check()


# --- poison --------------------------------------------------------------------------


@pytest.mark.req("WAL-14")
def test_one_poison_unit_among_a_hundred_is_found_alone(scene: Scene) -> None:
    """Each worker that takes it dies. Its batch lapses uncharged, each comes back by itself, and only the one
    that lapses alone is charged until its grant is spent."""
    scene.take(*(taken(f"n{number}") for number in range(100)))
    poison = id_of("n42")
    assert len(scene.claim(limit=100)) == 100
    assert scene.lapse() == 100
    charged = {row[0] for row in scene.sql("SELECT grant_attempts FROM units")}
    assert charged == {0}, "a lapse in a batch charges no unit"
    assert scene.claim(limit=100) == [], "none of them is in the common lane"
    deaths = 0
    while batch := scene.claim(limit=100, alone=1):
        assert len(batch) == 1
        if batch[0].wal_id == poison:
            deaths += 1
            assert batch[0].grant_attempts == deaths
            assert scene.lapse() == 1
            scene.due()
        else:
            assert batch[0].grant_attempts == 1
            scene.end(done(batch[0]))
    assert deaths == ATTEMPTS_MAX
    assert (scene.count("succeeded"), scene.count("failed")) == (99, 1)
    assert [held.subject for held in scene.store.held()] == [poison]
    assert (scene.status("n42"), scene.stored("n42").unit.last_error_code) == ("failed", "LEASE_EXPIRED")
    scene.check()


@pytest.mark.req("WAL-14")
def test_new_bytes_of_a_poison_unit_join_the_others_again(scene: Scene) -> None:
    """What may be poison is those bytes, not the key."""
    scene.claimed("a")
    scene.lapse()
    assert scene.stored("a").alone == 1
    scene.take(taken("a", "e2", "02"))
    assert scene.stored("a").alone == 0
    assert len(scene.claim()) == 1


# --- counters ------------------------------------------------------------------------


@pytest.mark.req("WAL-16")
def test_adding_up_changes_no_figure(scene: Scene) -> None:
    """Totals read the same before, between and after; the newest time is kept."""
    scene.succeeded("a")
    scene.failed("b", "quarantine")
    scene.take(taken("a"), taken("c"))
    before = scene.units.totals()
    assert scene.units.fold_counts(limit=2) == 2
    assert scene.units.totals() == before
    while scene.units.fold_counts(limit=2):
        assert scene.units.totals() == before
    assert scene.sql("SELECT COUNT(*) FROM unit_deltas")[0][0] == 0
    scene.succeeded("c")
    assert scene.units.totals()["hrrr", "watermark"][0] == 2
    scene.check()


@pytest.mark.req("WAL-3")
def test_a_history_is_complete_and_in_order(scene: Scene) -> None:
    """Through all that can happen to a unit, each step once."""
    scene.take(taken("a"), taken("b"))
    for one in scene.claim():
        scene.end(undone(one))
    first = {one.wal_id: one for one in scene.claim()}
    scene.lapse()
    assert scene.end(*(done(one) for one in first.values())).succeeded == ()
    scene.take(replace(taken("a", "e2", "02"), reissue="ignore"))
    (again,) = [one for one in (*scene.claim(alone=1), *scene.claim(alone=1)) if one.wal_id == id_of("a")]
    scene.end(done(again))
    scene.take(taken("a", "e3", "03"))
    (third,) = [one for one in scene.claim() if one.wal_id == id_of("a")]
    scene.end(undone(third, "quarantine"))
    assert scene.events("a") == [
        "created", "claimed", "failed", "retry_scheduled", "claimed", "failed", "retry_scheduled", "ignored",
        "claimed", "succeeded", "migrated", "claimed", "failed", "quarantined",
    ]  # fmt: skip
    scene.check()


# --- a person's decision -------------------------------------------------------------


@pytest.mark.req("WAL-3", "WAL-13")
@pytest.mark.parametrize("status", ["pending", "failed"])
def test_a_person_quarantines_what_waits_or_has_failed(scene: Scene, status: str) -> None:
    """No worker claims it any more; it is held once, under a code of its own; the chain has who and why."""
    if status == "pending":
        scene.take(taken("a"))
    else:
        scene.failed("a", "spent")
    before = scene.stored("a").unit
    by = Justification(actor="ann", rationale="The instrument was out of order.")
    made = scene.units.quarantine(before.wal_id, by)
    assert made is not None
    assert (made.unit.status, made.unit.version) == ("quarantined", before.version + 1)
    assert (made.unit.last_error_code, made.unit.last_error_message) == ("BY_HAND", by.rationale)
    assert scene.claim() == []
    (held,) = scene.store.held(subject=before.wal_id, state="held")
    assert (held.kind, held.error_code, held.reason) == ("quarantine", "BY_HAND", "by-hand")
    (entry,) = [one for one in scene.store.governance() if one.kind == "quarantine"]
    assert (entry.actor, entry.rationale) == ("ann", by.rationale)
    assert scene.units.quarantine(before.wal_id, by) is None
    scene.check()


@pytest.mark.req("WAL-3")
@pytest.mark.parametrize("status", ["in_progress", "succeeded"])
def test_nothing_else_is_quarantined_by_hand(scene: Scene, status: str) -> None:
    """What a worker has, and what is done, stays as it is."""
    claimed = scene.claimed("a") if status == "in_progress" else scene.succeeded("a")
    before = scene.everything()
    assert scene.units.quarantine(claimed.wal_id, Justification(actor="ann", rationale="x")) is None
    assert scene.everything() == before
