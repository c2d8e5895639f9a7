"""Dead-letter queues: what they hold is taken in, and says of itself that it came that way."""

from __future__ import annotations

from msgspec.structs import replace

from kfm.core.replays import DLQ_DRAIN
from kfm.core.wal import Intake, IntakeReport, Taken
from kfm.engine.ingesting import Ingesting
from kfm.engine.polling import hearing_of
from kfm.ingest.hearing import Check, hear_all
from kfm.ingest_ports import Message


class DeadLetters:
    """Makes messages durable; which of them are, and which units they are about."""

    def __init__(self, kernel: Ingesting, queue: str, check: Check | None = None) -> None:
        self._kernel = kernel
        self._queue = queue
        self._check = check
        self.announced: set[str] = set()
        self.report = IntakeReport()

    def hand_on(self, messages: list[Message]) -> list[str]:
        """The receipts of what is durable now. What is signed by an unknown hand for now is not."""
        kernel = self._kernel
        hearing = hearing_of(kernel, self._queue)
        later = {message.receipt for message in hear_all(hearing, messages, self._check)}
        intake = _drained(hearing.intake())
        self._add(kernel.wal.take_in(intake))
        self.announced.update(one.unit.wal_id for one in intake.taken)
        return [message.receipt for message in messages if message.receipt not in later]

    def _add(self, report: IntakeReport) -> None:
        names = IntakeReport.__struct_fields__
        self.report = IntakeReport(**{n: getattr(self.report, n) + getattr(report, n) for n in names})


def _drained(intake: Intake) -> Intake:
    return replace(intake, taken=tuple(map(_marked, intake.taken)))


def _marked(taken: Taken) -> Taken:
    return replace(taken, unit=replace(taken.unit, replay_reason=DLQ_DRAIN))
