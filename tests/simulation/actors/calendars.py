"""Windows of one length tile time, in every zone, across every change of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from kfm.model.errors import KfmError, UsageError, WindowError
from kfm.model.records import Window
from kfm.model.times import parse_rfc3339, rfc3339
from kfm.model.windows import next_window, parse_instant, previous_window, resolve_window
from tests.simulation.actors.scene import Scene, refused
from tests.simulation.judging import require

HOUR_MS = 3_600_000
ZONES = (
    "UTC",
    "America/Chicago",
    "Europe/Berlin",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Sao_Paulo",
    "Africa/Casablanca",
)
# The shortest and the longest that a window of this length may be, in hours.
ALIGNED = {
    "P1D": (22.5, 25.5),
    "P7D": (167, 169),
    "P1W": (167, 169),
    "P1M": (28 * 24 - 1, 31 * 24 + 1),
    "P3M": (90 * 24 - 1, 92 * 24 + 1),
    "P1Y": (365 * 24 - 1, 366 * 24 + 1),
    "PT6H": (0.5, 6),
    "PT15M": (0.25, 0.25),
    "PT1H": (0.5, 1),
}
WRONG = (
    "P", "PT", "P0D", "P1DT1H", "PT7H", "P-1D", "1D", "", "P1H", "P9999999Y", "P99999Y",
    "2026-02-30/P1D", "2026-01-02/2026-01-01", "2026-01-01/2026-01-01", "2026-01-01T10:00/x",
    "9999-12-31/P1D", "2026-01-01/P9999Y", "x/P1D", "2026-13-01T00:00:00Z/P1D",
    "2026-01-01T25:00/P1D", "2026-01-01T00:00:00+99:00/P1D",
)  # fmt: skip


def keep_time(scene: Scene) -> None:
    rng = scene.rng
    for _ in range(4):
        scene.pause("window.resolve")
        zone = rng.choice(ZONES)
        spec = rng.choice(list(ALIGNED))
        at_ms = scene.now_ms - rng.randrange(0, 5 * 365) * 24 * HOUR_MS
        if rng.random() < 0.7:
            at_ms = _clock_change(scene, zone, at_ms)
        _aligned(spec, zone, at_ms)
        _named(scene, zone, at_ms)
    spec = rng.choice(WRONG)
    refused(WindowError, lambda: resolve_window(spec, "UTC", scene.now_ms), "no window without a meaning")
    refused(WindowError, lambda: resolve_window("P1D", "Moon/Base", scene.now_ms), "no window without a zone")
    _instants(scene)


def _clock_change(scene: Scene, zone: str, near_ms: int) -> int:
    """A moment within a day or so of a change of the clocks, if the zone has one within a year."""
    info = ZoneInfo(zone)

    def offset(at_ms: int) -> object:
        return datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(info).utcoffset()

    low_ms = near_ms
    for week in range(1, 53):
        high_ms = near_ms + week * 7 * 24 * HOUR_MS
        if offset(high_ms) == offset(low_ms):
            low_ms = high_ms
            continue
        while high_ms - low_ms > HOUR_MS:
            middle_ms = (low_ms + high_ms) // 2
            low_ms, high_ms = (
                (middle_ms, high_ms) if offset(middle_ms) == offset(low_ms) else (low_ms, middle_ms)
            )
        return high_ms + scene.rng.randrange(0, 30) * HOUR_MS
    return near_ms


def _aligned(spec: str, zone: str, now_ms: int) -> None:
    window = resolve_window(spec, zone, now_ms)
    require(window.end_ms <= now_ms, "a window is complete", spec=spec, zone=zone, now_ms=now_ms)
    after = next_window(window, zone)
    require(after.start_ms == window.end_ms, "windows leave no gap", spec=spec, zone=zone)
    require(after.end_ms > now_ms, "it is the last complete one", spec=spec, zone=zone, now_ms=now_ms)
    before = previous_window(window, zone)
    require(before.end_ms == window.start_ms, "windows leave no gap", spec=spec, zone=zone)
    require(next_window(before, zone) == window, "there and back again", spec=spec, zone=zone)
    low, high = ALIGNED[spec]
    for each in (before, window, after):
        hours = (each.end_ms - each.start_ms) / HOUR_MS
        leap = zone == "Pacific/Apia" or low <= hours <= high  # a zone that once left out a day
        require(leap, "a window is as long as it says", spec=spec, zone=zone, hours=hours)
    if not spec.startswith("PT"):
        local = datetime.fromtimestamp(window.start_ms // 1000, ZoneInfo(zone))
        first = local - timedelta(seconds=1)
        require(
            first.date() < local.date(), "a window of days begins with a day", zone=zone, local=str(local)
        )


def _named(scene: Scene, zone: str, at_ms: int) -> None:
    """A start that a person wrote down means the same whichever way it was written."""
    rng = scene.rng
    start_ms = at_ms // 1000 * 1000
    days = rng.randrange(1, 4)
    span = rng.choice((f"P{days}D", "P1M", "P1W", "P1DT12H", "PT90M"))
    window = resolve_window(f"{rfc3339(start_ms)}/{span}", zone, scene.now_ms)
    require(window.start_ms == start_ms, "a named start is kept", window=window)
    after = next_window(window, zone)
    require(after.start_ms == window.end_ms, "named windows leave no gap", span=span, zone=zone)
    before = previous_window(window, zone)
    require(before.end_ms == window.start_ms, "named windows leave no gap", span=span, zone=zone)
    both = resolve_window(f"{rfc3339(window.start_ms)}/{rfc3339(window.end_ms)}", zone, scene.now_ms)
    require(
        (both.start_ms, both.end_ms) == (window.start_ms, window.end_ms), "an end may be written out, too"
    )
    shifted = [next_window(both, zone), previous_window(both, zone)]
    length = both.end_ms - both.start_ms
    require(all(one.end_ms - one.start_ms == length for one in shifted), "explicit windows keep their length")


def _instants(scene: Scene) -> None:
    rng = scene.rng
    for _ in range(4):
        ms = rng.randrange(-(10**13), 10**14)
        minutes = rng.randrange(-1439, 1440)
        offset = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
        local = rfc3339(ms + minutes * 60_000).removesuffix("Z")
        require(parse_rfc3339(local + offset) == ms, "an instant is one instant in every offset", ms=ms)
        require(parse_rfc3339(rfc3339(ms)) == ms, "there and back again", ms=ms)
    for wrong in (
        "2026-01-01",
        "2026-02-30T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "2026-01-01T00:00:00+24:00",
    ):
        refused(UsageError, lambda text=wrong: parse_rfc3339(text), "what is no instant is refused")
    refused(UsageError, lambda: rfc3339(10**15), "beyond the calendar there is nothing")
    day = parse_instant("2026-03-08", "America/Chicago")
    require(day == parse_instant("2026-03-08T06:00Z", "America/Chicago"), "a date is its first instant")
    require(parse_instant("2026-03-08T12:00:00.5", "UTC") % 1000 == 500, "fractions count")
    for twice_or_never in ("2026-03-08T02:30", "2026-11-01T01:30"):
        refused(
            KfmError,
            lambda text=twice_or_never: parse_instant(text, "America/Chicago"),
            "a time that the clocks show twice or never is refused",
        )
    explicit = Window(start_ms=day, end_ms=day + HOUR_MS, spec="2026-03-08T06:00Z/PT1H")
    require(next_window(explicit, "UTC").start_ms == explicit.end_ms, "windows leave no gap")
