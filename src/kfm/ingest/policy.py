"""What is taken in although no dataset describes it: only what a person has named."""

from __future__ import annotations

from kfm.core.records import Record


class Generic(Record, frozen=True):
    """Objects of this bucket that no known dataset claims become plain items of `dataset`."""

    dataset: str
    bucket: str
    provider: str = "aws"


class IntakePolicy(Record, frozen=True):
    """Beyond the known datasets: generic ones, and topics of one's own."""

    generic: tuple[Generic, ...] = ()
    topics: tuple[str, ...] = ()


NO_POLICY = IntakePolicy()
