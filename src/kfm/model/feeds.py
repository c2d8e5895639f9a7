"""Announced feeds: how often objects of each product are expected, and what became of each product's hours.

An hour of a product is a window like any other: this module says which hours are expected and makes the
facts of one, `kfm.model.completeness` says its state and the health of the feed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import count

from msgspec.structs import replace

from kfm.model.completeness import (
    NOTHING,
    WINDOWS_MAX,
    ExpectedWindow,
    WindowFacts,
    WindowVerdict,
    verdict,
)
from kfm.model.records import Record
from kfm.model.settings import FeedSettings, Settings

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# Announcements may come so long after their time; what has not come then is found by a listing only.
LATE_MS = DAY_MS
LATENCY_MS = HOUR_MS  # where neither the dataset nor the configuration says how late objects are
RULE = "PT1H"  # what is expected of a product since it was configured: hours
ALL_HOURS = tuple(range(24))


# --- what is expected ----------------------------------------------------------------


class Cadence(Record, frozen=True):
    """How often objects of some products are made: at least so many in an hour, there so long after its
    end."""

    products: tuple[str, ...]  # names or patterns
    per_hour: int  # of one product of one platform
    latency_ms: int
    platforms: tuple[str, ...] = ()  # names or patterns; none: whichever
    hours: tuple[int, ...] = ALL_HOURS  # of the day, in UTC: a model's cycles
    ahead_ms: int = 0  # how far a cycle's forecasts reach beyond its hour

    def fits(self, product: str, platform: str | None) -> bool:
        if not any(fnmatchcase(product, pattern) for pattern in self.products):
            return False
        return not self.platforms or (
            platform is not None and any(fnmatchcase(platform, pattern) for pattern in self.platforms)
        )


class ShippedFeed(Record, frozen=True):
    """What is known of an announced dataset without any configuration."""

    cadences: tuple[Cadence, ...] = ()
    # (address, the only platform in it), the main ones before copies
    buckets: tuple[tuple[str, str | None], ...] = ()

    def bucket_of(self, platform: str | None) -> str | None:
        """Where objects of a platform lie."""
        fitting = (address for address, only in self.buckets if only is None or platform in (None, only))
        return next(fitting, None)


NOTHING_SHIPPED = ShippedFeed()


class FeedProduct(Record, frozen=True):
    """One product of a feed, of one platform or of all together, with what is expected of its hours."""

    dataset: str
    product: str
    platform: str | None
    since_ms: int
    # The first that has the hour of the day holds; none: shown by its lag alone.
    cadences: tuple[Cadence, ...]

    @property
    def id(self) -> str:
        return product_id(self.dataset, self.product, self.platform)

    @property
    def first_ms(self) -> int:
        """The first whole hour that is expected."""
        return -(-self.since_ms // HOUR_MS) * HOUR_MS

    @property
    def rule(self) -> str:
        """By what its hours are judged: with another rule all of them are looked at anew."""
        said = (f"{one.per_hour}+{one.latency_ms}@{','.join(map(str, one.hours))}" for one in self.cadences)
        return f"{RULE} {self.since_ms} {' '.join(said)}"

    def cadence_at(self, hour_ms: int) -> Cadence | None:
        of_day = hour_ms // HOUR_MS % 24
        return next((one for one in self.cadences if of_day in one.hours), None)


def product_id(dataset: str, product: str, platform: str | None) -> str:
    """The name of a product's row: what a source's id is to its windows. No part has a space in it."""
    return " ".join(part for part in (dataset, product, platform) if part is not None)


def is_product(source_id: str) -> bool:
    """Is it the name of a product's row, and not of a source?"""
    return " " in source_id


def feed_names(settings: Settings) -> list[str]:
    """The announced datasets that are looked at as feeds, in their order."""
    return list(dict.fromkeys(one.dataset for one in settings.ingest.feeds))


def feed_products(
    settings: Settings, dataset: str, shipped: ShippedFeed, since: Mapping[tuple[str, str], int], now_ms: int
) -> list[FeedProduct]:
    """The products that are expected of a feed, each once. What is not remembered yet is expected from now
    on."""
    found: dict[str, FeedProduct] = {}
    for feed in settings.ingest.feeds:
        if feed.dataset != dataset:
            continue
        for product, platform in _asked_for(feed):
            name = product_id(dataset, product, platform)
            since_ms = since.get((name, RULE), now_ms) if feed.since is None else _instant(feed.since)
            found.setdefault(
                name,
                FeedProduct(
                    dataset=dataset,
                    product=product,
                    platform=platform,
                    since_ms=since_ms,
                    cadences=_cadences(feed, product, platform, shipped),
                ),
            )
    return list(found.values())


