"""Local clocks: the stretches of time in which a zone's clocks run evenly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kfm.core.times import MS_MAX


class Stretch(NamedTuple):
    """A span of instants with one offset: what the clock shows is the instant plus the offset."""

    start_ms: int
    end_ms: int
    offset_ms: int

    @property
    def shown_start_ms(self) -> int:
        """What the local clock shows at the start, counted as if it were UTC."""
        return self.start_ms + self.offset_ms

    @property
    def shown_end_ms(self) -> int:
        return self.end_ms + self.offset_ms


def stretches(zone: str, start_ms: int, end_ms: int = MS_MAX) -> Iterator[Stretch]:
    """The span in pieces of even time, in order, without a gap between them."""
    from whenever import Instant

    moment = Instant.from_timestamp(start_ms, unit="millisecond").to_tz(zone)
    while start_ms < end_ms:
        offset_ms = int(moment.offset.total("milliseconds"))
        following = moment.next_transition()
        while following is not None and following.offset == moment.offset:  # only the zone's letters change
            following = following.next_transition()
        if following is None:
            yield Stretch(start_ms, end_ms, offset_ms)
            return
        until_ms = min(int(following.timestamp(unit="millisecond")), end_ms)
        yield Stretch(start_ms, until_ms, offset_ms)
        start_ms, moment = until_ms, following


def offset_ms(zone: str, at_ms: int) -> int:
    """How far the local clock is ahead of UTC at an instant."""
    from whenever import Instant

    zoned = Instant.from_timestamp(at_ms, unit="millisecond").to_tz(zone)
    return int(zoned.offset.total("milliseconds"))
