"""The rules of starting: who may begin what and when, what becomes of requests, and what is never published.

An onlooker's: by the rows before and after each commit, and by who asked.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kfm.calls.breakers import FRESH_MS
from kfm.db.ledger_reader import LedgerReader
from kfm.model.breaker import providers_of
from kfm.model.errors import SwitchThrown
from kfm.model.retry_budgets import limits_of
from kfm.model.settings import Settings
from kfm.model.times import holds
from kfm.runs import plan as plans
from kfm.runs.kernel import RunReport
from tests.simulation.judging import require

if TYPE_CHECKING:
    from tests.simulation.asking import Asking
    from tests.simulation.scheduler import Process

ENDS = ("success", "noop", "failed", "refused", "cancelled", "rejected", "superseded")
WAITS = ("open", "running", "awaiting-approval")
COLUMNS = (
    "request_id, run_id, state, outcome, cancel, not_before_ms, blocked_by, claimed_by, claim_until_ms,"
    " is_bound, plan_digest, needs_approval, kind, dataset_id, source_id, window_start_ms, by_person,"
    " details LIKE '%\"adopted\"%'"
)
STATE_COLUMNS = "run_id, attempt, fate, reason, not_before_ms, fingerprint, day_grants, updated_at_ms"


class Asked(NamedTuple):
    """A request, as far as the rules are about it."""

    request_id: str
    run_id: str | None
    state: str
    outcome: str | None
    cancel: str | None
    not_before_ms: int
    blocked_by: str | None
    claimed_by: str | None
    claim_until_ms: int
    is_bound: int
    plan_digest: str | None
    needs_approval: int
    kind: str
    dataset_id: str
    source_id: str
    window_start_ms: int
    by_person: int
    is_adopted: int

    @property
    def is_wanted(self) -> bool:
        """It has no end, and is not cancelled."""
        return self.state in WAITS and self.cancel is None


class Promise(NamedTuple):
    """What was decided about a run's last attempt."""

    run_id: str
    attempt: int
    fate: str
    reason: str
    not_before_ms: int | None
    fingerprint: str | None
    day_grants: int
    updated_at_ms: int