def feed_rules(settings: Settings) -> list[tuple[str, str]]:
    """The rows of which hours are expected since they are configured."""
    return [
        (product_id(feed.dataset, product, platform), RULE)
        for feed in settings.ingest.feeds
        for product, platform in _asked_for(feed)
    ]


def _asked_for(feed: FeedSettings) -> Iterator[tuple[str, str | None]]:
    platforms: tuple[str | None, ...] = feed.platforms or (None,)
    return ((product, platform) for product in feed.products for platform in platforms)


def _cadences(
    feed: FeedSettings, product: str, platform: str | None, shipped: ShippedFeed
) -> tuple[Cadence, ...]:
    """As declared; what is not declared is as shipped."""
    known = tuple(one for one in shipped.cadences if one.fits(product, platform))
    latency_ms = None if feed.within is None else _duration_ms(feed.within)
    if feed.per_hour is not None:
        first = known[0] if known else None
        late_ms = latency_ms if latency_ms is not None else (first.latency_ms if first else LATENCY_MS)
        own = Cadence(
            products=(product,),
            per_hour=feed.per_hour,
            latency_ms=late_ms,
            hours=tuple(sorted(feed.hours)) or _hours(known),
            ahead_ms=first.ahead_ms if first else 0,
        )
        return (own,)
    made = []
    for one in known:
        hours = tuple(hour for hour in one.hours if not feed.hours or hour in feed.hours)
        made.append(
            replace(one, hours=hours, latency_ms=one.latency_ms if latency_ms is None else latency_ms)
        )
    return tuple(one for one in made if one.hours)


def _hours(known: Sequence[Cadence]) -> tuple[int, ...]:
    return tuple(sorted({hour for one in known for hour in one.hours})) or ALL_HOURS


def _duration_ms(text: str) -> int:
    from kfm.model.windows import parse_duration, shifted

    return shifted(0, parse_duration(text), "UTC")


def _instant(text: str) -> int:
    from kfm.model.windows import parse_instant

    return parse_instant(text, "UTC")


class ExpectedHour(Record, frozen=True):
    """An hour of a product, and how many objects it has to have."""

    window: ExpectedWindow
    objects_min: int


