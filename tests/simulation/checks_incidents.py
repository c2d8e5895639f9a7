"""The rules about incidents: one for each cause, there while the cause is, each change told once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.simulation.judging import require

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World

NEXT = {None: {"open"}, "open": {"worse", "resolved"}, "worse": {"worse", "resolved"}, "resolved": {"open"}}


class IncidentChecks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 0  # of the last message that was read
        self._last: dict[str, str] = {}  # cause → what was told last
        self._told: dict[str, int] = {}  # incident → its changes
        self._ids: set[str] = set()

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        return list(self._world.database._connection.execute(sql, values))

    def on_commit(self, process: Process) -> None:
        self._messages()
        self._one_for_each_cause()
        self._circuits()
        self._given_up(process)

    def _messages(self) -> None:
        fresh = self._rows(
            "SELECT number, event_id, subject, body FROM outbox WHERE number > ? AND topic = 'incident'"
            " ORDER BY number",
            self._number,
        )
        for number, event_id, cause, body in fresh:
            self._number = number
            data = json.loads(body)["data"]
            change, incident = data["change"], data["incident_id"]
            self._world.scheduler.counts[f"incident {change}"] += 1
            require(event_id not in self._ids, "every change has an id of its own", event=event_id)
            require(
                change in NEXT[self._last.get(cause)],
                "an incident opens, gets worse, and is resolved",
                before=self._last.get(cause),
                change=change,
            )
            self._ids.add(event_id)
            self._last[cause] = change
            self._told[incident] = self._told.get(incident, 0) + 1

    def _one_for_each_cause(self) -> None:
        open_now = set()
        for cause, incident, state, changes, *what in self._rows(
            "SELECT cause, incident_id, state, changes, about, name, error_class, error_code FROM incidents"
        ):
            require(changes == self._told.get(incident), "every change is told once", cause=what)
            told = self._last.get(cause)
            require((told == "resolved") == (state == "resolved"), "what is told last is so", cause=what)
            if state == "open":
                require(tuple(what) not in open_now, "one incident is open for each cause", cause=what)
                open_now.add(tuple(what))

    def _circuits(self) -> None:
        open_circuits = self._rows("SELECT provider FROM breakers WHERE state <> 'closed' ORDER BY 1")
        told = self._rows("SELECT name FROM incidents WHERE about = 'provider' AND state = 'open' ORDER BY 1")
        require(open_circuits == told, "an open circuit is an incident, a closed one is none")

    def _given_up(self, process: Process) -> None:
        """By what was written: whatever is held has an incident until its window succeeds."""
        found = self._rows(
            "SELECT s.subject, i.state FROM incident_subjects s JOIN incidents i ON i.cause = s.cause"
        )
        affected = dict(sorted(found, key=lambda row: str(row[1]), reverse=True))
        require("resolved" not in affected.values(), "no subject is affected by what is resolved")
        for name, parameters, landed in process.facts.get("told", ()):
            if name == "held.put":
                subject = parameters["subject"]
                require(affected.get(subject) == "open", "what is given up is an incident", run=subject)
            if name == "runs.succeed" and landed:
                left = self._rows(
                    "SELECT s.subject FROM incident_subjects s JOIN runs r ON r.run_id = ?"
                    " WHERE s.source_id = r.source_id AND s.window_start_ms = r.window_start_ms"
                    " AND s.window_end_ms = r.window_end_ms"
                    " AND s.partition_key = COALESCE(r.partition_key, '')",
                    parameters["run_id"],
                )
                require(not left, "what a window suffered from is over once it succeeds", runs=left)
