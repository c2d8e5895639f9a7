"""Explains the state of a unit, from its record and its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm.model.breaker import Breaker
from kfm.model.gates import cause_and_remedy, switch_gate
from kfm.model.next_steps import unit_step
from kfm.model.quantities import counted, duration, moment, stopped
from kfm.model.records import GateResult, Switch, Unit
from kfm.model.requests import UpdateRequest
from kfm.model.retry_budgets import unit_policy
from kfm.model.settings import Settings
from kfm.model.units import StoredUnit, UnitTransition, catalogued, tries
from kfm.reports.blockers import Blocker, lifting, open_circuits, refusing
from kfm.reports.explain.sentences import Explanation, Ref, Sentence
from kfm.reports.state_words import of_request

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

SHOWN_MAX = 20
IMPORTED = "imported"
WORKER = "kfm worker --until-idle"
_ITEMS = {"created": "the item was created", "updated": "the item was updated"}


def explain_unit(
    stored: StoredUnit,
    history: Sequence[UnitTransition],
    switches: Sequence[Switch],
    settings: Settings,
    now_ms: int,
    requests: Sequence[UpdateRequest] = (),
    circuit: Breaker | None = None,
    *,
    is_catalogued: bool = True,
) -> Explanation:
    """The blocker first, with who can lift it and how; then the history of the unit, and what it led to.

    `circuit`: that of its provider, in which its worker waits for a trial. `is_catalogued`: the catalogue has
    the item that the unit names.
    """
    dataset = stored.unit.dataset
    gate = switch_gate(switches, dataset, settings.domain_of(dataset), in_flight=False)
    refused = refusing(settings, [] if circuit is None else [circuit], now_ms)
    blocker = next(open_circuits(settings, refused, now_ms), None)
    reason = _Reason(stored, history, gate, blocker, settings, now_ms, is_catalogued).sentence()
    steps = [_step(move) for move in history]
    if len(steps) > SHOWN_MAX:
        left = len(steps) - SHOWN_MAX
        steps = [
            f"{counted(left, 'earlier step')}: `kfm nodd show {stored.unit.wal_id}`.",
            *steps[-SHOWN_MAX:],
        ]
    gone = len(stored.trail.split()) - len(history)
    if gone > 0:
        was = "has" if gone == 1 else "have"
        steps.insert(0, f"{counted(gone, 'earlier step')} {was} gone by retention; their seals stay.")
    chain = [
        _of(_announced(stored), stored),
        *(_of(text, stored) for text in steps),
        *map(_led_to, requests[:SHOWN_MAX]),
    ]
    return Explanation(kind="unit", id=stored.unit.wal_id, reason=_of(reason, stored), chain=tuple(chain))


def is_catalogued(ledger: LedgerReader, unit: Unit) -> bool:
    """Does the catalogue have the item that a unit names?"""
    names = unit.stac_collection_id, unit.stac_item_id
    return None not in names and ledger.catalogue().item(*map(str, names)) is not None


class _Reason:
    def __init__(
        self,
        stored: StoredUnit,
        history: Sequence[UnitTransition],
        gate: GateResult,
        circuit: Blocker | None,
        settings: Settings,
        now_ms: int,
        is_catalogued: bool,
    ) -> None:
        self._stored = stored
        self._unit = stored.unit
        self._history = history
        self._gate = gate
        self._circuit = circuit
        self._settings = settings
        self._now_ms = now_ms
        self._is_catalogued = is_catalogued

    def sentence(self) -> str:
        name = f"Unit {self._unit.wal_id} of {self._unit.dataset}"
        return f"{name} {getattr(self, '_' + self._unit.status)()}"

    def _pending(self) -> str:
        unit, due_ms = self._unit, self._stored.not_before_ms
        if not self._gate.allowed:
            cause, remedy = cause_and_remedy(self._gate)
            return f"waits: {stopped(cause)} {remedy or 'An operator can lift it.'}"
        if self._circuit is not None:
            return f"waits for {self._circuit.what}: {stopped(self._circuit.why)} {lifting(self._circuit)}"
        if due_ms > self._now_ms:
            after = f" after {unit.last_error_code}" if unit.last_error_code else ""
            return (
                f"waits for attempt {unit.attempts}{after}, which is due at {moment(due_ms)}; "
                f"it needs only a running worker: `{WORKER}`."
            )
        since = moment(max(due_ms, unit.updated_at_ms))
        return f"waits for a worker since {since}; anyone who may operate starts one with `{WORKER}`."

    def _in_progress(self) -> str:
        unit, left_ms = self._unit, self._stored.lease_until_ms - self._now_ms
        at = f"is running in {unit.worker_id}, attempt {unit.attempts}"
        if left_ms > 0:
            return f"{at}; its lease ends in {duration(left_ms)}."
        return f"{at}, but its lease has lapsed: the next worker takes it over, `{WORKER}`."

    def _failed(self) -> str:
        return f"failed after {self._tried()}: {self._trouble()} {self._way_out()}"

    def _quarantined(self) -> str:
        return f"is quarantined after {self._tried()}: {self._trouble()} {self._way_out()}"

    def _succeeded(self) -> str:
        unit = self._unit
        events = {move.event for move in self._history}
        if not self._is_catalogued and (
            unit.stac_item_id is not None or events.isdisjoint({"succeeded", "removed"})
        ):
            where = " in the ledger that it was taken over from" if "succeeded" not in events else ""
            return (
                f"succeeded{where}, but the catalogue here has no item of it. "
                f"Next: {unit_step(unit.wal_id, unit.status).line} Another person has to approve it."
            )
        if unit.stac_item_id is None:
            return f"is done since {moment(unit.updated_at_ms)}: its object is gone, and so is its item."
        gone = " Its object has been removed upstream since." if self._stored.removed else ""
        item = f"item {unit.stac_item_id} of collection {unit.stac_collection_id}"
        return f"is in the catalogue as {item} since {moment(unit.updated_at_ms)}.{gone}"

    def _tried(self) -> str:
        """Attempts are numbered on; those before an import are known by its number alone."""
        elsewhere = [
            move.attempts for move in self._history if move.event == IMPORTED and move.status != "pending"
        ]
        return counted(max([one.attempt for one in tries(self._history)] + elsewhere, default=0), "attempt")

    def _trouble(self) -> str:
        unit = self._unit
        return stopped(f"{unit.last_error_code}: {unit.last_error_message or 'no message was kept'}")

    def _way_out(self) -> str:
        unit = self._unit
        left = self._stored.grants < unit_policy(self._settings, unit.dataset).grants_max
        step = f"Next: {unit_step(unit.wal_id, unit.status, grants_left=left).line}"
        if unit.status != "quarantined":
            return step
        named = self._settings.ingest.policy_of(unit.dataset).may_end_quarantine(unit.last_error_code)
        policy = (
            f", and the policy of {unit.dataset} to have {unit.last_error_code} under `replay_quarantined`"
        )
        return f"{step} Another person has to approve it{'' if named else policy}."


def _announced(stored: StoredUnit) -> str:
    unit = stored.unit
    size = "" if stored.size is None else f", {stored.size:,} bytes"
    return f"It is the object {unit.object_uri}{size}, announced by the queue {unit.queue}."


def _led_to(request: UpdateRequest) -> Sentence:
    """A request that one of its contents was a member of."""
    word = of_request(request.state, request.outcome, request.blocked_by)
    run = f", by run {request.run_id}" if request.run_id else ""
    what = f"request {request.request_id} of {request.dataset_id} from {request.source_id}"
    text = f"It led to {what}: {word}{run}."
    return Sentence(text=text, record=Ref(type="request", id=request.request_id))


def _step(move: UnitTransition) -> str:
    """One step of the history, in words."""
    details = move.details
    text = {
        "created": "taken in",
        "imported": f"taken over from another ledger, as attempt {move.attempts}",
        "claimed": f"attempt {move.attempts} began, by {move.worker_id}",
        "succeeded": f"succeeded; {_ITEMS.get(catalogued(move) or '', 'the item is unchanged')}",
        "failed": f"attempt failed: {details.get('error_code', 'no code was kept')}",
        "retry_scheduled": "to be tried again",
        "quarantined": f"put into quarantine: {details.get('reason', 'no reason was kept')}",
        "reissued": "announced anew, with other bytes",
        "replayed": "brought back by a replay",
        "migrated": f"brought back, approved by {details.get('approval', 'an unknown person')}",
        "removed": "its object was removed upstream",
        "stale": "an older announcement came late and changed nothing",
        "ignored": "a newer version was announced; by `reissue: ignore` the known one stays",
    }.get(move.event, move.event)
    return f"{moment(move.at_ms)}: {text}."


def _of(text: str, stored: StoredUnit) -> Sentence:
    return Sentence(text=text, record=Ref(type="unit", id=stored.unit.wal_id))
