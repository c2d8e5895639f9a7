"""What must hold after every commit of every process: histories, leases, attempts, switches, effects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfm.db import rows
from kfm.db.ledger_reader import LedgerReader
from kfm.db.packing import joined
from kfm.model.gates import switch_gate
from kfm.model.times import WAIT_MAX_MS
from kfm.model.units import TOPIC, IntakeBatch
from tests import unit_pages
from tests.simulation.announced import ends
from tests.simulation.announced.followers import FOLLOWED
from tests.simulation.checks_starts import StartChecks
from tests.simulation.judging import Violation, require
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.announced.feed import Posted, Thing
    from tests.simulation.announced.world import AnnouncedWorld

ATTEMPTS_MAX = 8
GRANTS_MAX = 5
# event → from which status to which; what is not here leaves the status as it is.
MOVES = {
    "created": ((None,), "pending"),
    "claimed": (("pending",), "in_progress"),
    "succeeded": (("in_progress",), "succeeded"),
    "failed": (("in_progress",), "failed"),
    "retry_scheduled": (("failed",), "pending"),
    "replayed": (("failed",), "pending"),
    "migrated": (("succeeded", "quarantined"), "pending"),
    "quarantined": (("failed", "pending"), "quarantined"),
}
NOTES = ("reissued", "removed", "stale", "ignored")
UNCHARGED = {"KFM408": "circuit refused", "SWITCHED_OFF": "switched off", "NOT_BEGUN": "not begun"}
LEASE_EXPIRED = "LEASE_EXPIRED"
CAP_MS = 1_200_000  # twice the longest backoff, which has jitter
SKEW_MS = 60_000  # by which the clock of a process may be set while it works
LATE_MS = 1_800_000  # after which a result that was made is recorded


@dataclass
class Seen:
    """A unit, as its history tells it."""

    dataset: str
    status: str | None = None
    version: int = 0
    attempts: int = 0
    not_before_ms: int = 0
    claimed_ms: int = 0
    lease_until_ms: int = 0
    worker_id: str | None = None
    alone: bool = False
    charged: int = 0  # attempts of the present grant
    grants: int = 1  # of the present content
    code: str | None = None  # of the last failure
    lapsed: bool = False
    content_version: int = 1
    done: set[int] = field(default_factory=set)  # content versions that succeeded
    moves: list[tuple[str, int]] = field(default_factory=list)


class Checks:
    def __init__(self, world: AnnouncedWorld) -> None:
        self.world = world
        self.units: dict[str, Seen] = {}
        self.counts: Counter[str] = Counter()
        self.heard: list[IntakeBatch] = []  # what became durable, in its order
        self.told: set[tuple[str, int]] = set()  # (unit, content version) whose success was told
        self.failures: set[tuple[str, int]] = set()
        self.replayed: set[tuple[str, str]] = set()
        self.arrivals = 0  # successes that a source waits for
        self.starts = StartChecks(world, LedgerReader(world.database), world.project)
        self._broken: Violation | None = None
        self._page = 0
        self._message = 0
        self._names = {thing.reading.wal_id: thing for thing in world.feed.things.values()}

    def all(self, sql: str, *values: Any) -> list[Any]:
        return list(self.world.database._connection.execute(sql, values))

    def thing(self, wal_id: str) -> Thing:
        return self._names[wal_id]

    # --- after a commit ----------------------------------------------------------------

    def on_commit(self, process: Process) -> None:
        """The first broken promise is the one that counts: what follows from it tells nothing."""
        self._told(lambda: self._look(process))

    def _told(self, look: Callable[[], None]) -> None:
        if self._broken is None:
            try:
                look()
            except Violation as violation:
                self._broken = violation
        if self._broken is not None:
            raise self._broken

    def _look(self, process: Process) -> None:
        intake = process.facts.pop("intake", None)
        if intake is not None:
            self.heard.append(intake)
        changed = process.facts["changed"]
        self.starts.on_commit(process, self.world.ledger_clock(process).now_ms())
        if "unit_pages" in changed:
            self._read_on()
        elif "units" in changed:
            self._renewed(process)
        if changed & {"items", "assets"}:
            self.catalogue_is_theirs()
        if "unit_deltas" in changed and self.world.dice.random() < 0.05:
            self.figures()

    def _renewed(self, process: Process) -> None:
        """Leases of units that made no transition."""
        for wal_id, until_ms in self.all(
            "SELECT wal_id, lease_until_ms FROM units WHERE status = 'in_progress'"
        ):
            seen = self.units[wal_id]
            if until_ms != seen.lease_until_ms:
                holder = self.world.process_of(seen.worker_id)
                rule = "only the worker that has a lease renews it"
                require(holder is process, rule, unit=wal_id, seen=seen)
                seen.lease_until_ms = until_ms
                self.counts["renewed"] += 1

    def _read_on(self) -> None:
        touched: set[str] = set()
        succeeded: set[tuple[str, int]] = set()
        pages = self.all(
            "SELECT number, event, status, at_ms, worker_id, members, packed FROM unit_pages "
            "WHERE number > ? ORDER BY number",
            self._page,
        )
        for number, event, status, at_ms, worker_id, members, packed in pages:
            self._page = number
            for wal_id, version, attempts, *rest in json.loads(joined(members, packed)):
                seen = self.units.get(wal_id)
                if seen is None:
                    seen = self.units[wal_id] = Seen(self.thing(wal_id).reading.dataset)
                self._move(seen, wal_id, event, status, version, attempts, at_ms, worker_id, dict(*rest))
                seen.moves.append((event, version))
                touched.add(wal_id)
                if event == "succeeded":
                    succeeded.add((wal_id, seen.content_version))
        self._messages(succeeded)
        for wal_id in touched:
            self._row(wal_id)

    def _move(
        self,
        seen: Seen,
        wal_id: str,
        event: str,
        status: str,
        version: int,
        attempts: int,
        at_ms: int,
        worker_id: str | None,
        details: dict[str, Any],
    ) -> None:
        facts = {"unit": wal_id, "event": event, "version": version, "seen": seen}
        if event in MOVES:
            before, after = MOVES[event]
            require(seen.status in before and status == after, "only permitted transitions", **facts)
            require(version == seen.version + 1, "every transition raises the version by one", **facts)
        else:
            require(event in NOTES and status == seen.status, "a note leaves the status as it is", **facts)
            quiet = event in ("stale", "ignored") or seen.status == "in_progress"
            require(
                version == seen.version + (not quiet), "a lease keeps its fence, others lose theirs", **facts
            )
        getattr(self, f"_{event}")(seen, at_ms, details, worker_id, facts)
        require(attempts == seen.attempts, "attempts are those that were opened", said=attempts, **facts)
        seen.status, seen.version = status, version

    # --- by event ----------------------------------------------------------------------

    def _created(self, seen: Seen, at_ms: int, _details: Any, _worker: Any, _facts: Any) -> None:
        seen.not_before_ms = 0

    def _claimed(self, seen: Seen, at_ms: int, _details: Any, worker_id: str | None, facts: Any) -> None:
        left_ms = seen.not_before_ms - at_ms
        require(
            left_ms <= 0 or left_ms > WAIT_MAX_MS, "nothing is claimed before its time", at_ms=at_ms, **facts
        )
        seen.claimed_ms = at_ms
        require(
            self._position(seen, in_flight=False), "nothing is claimed while its switch is thrown", **facts
        )
        seen.attempts = max(seen.attempts, 1)
        seen.charged += 1
        require(seen.charged <= ATTEMPTS_MAX, "no grant has more than its attempts", **facts)
        seen.lease_until_ms = at_ms + self.world.settings.lease_ms
        seen.worker_id = worker_id

    def _succeeded(self, seen: Seen, _at_ms: int, _details: Any, _worker: Any, facts: Any) -> None:
        require(self._position(seen, in_flight=True), "nothing succeeds while its switch says stop", **facts)
        require(
            seen.content_version not in seen.done, "a content version succeeds once", done=seen.done, **facts
        )
        seen.done.add(seen.content_version)
        seen.alone = False

    def _failed(self, seen: Seen, at_ms: int, details: Any, _worker: Any, facts: Any) -> None:
        seen.code, seen.lapsed = details["error_code"], False
        if seen.code == LEASE_EXPIRED:
            self.counts["lapsed"] += 1
            gone = self.world.is_dead(seen.worker_id or "")
            ahead = (
                at_ms < seen.claimed_ms - self.world.settings.lease_ms
            )  # when it was claimed, the clock was
            require(
                gone or ahead or at_ms >= seen.lease_until_ms,
                "a lease holds until it lapses",
                at_ms=at_ms,
                **facts,
            )
            if not seen.alone:
                self.counts["isolated"] += 1
                seen.charged, seen.alone = max(0, seen.charged - 1), True
            seen.lapsed = True
        elif seen.code in UNCHARGED:
            seen.charged = max(0, seen.charged - 1)
            self.counts[UNCHARGED[seen.code]] += 1

    def _retry_scheduled(self, seen: Seen, at_ms: int, details: Any, _worker: Any, facts: Any) -> None:
        require(seen.charged < ATTEMPTS_MAX, "what is spent is not tried again", **facts)
        seen.not_before_ms = details["not_before_ms"]
        if seen.not_before_ms and not self.world.ahead:
            longest_ms = WAIT_MAX_MS if seen.code in UNCHARGED else CAP_MS + SKEW_MS
            require(
                -LATE_MS <= seen.not_before_ms - at_ms <= longest_ms,
                "the next attempt is due by the ledger's clock",
                at_ms=at_ms,
                **facts,
            )
        if seen.code not in UNCHARGED:
            seen.attempts += 1

    def _replayed(self, seen: Seen, _at_ms: int, details: Any, _worker: Any, facts: Any) -> None:
        seen.attempts += 1
        if "replay_id" not in details:
            self._granted(seen, details)
            return
        key = (details["replay_id"], facts["unit"])
        require(key not in self.replayed, "a replay brings a unit back once", key=key, **facts)
        self.replayed.add(key)
        self.counts["replayed"] += 1
        seen.charged, seen.not_before_ms = 0, 0
        seen.grants += 1
        require(seen.grants <= GRANTS_MAX, "no content is granted more than its share", **facts)

    _migrated = _replayed

    def _quarantined(self, seen: Seen, _at_ms: int, _details: Any, _worker: Any, facts: Any) -> None:
        require(seen.code not in (None, *UNCHARGED), "only what was tried is quarantined", **facts)

    def _reissued(self, seen: Seen, _at_ms: int, details: Any, _worker: Any, _facts: Any) -> None:
        if seen.status == "in_progress":
            seen.charged, seen.grants, seen.content_version = 1, 1, details["content_version"]
            self.counts["reissued in progress"] += 1
        else:
            self._granted(seen, details)

    def _removed(self, seen: Seen, _at_ms: int, _details: Any, _worker: Any, _facts: Any) -> None:
        self.counts["removed"] += 1

    def _stale(self, seen: Seen, _at_ms: int, _details: Any, _worker: Any, _facts: Any) -> None:
        self.counts["stale"] += 1

    def _ignored(self, seen: Seen, _at_ms: int, _details: Any, _worker: Any, _facts: Any) -> None:
        self.counts["ignored"] += 1

    def _granted(self, seen: Seen, details: Any) -> None:
        seen.charged, seen.grants, seen.alone, seen.not_before_ms = 0, 1, False, 0
        seen.content_version = details.get("content_version", seen.content_version)

    def _position(self, seen: Seen, *, in_flight: bool) -> bool:
        found = self.all("SELECT scope, position, rationale, actor, set_at_ms FROM switches")
        switches = [rows.switch_from(row) for row in found]
        return switch_gate(switches, seen.dataset, "none", in_flight).allowed

    # --- rows and effects --------------------------------------------------------------

    def _row(self, wal_id: str) -> None:
        seen = self.units[wal_id]
        ((*found, not_before_ms),) = self.all(
            "SELECT status, version, attempts, content_version, grant_attempts, alone, grants, not_before_ms "
            "FROM units WHERE wal_id = ?",
            wal_id,
        )
        if seen.status == "pending" and not seen.not_before_ms:
            require(not_before_ms == 0, "what is new is due at once", unit=wal_id, found=not_before_ms)
        told = [
            seen.status,
            seen.version,
            seen.attempts,
            seen.content_version,
            seen.charged,
            int(seen.alone),
            seen.grants,
        ]
        require(found == told, "a unit is what its history says", found=found, told=told, moves=seen.moves)

    def _messages(self, succeeded: set[tuple[str, int]]) -> None:
        """Successes are told in their own transaction, once for each content version."""
        told: set[tuple[str, int]] = set()
        for number, body, packed in self.all(
            "SELECT number, body, packed FROM outbox WHERE number > ? AND topic = ? ORDER BY number",
            self._message,
            TOPIC,
        ):
            self._message = number
            for ended in json.loads(joined(body, packed)):
                wal_id = ended["wal_id"]
                if ended.get("error_code") is None:
                    key = (wal_id, ended.get("content_version", 1))
                    require(key not in self.told, "a content version has one success in lineage", key=key)
                    told.add(key)
                    self.arrivals += ended["dataset"] == FOLLOWED and ended.get("item_id") is not None
                    self.told.add(key)
                else:
                    key = (wal_id, ended["attempt"])
                    require(key not in self.failures, "an attempt fails once in lineage", key=key, told=ended)
                    self.failures.add(key)
        require(told == succeeded, "lineage tells exactly what succeeded", told=told, succeeded=succeeded)

    def catalogue_is_theirs(self) -> None:
        """Whatever the catalogue shows, a unit has succeeded with: no effect without its status."""
        for wal_id, content_version in self.shown():
            seen = self.units.get(wal_id)
            require(
                seen is not None and content_version in seen.done and content_version == max(seen.done),
                "the catalogue shows the last success and nothing else",
                unit=wal_id,
                content_version=content_version,
                seen=seen,
            )

    def nothing_waits_for_years(self) -> None:
        """A clock that was ahead, and was set right, leaves nothing waiting for its time to come."""
        due = "SELECT MAX(CASE status WHEN 'pending' THEN not_before_ms ELSE lease_until_ms END) FROM units"
        ((latest_ms,),) = self.all(f"{due} WHERE status IN ('pending', 'in_progress')")
        left_ms = (latest_ms or 0) - self.world.scheduler.now_ms
        require(left_ms <= WAIT_MAX_MS, "nothing waits longer than anything may", left_ms=left_ms)

    def shown(self) -> list[tuple[str, int]]:
        texts = [text for _, text in unit_pages.data_files(self.all) if text is not None]
        texts += [text for (text,) in self.all("SELECT facts FROM assets")]
        assets = [json.loads(text) for text in texts]
        return [(asset["wal_id"], asset["content_version"]) for asset in assets]

    def shows(self, collection_id: str, item_id: str) -> bool:
        name = (collection_id, item_id)
        return any(row[1:3] == name and row[12] is not None for row in unit_pages.items(self.all))

    def figures(self) -> None:
        """Figures say what counting would."""
        counted = {
            (a, b): n for a, b, n in self.all("SELECT dataset, status, COUNT(*) FROM units GROUP BY 1, 2")
        }
        kept: Counter[tuple[str, str]] = Counter()
        for table in ("unit_totals", "unit_deltas"):
            for dataset, name, amount in self.all(f"SELECT dataset, name, amount FROM {table}"):
                kept[dataset, name] += amount
        statuses = {key: n for key, n in kept.items() if key[1] in ends.STATUSES and n}
        require(statuses == counted, "figures are what counting says", kept=statuses, counted=counted)

    # --- the queue ---------------------------------------------------------------------

    def acknowledged(self, posted: Posted) -> None:
        """Each record of an acknowledged message is durable in one place or the other."""
        self._told(lambda: ends.is_durable(self, posted))

    # --- the end -----------------------------------------------------------------------

    def to_be_mended(self) -> list[Thing]:
        return ends.to_be_mended(self)

    def at_the_end(self) -> None:
        ends.at_the_end(self)
