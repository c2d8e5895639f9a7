"""The rules about trying again, kept by an onlooker who counts for himself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfm.db.ledger_reader import LedgerReader
from kfm.model.breaker import COOLDOWN_MS, PROBE_LEASE_MS
from kfm.model.retry import policy_for, retry_rules
from tests.simulation.judging import require
from tests.simulation.outages import ASKED_MAX_S

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World

CIRCUIT_OPEN = "KFM408"
HOPELESS = ("KFM3", "KFM206", "KFM207")  # refused by a gate or a contract: the same again is refused again
Told = tuple[str, dict[str, Any], bool]


@dataclass
class Tally:
    """One run, as its onlooker knows it."""

    trigger_type: str
    since_ms: int
    attempts: int = 1
    counted: int = 1  # of the present grant
    grants: int = 1
    error_code: str = ""
    is_over: bool = False  # the last attempt has its end
    state: dict[str, Any] | None = None


class RetryChecks:
    def __init__(self, world: World, ledger: LedgerReader) -> None:
        self._world = world
        self._ledger = ledger
        self._runs: dict[str, Tally] = {}

    def on_commit(self, process: Process, now_ms: int) -> None:
        told: list[Told] = process.facts.get("told", [])
        if not any(name.startswith("r") for name, _, _ in told):
            return
        answered = {
            parameters["subject"]
            for name, parameters, landed in told
            if name == "governance.append" and landed and parameters["kind"] in ("governed-retry", "release")
        }
        puts = [parameters for name, parameters, _ in told if name == "retry_states.put"]
        for put in puts:
            if self._is_new_grant(put):
                self._granted(put, answered, process)
        for name, parameters, landed in told:
            if name == "runs.insert" and landed:
                self._runs[parameters["run_id"]] = Tally(
                    parameters["trigger_type"], parameters["start_time_ms"]
                )
            elif name == "runs.restart" and landed:
                self._restarted(parameters, process)
            elif name == "runs.fail" and landed:
                tally = self._runs[parameters["run_id"]]
                tally.error_code, tally.is_over = parameters["error_code"], True
        for put in puts:
            if not self._is_new_grant(put):
                self._judged(put)
            self._runs[put["run_id"]].state = put

    def _is_new_grant(self, put: dict[str, Any]) -> bool:
        before = self._runs[put["run_id"]].state
        return put["reason"] == "granted" and (
            before is None or put["granted_at_ms"] != before["granted_at_ms"] or before["reason"] != "granted"
        )

    def _granted(self, put: dict[str, Any], answered: set[str], process: Process) -> None:
        """By a person who answers for it; by the clock, to a person; by other inputs, to anybody."""
        run = self._runs[put["run_id"]]
        known = run.state["fingerprint"] if run.state is not None else None
        if put["run_id"] in answered:
            require(run.grants < retry_rules().grants_max, "grants are few", state=put)
            run.grants += 1
        elif put["fingerprint"] not in (None, known):
            run.grants = 1
            self._world.scheduler.counts["granted for inputs"] += 1
        else:
            in_person = process.facts["asking"].by_person
            require(in_person, "a person answers for every grant", state=put)
            late = run.counted < policy_for(run.trigger_type).attempts_max
            require(late, "a person answers for every grant", state=put, run=run)
            run.grants += 1
            self._world.scheduler.counts["granted late"] += 1
        require(put["grants"] == run.grants, "grants are counted", state=put, run=run)
        run.counted, run.since_ms = 0, put["granted_at_ms"]
        self._world.scheduler.counts["granted"] += 1

    def _restarted(self, parameters: dict[str, Any], process: Process) -> None:
        run = self._runs[parameters["run_id"]]
        promise = self._world.checks.starts.promises.get(parameters["run_id"])
        run.attempts += 1
        run.counted += 1
        policy = policy_for(run.trigger_type)
        facts = {"run": run, "ahead": promise}
        require(run.attempts == parameters["attempts"], "attempts are counted", **facts)
        stopped = promise is not None and promise.reason == "stopped"  # it was its person's, not its budget's
        free = stopped or not run.is_over  # it was taken over from a process that was lost just then
        require(free or run.counted <= policy.attempts_max, "no more attempts than were granted", **facts)
        run.is_over = False
        if not process.facts["asking"].promised:
            return
        self._world.scheduler.counts["automatic attempt"] += 1
        answered_for = run.counted == 1  # the first attempt that a grant is used for
        hopeless = not (answered_for or stopped) and run.error_code.startswith(HOPELESS)
        require(not hopeless, "what can't get better is not retried by itself", **facts)

    def _judged(self, put: dict[str, Any]) -> None:
        """What is kept agrees with what happened: no restart and no crash gives anything back."""
        run, before = self._runs[put["run_id"]], None
        known = run.state["fingerprint"] if run.state is not None else None
        if run.state is not None and run.state["attempt"] == put["attempt"]:
            before = run.state
        facts = {"run": run, "state": put}
        if known is not None and put["fingerprint"] not in (None, known):  # another content, another budget
            run.counted, run.grants, run.since_ms = 1, 1, put["granted_at_ms"]
        require(put["granted_at_ms"] == run.since_ms, "the budget's time goes on", **facts)
        require(put["grants"] == run.grants, "grants are counted", **facts)
        if before is None:
            if run.error_code == CIRCUIT_OPEN:
                run.counted -= 1  # nothing was tried
            require(put["attempt"] == run.attempts, "the attempt that ended is judged", **facts)
            if put["fate"] == "retry":
                self._within(put, run)
        require(put["grant_attempts"] == run.counted, "attempts survive", **facts)

    def _within(self, put: dict[str, Any], run: Tally) -> None:
        policy = policy_for(run.trigger_type)
        index = max(run.counted - 1, 0)
        nominal_ms = min(policy.cap_ms, policy.base_ms << index)
        if policy.ladder_ms:
            nominal_ms = policy.ladder_ms[min(index, len(policy.ladder_ms) - 1)]
        delay_ms = put["not_before_ms"] - put["updated_at_ms"]
        facts = {"delay_ms": delay_ms, "nominal_ms": nominal_ms, "run": run, "state": put}
        require(delay_ms >= nominal_ms // 2 - 1, "a delay is within its range", **facts)
        asked_max_ms = 0
        if put["error_class"] in ("throttled", "upstream", "circuit-open", "HTTP_429", "HTTP_503"):
            asked_max_ms = max(ASKED_MAX_S * 1000, COOLDOWN_MS + PROBE_LEASE_MS)
        elif self._world.outages.is_troubled:
            asked_max_ms = COOLDOWN_MS + PROBE_LEASE_MS  # the failure that opened a circuit waits for it
        require(delay_ms <= max(nominal_ms * 3 // 2, asked_max_ms), "a delay is within its range", **facts)
        require(put["not_before_ms"] < run.since_ms + policy.budget_ms, "a retry fits its budget", **facts)

    def at_the_end(self) -> None:
        for approval in self._ledger.approvals(limit=10_000):
            if approval.state == "approved":
                require(
                    approval.approved_by != approval.requested_by, "two persons let go", approval=approval
                )
        for run in self._ledger.runs(limit=10_000):
            tally = self._runs[run.run_id]
            require(tally.attempts == run.attempts, "attempts are counted", run=run)
            if run.status == "success":
                state = self._ledger.retry_state(run.run_id)
                require(state is None, "nothing is ahead of what is done", run=run, state=state)
                held = self._ledger.held(state="held", subject=run.run_id)
                require(not held, "what is done is not held", run=run, rows=held)