class StartChecks:
    def __init__(self, world: Any, ledger: LedgerReader, settings: Settings) -> None:
        self._world = world
        self._settings = settings
        self._ledger = ledger
        self._seen: dict[str, Asked] = {}
        self.promises: dict[str, Promise] = {}
        self._commits = 0
        self._asked_at: dict[str, int] = {}  # request → the commit that accepted it
        self._arrived_at: dict[tuple[str, str], int] = {}  # (source, member) → the commit that gathered it
        self._looked_at: dict[tuple[str, int], int] = {}  # (source, window) → the last commit of a look at it
        self._begun: dict[tuple[str, int], int] = {}  # attempt → the commit that began it
        self._answered: dict[str, list[int]] = {}  # work → the commits of attempts that a person answers for
        self._acted: dict[str, set[tuple[str, int]]] = {}  # work → the attempts that acted outside
        self._turns: dict[str, int] = {}  # dataset → the commit of its last claim
        self.counts: Counter[str] = Counter()

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        return list(self._world.database._connection.execute(sql, values))

    # --- after a commit --------------------------------------------------------------------

    def on_commit(self, process: Process, now_ms: int) -> None:
        told, changed = process.facts["told"], process.facts["changed"]
        self._commits += 1
        requests, promises = self._seen, self.promises
        if "requests" in changed:
            requests = {row[0]: Asked(*row) for row in self._rows(f"SELECT {COLUMNS} FROM requests")}
        if "retry_states" in changed:
            promises = {
                row[0]: Promise(*row) for row in self._rows(f"SELECT {STATE_COLUMNS} FROM retry_states")
            }
        self._noted(process, told, changed, requests)
        puts = {values["run_id"]: values for name, values, _ in told if name == "retry_states.put"}
        for name, values, landed in told:
            if landed and name in ("runs.insert", "runs.restart"):
                self._began(values["run_id"], name, values, puts, process, now_ms)
            elif landed and name == "runs.succeed":
                self._promoted(values, process, requests)
            elif name == "runs.held" and landed and "acts" in changed:
                process.facts["intended"] = values["run_id"]
        failed = {values["run_id"] for name, values, landed in told if name == "runs.fail" and landed}
        for run_id, put in puts.items():
            self._granted(run_id, put, told)
            if put["reason"] != "granted":
                self._settled(run_id, put, requests, by_failure=run_id in failed)
        if requests is not self._seen:
            for one in requests.values():
                before = self._seen.get(one.request_id)
                if before != one:
                    self._moved(before, one, requests, promises, process, now_ms)
        self._seen, self.promises = requests, promises

    def _noted(self, process: Process, told: Any, changed: set[str], requests: dict[str, Asked]) -> None:
        """When things were asked for, and looked at."""
        for request_id in requests.keys() - self._asked_at.keys():
            self._asked_at[request_id] = self._commits
        if "burst_members" in changed:
            for key in self._rows("SELECT source_id, member FROM burst_members"):
                self._arrived_at.setdefault(key, self._commits)
        for name, values, _ in told:
            if name == "invocations.insert":
                if values["window_start_ms"] is not None:
                    self._looked_at[values["source_id"], values["window_start_ms"]] = self._commits
                self.looked(process.facts["asking"].request_id)

    def looked(self, request_id: str | None) -> None:
        """Upstream was looked at for a request: by a preview, or by an invocation that became no run."""
        one = self._seen.get(request_id or "")
        if one is not None:
            self._looked_at[one.source_id, one.window_start_ms] = self._commits

    # --- what may begin --------------------------------------------------------------------

    def _began(
        self,
        run_id: str,
        how: str,
        values: dict[str, Any],
        puts: dict[str, Any],
        process: Process,
        now_ms: int,
    ) -> None:
        asking: Asking = process.facts["asking"]
        run = self._ledger.run(run_id)
        assert run is not None
        source = self._settings.source(run.source_id)
        facts = {"run": run_id, "asking": asking, "now_ms": now_ms}
        self._asked_circuit(source, process, asking)
        held = self._seen.get(asking.request_id or "")
        if held is not None:
            mine = held.state == "running" and self._world.process_of(held.claimed_by) is process
            require(mine, "who enters for a request holds it", held=held, **facts)
            require(held.cancel is None, "what is cancelled does not begin", held=held, **facts)
        used = any(name == "approvals.use" for name, *_ in process.facts["told"])
        promise = self.promises.get(run_id) if how == "runs.restart" else None
        if promise is not None and promise.attempt != values["attempts"] - 1:
            promise = None
        released = promise is not None and promise.reason == "granted"  # two persons have answered for it
        answered = asking.by_person or used or released
        self._begun[run_id, run.attempts] = self._commits
        if answered:
            self._answered.setdefault(run.work_base, []).append(self._commits)
        if how == "runs.insert":
            if asking.promised:  # one that has been bound to a plan since is another's
                own = self._seen[asking.request_id or ""]
                others = [one for one in self._seen.values() if one.run_id == own.run_id and one.is_bound]
                passed = bool(others) and not own.is_bound and not own.is_adopted
                require(passed, "a promised attempt is made at its own run", own=own, **facts)
            return
        acts = self._rows("SELECT name FROM acts WHERE run_id = ?", run_id)
        if acts:
            who = answered and (asking.rationale or used or released)
            require(
                bool(who), "what may have acted is begun again by a person who says why", acts=acts, **facts
            )
        digest = next(
            (one.plan_digest for one in self._seen.values() if one.run_id == run_id and one.is_bound), None
        )
        require(digest is None or asking.binds == digest, "what is bound is begun with its plan", **facts)
        if answered:
            self.counts["begun again by a person"] += 1
            return
        self.counts["begun again by a machine"] += 1
        require(source.idempotent, "what is not idempotent is begun again by a person", **facts)
        if promise is None or promise.reason == "stopped":
            return
        facts["ahead"] = promise
        if promise.fate == "retry":
            due_ms = promise.not_before_ms or 0
            early = holds(due_ms, now_ms, due_ms - promise.updated_at_ms) and asking.jumps == process.jumps
            require(not early, "a machine begins nothing before its time", **facts)
            return
        put = puts.get(run_id)
        tried = {promise.fingerprint, *self._inputs_of(run_id, promise.attempt)}
        other = put is not None and put["fingerprint"] is not None and put["fingerprint"] not in tried
        require(other, "a machine tries what was given up at other inputs only", put=put, **facts)

    def _inputs_of(self, run_id: str, attempt: int) -> list[str]:
        """The fingerprints that an attempt is known to have seen."""
        sql = "SELECT DISTINCT inputs_hash FROM attempts WHERE run_id = ? AND attempt = ?"
        return [found for (found,) in self._rows(sql, run_id, attempt) if found is not None]

    def _asked_circuit(self, source: Any, process: Process, asking: Asking) -> None:
        if "circuits" not in process.facts or not getattr(self._world, "is_troubled", False):
            return
        for provider in providers_of(source, self._settings.source):
            view = process.facts.get("seen", {}).get(provider, ())
            if view is None:
                continue  # the answer was lost
            facts = {"provider": provider, "view": view, "asking": asking}
            require(view != () and view[1] >= asking.began_ms - FRESH_MS, "a circuit is asked first", **facts)
            late = (view[0].opened_at_ms or 0) >= asking.began_ms - FRESH_MS  # it opened meanwhile
            prober = self._world.checks.circuits.is_prober(view[0], process)
            passes = view[0].state == "closed" or prober or late
            require(passes, "nothing begins while its circuit is open", **facts)

    def _granted(self, run_id: str, put: dict[str, Any], told: Any) -> None:
        """Whatever its inputs are, one piece of work has so many grants in a day; persons may give more."""
        before, run = self.promises.get(run_id), self._ledger.run(run_id)
        assert run is not None
        by_persons = any(
            name == "governance.append" and values["kind"] in ("governed-retry", "release")
            for name, values, _ in told
        )
        if by_persons or put["day_grants"] <= (before.day_grants if before is not None else 0):
            return
        per_day = limits_of(self._settings, run.source_id).per_day
        require(put["day_grants"] <= per_day, "grants of a day are bounded", state=put, before=before)

    # --- what is published -----------------------------------------------------------------

    def _promoted(self, values: dict[str, Any], process: Process, after: dict[str, Asked]) -> None:
        run_id, asking = values["run_id"], process.facts["asking"]
        asked = [one for one in self._seen.values() if one.run_id == run_id]
        facts = {"run": run_id, "asked": asked, "asking": asking}
        wanted = [one for one in asked if one.is_wanted]
        require(bool(wanted), "what is published is still asked for", **facts)
        own = self._seen.get(asking.request_id) if asking.request_id is not None else None
        if own is not None:
            require(own.cancel is None, "what is cancelled is not published", **facts)
            if own.needs_approval:
                approved = self._rows(
                    "SELECT 1 FROM approvals WHERE subject = ? AND digest = ? AND state = 'approved'",
                    own.request_id,
                    own.plan_digest,
                )
                require(bool(approved), "what is not approved is not published", **facts)
        for one in asked:
            if one.is_bound and values["version_id"]:
                text = self._rows("SELECT plan FROM previews WHERE digest = ?", one.plan_digest)
                planned = plans.read(text[0][0].encode()).header.version_id
                require(planned == values["version_id"], "what is bound publishes its plan", **facts)
        left = [one for one in after.values() if one.run_id == run_id and one.is_wanted]
        require(not left, "a promotion ends the requests of its run", left=left, **facts)

    # --- acts outside ------------------------------------------------------------------------

    def on_act(self, work_base: str, run_id: str, attempt: int) -> None:
        """Something happens outside that no kill takes back. Who was taken for lost may come late with it."""
        me, acted = (run_id, attempt), self._acted.setdefault(work_base, set())
        for other in acted - {me}:
            runs = [self._ledger.run(one) for one, _ in (me, other)]
            if any(run is not None and run.status == "success" for run in runs):
                continue  # what came later is another content
            first, last = sorted((self._begun[me], self._begun[other]))
            answered = any(first < at <= last for at in self._answered.get(work_base, ()))
            require(answered, "nothing acts twice without a person", before=other, now=me)
            self.counts["acted again"] += 1
        self.counts["acted"] += 1
        acted.add(me)

    # --- what becomes of requests ------------------------------------------------------------

    def _settled(
        self, run_id: str, put: dict[str, Any], requests: dict[str, Asked], *, by_failure: bool
    ) -> None:
        """An attempt has ended without success, or a dead one was judged."""
        left = [one for one in requests.values() if one.run_id == run_id and one.is_wanted]
        facts = {"state": put, "left": left, "by_failure": by_failure}
        require(all(one.state != "running" for one in left), "who has failed holds no request", **facts)
        if put["fate"] == "retry":
            early = [one for one in left if one.state == "open" and one.not_before_ms < put["not_before_ms"]]
            require(not early, "requests wait for the attempt that is promised", early=early, **facts)
        elif put["reason"] != "stopped":  # then others that asked for it still do
            may_refuse = put["reason"] != "refused" or self._world.has_rules
            require(may_refuse, "a promised attempt is made, also late", **facts)
            require(not left, "requests end with what is given up", **facts)

    def _moved(
        self,
        before: Asked | None,
        one: Asked,
        requests: dict[str, Asked],
        promises: dict[str, Promise],
        process: Process,
        now_ms: int,
    ) -> None:
        facts = {"before": before, "now": one, "by": process.name}
        if one.state == "cancelled" and one.run_id is not None:
            others = [each for each in requests.values() if each.run_id == one.run_id and each.state in WAITS]
            promise = promises.get(one.run_id)
            kept = promise is not None and promise.fate == "retry" and not others and self._is_ahead(promise)
            require(not kept, "no promise outlives its last request", ahead=promise, **facts)
        if before is None:
            return
        if one.state == "running" and one.claimed_by != before.claimed_by:
            self._turn(before, requests, process, now_ms)
        asked_for, report = process.facts.get("report") or ("", None)
        if before.state == "running" and asked_for == one.request_id and report is not None:
            self._answered_with(report, one, facts)

    def _answered_with(self, report: RunReport, one: Asked, facts: dict[str, Any]) -> None:
        """What a dispatcher makes of the report of its request."""
        if one.outcome == "refused":
            require(not isinstance(report.error, SwitchThrown), "a switch is no end", **facts)
        decision, alone = report.decision, one.is_bound or one.needs_approval
        if decision is None or decision.run is None or alone or one.state != "open":
            return
        if (decision.kind, decision.blocked_by) == ("waits", one.blocked_by):
            tied = one.run_id == decision.run.run_id
            require(tied, "what waits for a run is tied to it", decision=decision, **facts)

    def _turn(self, one: Asked, requests: dict[str, Asked], process: Process, now_ms: int) -> None:
        """Datasets take turns, each with one request at a time."""
        beside = [
            each
            for each in requests.values()
            if each.state == "running"
            and each.dataset_id == one.dataset_id
            and each.request_id != one.request_id
        ]
        require(not beside, "one request of a dataset runs at a time", claimed=one, beside=beside)
        part = process.facts.get("part", "all")
        at_work = {each.dataset_id for each in self._seen.values() if each.state == "running"}
        at_work.discard(one.dataset_id)
        if part == "all" and not self._world.scheduler.counts["jump"]:
            mine = self._turns.get(one.dataset_id, 0)
            for each in self._seen.values():
                waits = each.state == "open" and each.not_before_ms <= now_ms
                if waits and each.dataset_id not in at_work:
                    first = self._turns.get(each.dataset_id, 0) >= mine
                    require(first, "datasets take turns", claimed=one, passed=each, turns=self._turns)
        self._turns[one.dataset_id] = self._commits

    def given_back(self, process: Process, request_id: str, worker_id: str) -> None:
        """A dispatcher is done with a request."""
        found = self._rows("SELECT state, claimed_by FROM requests WHERE request_id = ?", request_id)
        held = found and found[0] == ("running", worker_id)
        facts = {"request": request_id, "report": process.facts.get("report")}
        require(not held, "who is done with a request has given it back", **facts)

    def next_due_ms(self) -> int | None:
        """When the next request that has no end may go on; None: all have one."""
        ahead = [
            one.not_before_ms if one.state == "open" else one.claim_until_ms
            for one in self._seen.values()
            if one.state in WAITS
        ]
        return min(ahead, default=None)

    def _is_rejected(self, one: Asked) -> bool:
        """Was the same rejected? Then its inputs are compared with that, and no run looks at it."""
        if one.outcome not in ("refused", "failed") or one.run_id is not None or not one.needs_approval:
            return False
        sql = (
            "SELECT 1 FROM approvals WHERE dataset_id = ? AND rejected_at_ms IS NOT NULL AND kind = 'update'"
        )
        return bool(self._rows(sql, one.dataset_id))

    # --- at rest -----------------------------------------------------------------------------

    def at_rest(self) -> None:
        """Faults have stopped, and nothing is due any more."""
        for one in self._seen.values():
            self.counts[f"request {one.outcome}"] += 1
            require(one.state not in WAITS, "every request has an end", request=one)
            require(one.outcome in ENDS, "an end is one of a few", request=one)
            if one.outcome == "failed" and one.run_id is None:
                sql = "SELECT 1 FROM held WHERE grain = 'request' AND subject = ?"
                require(
                    bool(self._rows(sql, one.request_id)), "what failed without a run is held", request=one
                )
            if one.outcome in ("success", "noop"):
                run = self._ledger.run(one.run_id) if one.run_id else None
                require(run is None or run.status == "success", "an end tells what happened", request=one)
            if one.state != "cancelled" and not one.is_adopted and not self._is_rejected(one):
                looked = self._looked_at.get((one.source_id, one.window_start_ms), -1)
                after = looked >= self._asked_at[one.request_id]
                require(after, "what is asked for is looked at afterwards", request=one, looked=looked)
        require(not self.promised(), "no promise is without a request", left=self.promised())
        require(not self._rows("SELECT 1 FROM runs WHERE status = 'running'"), "no run is lost")
        self._arrivals()

    def promised(self) -> list[Promise]:
        """The attempts that are ahead of failed runs."""
        return [one for one in self.promises.values() if one.fate == "retry" and self._is_ahead(one)]

    def _is_ahead(self, promise: Promise) -> bool:
        run = self._ledger.run(promise.run_id)
        return run is not None and run.status == "failed" and run.attempts == promise.attempt

    def _arrivals(self) -> None:
        """Each is a member of one request, and its window has a look at it that came later."""
        require(not self._rows("SELECT 1 FROM burst_members"), "every arrival becomes a request")
        members: dict[tuple[str, str], list[Asked]] = {}
        for request_id, member in self._rows("SELECT request_id, member FROM request_members"):
            one = self._seen[request_id]
            members.setdefault((one.source_id, member), []).append(one)
        for key, arrived in self._arrived_at.items():
            asked = members.get(key, [])
            require(len(asked) == 1, "each arrival is in one burst", arrival=key, asked=asked)
            one = asked[0]
            looked = self._looked_at.get((one.source_id, one.window_start_ms), -1)
            after = looked > arrived or one.state == "cancelled"
            require(after, "every arrival's window has a run that began after it", request=one)
