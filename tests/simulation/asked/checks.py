"""The rules that requests and schedules live by, looked at after every commit and at the end."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kfm.db.requests import request_from
from kfm.db.session import Row
from kfm.model.keys import request_id, schedule_instant_key, work_base
from kfm.model.schedules import instants
from kfm.service.dispatcher import run_request_of
from tests.simulation.asked.admission import work_of
from tests.simulation.judging import require

if TYPE_CHECKING:
    from kfm.model.requests import UpdateRequest
    from tests.simulation.asked.world import AskedWorld
    from tests.simulation.scheduler import Process


class Checks:
    def __init__(self, world: AskedWorld) -> None:
        self._world = world
        self._seen: dict[str, UpdateRequest] = {}
        self._cursors: dict[str, tuple[int, int]] = {}
        self.counts: Counter[str] = Counter()

    def _rows(self, sql: str) -> list[Row]:
        return list(self._world.database._connection.execute(sql))

    def requests(self) -> dict[str, UpdateRequest]:
        columns = ", ".join(_fields())
        found = [request_from(row) for row in self._rows(f"SELECT {columns} FROM requests")]
        return {one.request_id: one for one in found}

    # --- after each commit -----------------------------------------------------------------

    def on_commit(self, process: Process) -> None:
        changed = process.facts["changed"]
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
        require(not before.is_settled, "an end is final", before=before, now=one)
        if before.state == "running" and one.claimed_by != before.claimed_by:
            mine = before.claimed_by in process.facts["workers"]
            lapsed = before.claim_until_ms <= self._world.scheduler.now_ms + process.wall_offset_ms
            dead = self._world.is_dead(before.claimed_by or "")
            require(
                mine or lapsed or dead, "a claim is taken only from who is lost", by=process.name, was=before
            )
            if one.is_settled:
                require(mine, "only who holds a request ends it", by=process.name, was=before, now=one)
            if not mine:
                self.counts["dead" if dead else "lapsed"] += 1
        if one.state == "done" and one.outcome in ("success", "noop"):
            run = self._world.admission.runs.get(one.run_id or "")
            require(run is not None and run.status == "success", "an end tells what happened", now=one)
        if one.state == "running" and before.state == "open":
            require(one.claimed_by in process.facts["workers"], "a claim is the claimer's", now=one)

    def told(self, request_id: str) -> None:
        """A sender is told that it was accepted."""
        require(
            bool(self._rows(f"SELECT 1 FROM requests WHERE request_id = '{request_id}'")),
            "who is told is heard",
        )

    # --- at the end ------------------------------------------------------------------------

    def at_the_end(self) -> None:
        requests = self.requests()
        for wanted in self._world.told:
            require(wanted in requests, "what was accepted is there", request=wanted)
        for one in requests.values():
            self.counts[f"request {one.outcome}"] += 1
            require(one.is_settled, "every request has an end", request=one)
            runs = self._world.admission.of_work(work_base(work_of(run_request_of(one))))
            done = [run for run in runs if run.status == "success"]
            require(len(done) <= 1, "a request is run once", request=one, runs=[run.run_id for run in runs])
            if one.state == "done":
                require(len(done) == 1, "a request that is done was run", request=one)
            else:
                known = one.kind == "cron" or one.request_id in self._world.cancelled
                require(one.state == "cancelled" and known, "who is cancelled was", request=one)
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
            if one.kind == "cron":
                require(fired[one.request_id] == 1, "a scheduled request has its instant", request=one)


def _fields() -> tuple[str, ...]:
    from kfm.model.requests import UpdateRequest

    return UpdateRequest.__struct_fields__
