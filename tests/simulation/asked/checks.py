"""The rules that requests and schedules live by, looked at after every commit and at the end."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kfm.db.ledger_reader import LedgerReader
from kfm.db.requests import request_from
from kfm.db.session import Row
from kfm.model.keys import request_id, schedule_instant_key
from kfm.model.schedules import instants
from kfm.runs.kernel import RunReport
from tests.simulation.checks_circuits import CircuitChecks
from tests.simulation.checks_starts import StartChecks
from tests.simulation.judging import Violation, require

if TYPE_CHECKING:
    from kfm.model.requests import UpdateRequest
    from tests.simulation.asked.world import AskedWorld
    from tests.simulation.scheduler import Process


class Checks:
    def __init__(self, world: AskedWorld) -> None:
        self._world = world
        self._ledger = LedgerReader(world.database)
        self._seen: dict[str, UpdateRequest] = {}
        self._cursors: dict[str, tuple[int, int]] = {}
        self._broken: Violation | None = None
        self.counts: Counter[str] = Counter()
        self.circuits = CircuitChecks(world, self._ledger)
        self.starts = StartChecks(world, self._ledger, world.settings)

    def _rows(self, sql: str) -> list[Row]:
        return list(self._world.database._connection.execute(sql))

    def requests(self) -> dict[str, UpdateRequest]:
        columns = ", ".join(_fields())
        found = [request_from(row) for row in self._rows(f"SELECT {columns} FROM requests")]
        return {one.request_id: one for one in found}

    def unsettled(self) -> list[str]:
        return [one.request_id for one in self._seen.values() if not one.is_settled]

    def bound_to(self, run_id: str) -> str | None:
        return self._ledger.request_reader().bound_to(run_id)

    def next_due_ms(self) -> int | None:
        """When something goes on; None: all is at rest."""
        waits = self.starts.next_due_ms()
        if waits is None and self._rows("SELECT 1 FROM burst_members"):
            return 0
        return waits

    def reported(self, report: RunReport) -> None:
        self.counts[f"served {report.outcome}"] += 1

    # --- after each commit -----------------------------------------------------------------

    def on_commit(self, process: Process) -> None:
        """The first broken promise is the one that counts, also where a dispatcher takes it for trouble."""
        if self._broken is None:
            try:
                self._look(process)
            except Violation as violation:
                self._broken = violation
        if self._broken is not None:
            raise self._broken

    def _look(self, process: Process) -> None:
        changed = process.facts["changed"]
        now_ms = self._world.scheduler.now_ms + process.wall_offset_ms
        self.circuits.on_commit(process, now_ms)
        self.starts.on_commit(process, now_ms)
        if "requests" in changed:
            now = self.requests()
            require(now.keys() >= self._seen.keys(), "what was accepted stays")
            for one in now.values():
                before = self._seen.get(one.request_id)
                if before is not None and before != one:
                    self._moved(process, before, one)
            self._seen = now
        if "schedules" in changed:
            for name, cursor, version in self._rows("SELECT schedule_id, cursor_ms, version FROM schedules"):
                seen = self._cursors.get(name, (0, 0))
                require(
                    cursor >= seen[0] and version >= seen[1],
                    "a cursor only moves on",
                    schedule=name,
                    seen=seen,
                )
                self._cursors[name] = (cursor, version)

    def _moved(self, process: Process, before: UpdateRequest, one: UpdateRequest) -> None:
        revived = {
            values["request_id"] for name, values, _ in process.facts["told"] if name == "requests.revive"
        }
        final = not before.is_settled or one.request_id in revived  # two persons let it begin anew
        require(final, "an end is final", before=before, now=one)
        if before.state == "running" and one.claimed_by != before.claimed_by:
            self._left(process, before, one)
        if one.state == "done" and one.outcome in ("success", "noop"):
            run = self._ledger.run(one.run_id or "")
            # What would change nothing is not put before a person: it ends by its preview, without a run.
            previewed = run is None and one.needs_approval and self._ledger.head(one.dataset_id) is not None
            told = run is not None and run.status == "success"
            require(told or (previewed and one.outcome == "noop"), "an end tells what happened", now=one)
        if one.state == "running" and before.state == "open":
            require(one.claimed_by in process.facts["workers"], "a claim is the claimer's", now=one)

    def _left(self, process: Process, before: UpdateRequest, one: UpdateRequest) -> None:
        """A claim has ended: its own worker's doing, or its run's, or it was lost."""
        world, by = self._world, before.claimed_by or ""
        mine = by in process.facts["workers"]
        ended = any(
            landed and name in ("runs.succeed", "runs.fail") and values["run_id"] == before.run_id
            for name, values, landed in process.facts["told"]
        ) or any(
            name == "retry_states.put" and values["run_id"] == before.run_id
            for name, values, _ in process.facts["told"]
        )
        # Its attempt was taken over for another request: it was to be cancelled, and ends with that attempt.
        ended = ended or any(
            landed
            and name == "runs.restart"
            and values["run_id"] == before.run_id
            and before.cancel is not None
            for name, values, landed in process.facts["told"]
        )
        now_ms = world.scheduler.now_ms + process.wall_offset_ms
        # As its clock was when it looked: that it was set back since is no fault.
        lapsed = before.claim_until_ms <= max(now_ms, process.facts.get("seen ms", 0))
        dead = world.is_dead(by)
        facts = {"by": process.name, "was": before, "now": one}
        require(mine or ended or lapsed or dead, "a claim is taken only from who is lost", **facts)
        if one.is_settled:
            require(mine or ended, "only who holds a request ends it", **facts)
        if not mine and not ended:
            self.counts["dead" if dead else "lapsed"] += 1
            kept = world.is_steady and world.has_heartbeat and not dead and not world.is_gone(by)
            require(not kept, "who works for a request keeps it", **facts)

    def told(self, request_id: str) -> None:
        """A sender is told that it was accepted."""
        require(
            bool(self._rows(f"SELECT 1 FROM requests WHERE request_id = '{request_id}'")),
            "who is told is heard",
        )

    # --- at the end ------------------------------------------------------------------------

    def at_the_end(self) -> None:
        if self._broken is not None:
            raise self._broken
        requests = self.requests()
        for wanted in self._world.told:
            require(wanted in requests, "what was accepted is there", request=wanted)
        self.starts.at_rest()
        self._instants(requests)

    def _instants(self, requests: dict[str, Any]) -> None:
        fired: Counter[str] = Counter()
        for schedule in self._world.schedules:
            rows = self._rows(
                "SELECT instant_ms, last_ms, became, request_id FROM instants "
                f"WHERE schedule_id = '{schedule.id}' ORDER BY instant_ms"
            )
            for before, after in pairwise(rows):
                require(before[1] < after[0], "an instant has one fate", before=before, after=after)
            for first_ms, _, became, wanted in rows:
                self.counts[became] += 1
                if became == "request":
                    fired[wanted] += 1
                    right = request_id(schedule_instant_key(schedule.id, first_ms))
                    require(wanted == right and wanted in requests, "an instant's request is its own")
            if rows and not self._world.disagree:
                since_ms, cursor_ms = rows[0][1], self._cursors[schedule.id][0]
                for instant_ms in instants(schedule, since_ms + 1, cursor_ms + 1):
                    fates = [row for row in rows if row[0] <= instant_ms <= row[1]]
                    require(len(fates) == 1, "every instant has a fate", schedule=schedule.id, at=instant_ms)
        for one in requests.values():
            if one.schedule_id is not None:
                require(fired[one.request_id] == 1, "a scheduled request has its instant", request=one)


def _fields() -> tuple[str, ...]:
    from kfm.model.requests import UpdateRequest

    return UpdateRequest.__struct_fields__
