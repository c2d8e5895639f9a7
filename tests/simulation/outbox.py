"""A collector of events that is up, down or in between, and those who carry events to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from kfm.db.ledger import Ledger
from kfm.lineage.delivery import BACKOFF_BASE_MS, BACKOFF_MAX_MS, deliver_messages
from kfm.lineage.emitter import TOPIC
from kfm.model.errors import BackendUnavailable, CollectorRefused
from kfm.model.retry import backoff_ms
from kfm.model.runs import OutboxMessage
from tests.simulation.adapters import SimClock, SimDatabase
from tests.simulation.judging import require
from tests.simulation.lane import Lane

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World

State = Literal["up", "down", "flapping", "forgetful"]
STATES: tuple[State, ...] = ("up", "up", "down", "flapping", "forgetful")
DAY_MS = 86_400_000


class ClaimingStore(Ledger):
    """Remembers how long a claim holds, and tells when a process acts on one that has lapsed."""

    def __init__(self, database: Any, process: Process, lane: Lane) -> None:
        super().__init__(database)
        self._process = process
        self._lane = lane

    def claim_messages(self, topic: str, limit: int, claim_ms: int) -> list[OutboxMessage]:
        self._process.facts["claimed_until"] = self._lane.now_ms + claim_ms
        return super().claim_messages(topic, limit, claim_ms)

    def messages_put_back(self, numbers: Sequence[int], not_before_ms: int) -> None:
        super().messages_put_back(numbers, not_before_ms)
        overslept(self._lane, self._process)


def overslept(lane: Lane, process: Process) -> bool:
    if lane.now_ms > process.facts["claimed_until"]:
        lane.counts["claim lapsed"] += 1
    return lane.counts["claim lapsed"] > 0


class Mail:
    """What has arrived, and the rules about it."""

    def __init__(self, world: World, state: State | None) -> None:
        self._world = world
        self.lane = Lane(world.scheduler, world.seed)
        self.state: State = state or self.lane.rng.choice(STATES)
        self.arrived: dict[str, str] = {}  # event id → body
        self._latest: dict[str, int] = {}  # subject → the number of the last one that came for the first time
        self._troubled: dict[int, tuple[int, int]] = {}  # number → when it failed, at which try
        self._refuses = 0.0 if state else self.lane.rng.choice((0.0, 0.0, 0.05))
        self._names = 0
        self._is_open = True  # the world goes on

    # --- carrying ----------------------------------------------------------------------

    def employ(self) -> None:
        """One or two deliverers more."""
        rng = self.lane.rng
        for _ in range(rng.randrange(1, 3)):
            batch, passes = rng.choice((1, 3, 20)), rng.randrange(2, 8)
            self._names += 1
            self.lane.spawn(
                f"d{self._names}",
                lambda process, batch=batch, passes=passes: self._carry(process, batch, passes),
            )

    def _carry(self, process: Process, batch: int, passes: int) -> None:
        for _ in range(passes):
            self._pass(process, batch, self.lane.rng.choice((200, 5_000)))
            self.lane.sleep(process, self.lane.rng.randrange(50, 3_000))

    def _pass(self, process: Process, batch: int, deadline_ms: int) -> Any:
        clock = SimClock(self.lane, process)
        database = SimDatabase(self._world.database, self.lane, process, clock, lambda _process: None)
        store = ClaimingStore(database, process, self.lane)
        told = deliver_messages(
            store,
            lambda: SimCollector(self, process),
            clock,
            topic=TOPIC,
            batch=batch,
            deadline_ms=deadline_ms,
        )
        if told.sent and self._is_open:
            self.lane.counts["delivered early"] += told.sent
        if told.trouble:
            self.lane.counts["delivery troubled"] += 1
        self.check()
        return told

    # --- the rules -----------------------------------------------------------------------

    def take(self, process: Process, messages: Sequence[OutboxMessage]) -> int:
        """The collector's side of one delivery."""
        lane = self.lane
        lane.point(process, "collector")
        for message in messages:
            self._not_too_soon(process, message)
        if self._is_away():
            return self._fail(messages, "simulated: no collector")
        taken = 0
        for message in messages:
            if lane.unlucky(self._refuses) and lane.chances.switch:
                if taken:
                    return taken
                raise CollectorRefused("simulated: not like this")
            self._accept(message)
            taken += 1
            if self.state in ("flapping", "forgetful") and lane.unlucky(0.2):
                if self.state == "forgetful":
                    return self._fail(messages, "simulated: the collector's answer was lost")
                return taken
        return taken

    def _is_away(self) -> bool:
        return self.state == "down" or (self.state == "flapping" and self.lane.unlucky(0.5))

    def _fail(self, messages: Sequence[OutboxMessage], why: str) -> int:
        for message in messages:
            self._troubled[message.number] = (self.lane.now_ms, message.tries)
        raise BackendUnavailable(why)

    def _accept(self, message: OutboxMessage) -> None:
        before = self.arrived.get(message.event_id)
        if before is not None:
            require(
                before == message.body, "an event is the same each time it is sent", event=message.event_id
            )
            self.lane.counts["arrived again"] += 1
            return
        latest = self._latest.get(message.subject, 0)
        require(message.number > latest, "the events of a run come in their order", event=message.event_id)
        self._latest[message.subject] = message.number
        self.arrived[message.event_id] = message.body

    def _not_too_soon(self, process: Process, message: OutboxMessage) -> None:
        """A collector in trouble gets no message for a while."""
        failed_ms, tries = self._troubled.pop(message.number, (0, 0))
        if overslept(self.lane, process) or not failed_ms:
            return  # who overslept his claim knows nothing of what others tried since
        waited_ms = self.lane.now_ms - failed_ms
        require(
            waited_ms >= min(BACKOFF_BASE_MS, backoff_ms(BACKOFF_BASE_MS, BACKOFF_MAX_MS, tries)) - 1,
            "a collector in trouble is not asked at once again",
            waited_ms=waited_ms,
            number=message.number,
        )

    def check(self) -> None:
        """Only what has arrived is marked as delivered."""
        for event_id, body in self._rows("delivered_at_ms IS NOT NULL"):
            require(
                self.arrived.get(event_id) == body, "what is marked as delivered has arrived", event=event_id
            )

    def at_the_end(self) -> None:
        """The collector is back: everything arrives, and nothing else has."""
        self.lane.end()
        self._is_open = False
        self.state, self._refuses = "up", 0.0
        waiting = True
        for _ in range(3):  # claims lapse, and what was parked comes up again
            self._world.scheduler.now_ms += 2 * DAY_MS
            last = self.lane.spawn("postman", lambda process: self._pass(process, 50, 3_600_000))
            self.lane.drain()
            waiting = last.failure is not None or bool(self._rows("delivered_at_ms IS NULL"))
        require(not waiting, "every event is delivered once the collector is back")
        posted = dict(self._rows("1 = 1"))
        require(self.arrived == posted, "what arrived is what was posted, byte by byte")

    def _rows(self, condition: str) -> list[tuple[str, str]]:
        sql = f"SELECT event_id, body FROM outbox WHERE topic = '{TOPIC}' AND {condition} ORDER BY number"
        return list(self._world.database._connection.execute(sql))


class SimCollector:
    def __init__(self, mail: Mail, process: Process) -> None:
        self._mail = mail
        self._process = process

    def deliver(self, messages: Sequence[OutboxMessage]) -> int:
        return self._mail.take(self._process, messages)

    def close(self) -> None: ...