def expected_hours(
    product: FeedProduct, now_ms: int, start_ms: int | None = None, end_ms: int | None = None
) -> Iterator[ExpectedHour]:
    """The hours that are over and touch a span, in order; no more than the newest `WINDOWS_MAX`."""
    first_ms = max(product.first_ms, (now_ms // HOUR_MS - WINDOWS_MAX) * HOUR_MS)
    if start_ms is not None:
        first_ms = max(first_ms, start_ms // HOUR_MS * HOUR_MS)
    last_ms = now_ms if end_ms is None else min(now_ms, end_ms + HOUR_MS - 1)
    for hour_ms in range(first_ms, last_ms // HOUR_MS * HOUR_MS, HOUR_MS):
        made = expected_hour(product, hour_ms)
        if made is not None:
            yield made


def expected_hour(product: FeedProduct, hour_ms: int) -> ExpectedHour | None:
    cadence = product.cadence_at(hour_ms)
    if cadence is None or hour_ms < product.first_ms:
        return None
    end_ms = hour_ms + HOUR_MS
    due_ms = end_ms + cadence.latency_ms
    window = ExpectedWindow(
        source_id=product.id,
        start_ms=hour_ms,
        end_ms=end_ms,
        asked_ms=end_ms,
        due_ms=due_ms,
        until_ms=due_ms + LATE_MS,
    )
    return ExpectedHour(window=window, objects_min=cadence.per_hour)


# --- what became of it ---------------------------------------------------------------


class HourCounts(Record, frozen=True):
    """The objects of one product, or of some, whose data time is in one hour. What once was there counts as
    there: neither new bytes under its key nor a later removal upstream make a gap."""

    there: int = 0
    running: int = 0
    waiting: int = 0  # for their first attempt
    retrying: int = 0
    failed: int = 0
    quarantined: int = 0
    newest_ms: int | None = None  # data time of the newest that is there
    ended_ms: int | None = None  # when the last of them was recorded
    code: str | None = None  # of an object that failed, or is quarantined
    announced: int = 0  # whose announcement told of them, and not a listing
    delay_ms: int = 0  # of all these together: from data time to intake


NO_OBJECTS = HourCounts()


def together(found: Iterable[HourCounts]) -> HourCounts:
    """All of them as one."""
    listed = list(found)
    if len(listed) == 1:
        return listed[0]
    return HourCounts(
        there=sum(one.there for one in listed),
        running=sum(one.running for one in listed),
        waiting=sum(one.waiting for one in listed),
        retrying=sum(one.retrying for one in listed),
        failed=sum(one.failed for one in listed),
        quarantined=sum(one.quarantined for one in listed),
        newest_ms=max((one.newest_ms for one in listed if one.newest_ms is not None), default=None),
        ended_ms=max((one.ended_ms for one in listed if one.ended_ms is not None), default=None),
        code=max((one.code for one in listed if one.code is not None), default=None),
        announced=sum(one.announced for one in listed),
        delay_ms=sum(one.delay_ms for one in listed),
    )


def hour_facts(objects_min: int, counts: HourCounts, settled: WindowFacts = NOTHING) -> WindowFacts:
    """What is known of an hour, as facts of a window. It is there with its objects, not with the first of
    them."""
    if counts.there >= objects_min:
        return replace(settled, run_status="success", outcome="published", run_ended_ms=counts.ended_ms)
    facts = settled
    if counts.running:
        facts = replace(facts, run_status="running", is_live=True)
    elif counts.failed:
        facts = replace(facts, run_status="failed", run_error=counts.code)
    if counts.quarantined:
        facts = replace(facts, held_code=counts.code)
    if counts.waiting or counts.retrying:
        facts = replace(facts, request_state="open", blocked_by=None if counts.waiting else "retry")
    return facts


def judged_hour(
    expected: ExpectedHour, counts: HourCounts, settled: WindowFacts, now_ms: int
) -> WindowVerdict:
    """The state of an hour."""
    facts = hour_facts(expected.objects_min, counts, settled)
    made = verdict(expected.window, facts, now_ms)
    return replace(made, objects=counts.there, objects_min=expected.objects_min)


# --- hours that were found settled ---------------------------------------------------


class SettledHours(Record, frozen=True):
    """The hours of a product before a mark that are there: all but those that are looked at by themselves."""

    product: FeedProduct
    until_ms: int
    but: frozenset[int]

    @property
    def source_id(self) -> str:
        return self.product.id

    @property
    def count(self) -> int:
        first, until = self.product.first_ms // HOUR_MS, self.until_ms // HOUR_MS
        if until <= first:
            return 0
        days, rest = divmod(until - first, 24)
        of_day = {hour for one in self.product.cadences for hour in one.hours}
        some = sum((first + hour) % 24 in of_day for hour in range(rest))
        return days * len(of_day) + some - len(self.but)

    def last_end_ms(self, limit_ms: int | None = None) -> int | None:
        """The end of the last of them, at a limit or before it."""
        end_ms = self.until_ms // HOUR_MS * HOUR_MS
        if limit_ms is not None:
            end_ms = min(end_ms, limit_ms // HOUR_MS * HOUR_MS)
        for hour_ms in count(end_ms - HOUR_MS, -HOUR_MS):
            if hour_ms < self.product.first_ms:
                return None
            if hour_ms not in self.but and self.product.cadence_at(hour_ms) is not None:
                return hour_ms + HOUR_MS
        return None


def settled_hours(product: FeedProduct, mark_ms: int | None, looked_at: Iterable[int]) -> SettledHours:
    """`looked_at`: the hours before the mark that are judged by themselves."""
    until_ms = product.first_ms if mark_ms is None else mark_ms
    but = frozenset(
        hour_ms
        for hour_ms in looked_at
        if product.first_ms <= hour_ms < until_ms and product.cadence_at(hour_ms) is not None
    )
    return SettledHours(product=product, until_ms=until_ms, but=but)
