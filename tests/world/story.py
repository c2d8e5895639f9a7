"""The script of the world: what is configured, what upstream has for each day, and what people do."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from random import Random
from typing import NamedTuple

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
NOW_MS = int(datetime(2026, 11, 16, 13, 10, tzinfo=UTC).timestamp() * 1000)
DAYS = 60
FIRST_MS = NOW_MS // DAY_MS * DAY_MS - DAYS * DAY_MS
BUSY_DAYS = 5  # at the end, in which the service looks every half hour: what fails is retried

TOKENS = {who: f"kfm-{who}-0123456789abcdef0123456789abcdef" for who in ("rea", "ann", "bob")}
ROLES = {"rea": ["read"], "ann": ["operate", "read"], "bob": ["approve", "operate", "read"]}


def at(text: str) -> int:
    """Of a moment in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def day_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


class Feed(NamedTuple):
    """A dataset of the project with its source, and when it is asked for."""

    name: str
    domain: str
    cron: str  # empty: only people ask for it
    window: str
    owner: str
    more: str = ""  # of the source
    care: str = "{label: Public, level: public}"


DAILY = "P1D"
FEEDS = (
    Feed("wells", "hydrology", "15 13 * * *", DAILY, "Groundwater desk",
         "contract: contracts/wells.odcs.yaml"),
    Feed("air-quality", "air", "0 18 * * *", DAILY, "Air desk", "provider: airnow"),
    Feed("soil-moisture", "agriculture", "15 12 * * *", DAILY, "Field desk"),
    Feed("roads", "transport", "0 6 * * *", DAILY, "Roads desk", "mode: replace"),
    Feed("drought", "agriculture", "0 6 * * *", DAILY, "Field desk",
         "pipeline: pipelines/drought.py:publish"),
    Feed("heritage-sites", "heritage", "", "P7D", "Tribal liaison",
         care='{label: "Restricted · Community approval", level: restricted}'),
    Feed("streamflow", "hydrology", "15 13 * * *", DAILY, "Surface water desk"),
    Feed("gauges", "hydrology", "5 18 * * *", DAILY, "Surface water desk"),
    Feed("reservoirs", "hydrology", "0 0,6,12,18 * * *", "PT6H", "Surface water desk"),
    Feed("rainfall", "weather", "15 13 * * *", DAILY, "Weather desk"),
    Feed("crop-condition", "agriculture", "30 12 * * 1", "P7D", "Field desk",
         "pipeline: pipelines/crops.py:publish"),
    Feed("counties", "boundaries", "0 13 * * 1", "P7D", "Map desk", "mode: replace"),
)  # fmt: skip
DERIVED = "water-summary"

# Days whose file never comes, by feed: nothing asks for them any more, so they are holes.
NEVER = {
    "streamflow": ("2026-11-13",),
    "rainfall": ("2026-10-04", "2026-10-10", "2026-10-29"),  # the second one is dismissed
    "reservoirs": ("2026-10-08T00", "2026-10-08T06", "2026-10-21T18", "2026-11-02T12"),
}
BROKEN_FROM = at("2026-11-10")  # the first day of the wells that breaks their contract
RENAMED_FROM = at("2026-11-14")  # the first day of the drought whose column has another name
DOWN_FROM = at("2026-11-12T17:00")  # from then on the provider of air quality answers with 503
STARTED_MS = at("2026-11-16T12:36")  # the run that has not ended

CONTRACT = """\
apiVersion: v3.1.0
kind: DataContract
id: ks-wells
version: 1.0.0
status: active
schema:
  - name: wells
    physicalName: "**"
    logicalType: object
    properties:
      - {name: site, logicalType: string, required: true, unique: true}
      - {name: value, logicalType: number, required: true, logicalTypeOptions: {minimum: 0, maximum: 500}}
"""
DROUGHT = '''\
"""The drought monitor by county: how much of each is dry."""
import csv, io

def publish(context):
    for entry in context.inputs:
        text = entry.read().decode()
        rows = [(row["county"], row["dm_class"]) for row in csv.DictReader(io.StringIO(text))]
        lines = "".join(f"{county},{level}\\n" for county, level in rows)
        context.publisher.write_file(entry.path, f"county,dm_class\\n{lines}".encode())
'''
CROPS = '''\
"""The condition of crops; its satellite scenes are waited for."""
import os, time

def publish(context):
    while os.path.exists("crops.wait"):
        open("crops.waits", "w").close()
        time.sleep(0.02)
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)
'''
SUMMARY = '''\
"""One line for each input."""

def publish(context):
    lines = "".join(f"{entry.path},{entry.size}\\n" for entry in context.inputs)
    context.publisher.write_file("summary.csv", f"path,bytes\\n{lines}".encode())
'''


# --- configuration -----------------------------------------------------------------------


def config() -> str:
    datasets = "".join(_dataset(feed) for feed in FEEDS)
    sources = "".join(_source(feed) for feed in FEEDS)
    people = "".join(
        f"  - {{subject: {who}, roles: [{', '.join(ROLES[who])}], "
        f"tokens: ['sha256:{sha256(token.encode()).hexdigest()}']}}\n"
        for who, token in TOKENS.items()
    )
    return f"""\
version: 1
environment: production
lease: {{seconds: 86400}}
lineage: {{export: none}}
datasets:
{datasets}  - id: ks-{DERIVED}
    title: Kansas water in one line
    domain: hydrology
    owner: {{name: Surface water desk, contact: "#water"}}
    rights: {{license: CC0-1.0, care: {{label: Public, level: public}}}}
sources:
{sources}  - id: {DERIVED}
    dataset: ks-{DERIVED}
    kind: dataset
    datasets: {{ks-counties: current}}
    window: none
    mode: replace
    pipeline: pipelines/summary.py:publish
freezes:
  - {{start: "2026-11-15", end: "2026-11-20", datasets: [ks-roads], reason: The new road numbers are checked}}
providers:
  airnow: {{failures: 3, cool_down_seconds: 3600}}
publish:
  - {{kind: local, path: published, datasets: [ks-counties, ks-{DERIVED}]}}  # others would take half the time
ingest:
  queues: [{{name: noaa, kind: folder, path: spool}}]
  mirrors: {{"*": upstream}}
  coalesce_seconds: 0
  policies:
    - datasets: [hrrr, mrms, nexrad-l2]
      integrity: head
      retry: {{attempts: 8, base_seconds: 60, cap_seconds: 600}}
people:
{people}"""


def _dataset(feed: Feed) -> str:
    return f"""\
  - id: ks-{feed.name}
    title: Kansas {feed.name.replace("-", " ")}
    domain: {feed.domain}
    owner: {{name: {feed.owner}, contact: "#{feed.domain}"}}
    bbox: [-102.05, 36.95, -94.55, 40.05]
    rights: {{license: CC0-1.0, care: {feed.care}}}
"""


def _source(feed: Feed) -> str:
    name = "{window.start:%Y-%m-%dT%H}" if feed.window == "PT6H" else "{window.start:%Y-%m-%d}"
    more = f"    {feed.more}\n" if feed.more else ""
    if feed.name == "air-quality":
        place = '    kind: http\n    url: "https://api.airnow.example/kansas.csv"\n    mode: replace\n'
    else:
        place = (
            f'    kind: files\n    folder: incoming/{feed.name}\n    pattern: "{name}.*"\n'
            "    not_yet: [empty]\n"
        )
    if feed.cron:
        more += f"    expect: {{within: {'PT12H' if feed.window == 'PT6H' else 'P2D'}}}\n"
    return f"  - id: {feed.name}\n    dataset: ks-{feed.name}\n{place}    window: {feed.window}\n{more}"


def cron() -> str:
    lines = "".join(
        f'  - {{id: {feed.name}, source: {feed.name}, cron: "{feed.cron}"}}\n' for feed in FEEDS if feed.cron
    )
    return f"version: 1\nschedules:\n{lines}"


# --- upstream ----------------------------------------------------------------------------


def drops(day_ms: int) -> list[tuple[str, bytes]]:
    """The files that come on a day about the time before: path and content."""
    found = []
    for feed in FEEDS:
        if feed.name == "air-quality":
            continue
        for start_ms in _starts(feed, day_ms):
            stem = datetime.fromtimestamp(start_ms / 1000, UTC).strftime(
                "%Y-%m-%dT%H" if feed.window == "PT6H" else "%Y-%m-%d"
            )
            if stem not in NEVER.get(feed.name, ()):
                suffix = "geojson" if feed.name == "counties" else "csv"
                found.append((f"incoming/{feed.name}/{stem}.{suffix}", _content(feed.name, start_ms)))
    return found


def _starts(feed: Feed, day_ms: int) -> list[int]:
    """The windows that are over on this day."""
    if feed.window == "PT6H":
        return [day_ms + hours * HOUR_MS for hours in (-6, 0, 6, 12)]
    if feed.window == DAILY:
        return [day_ms - DAY_MS]
    is_monday = datetime.fromtimestamp(day_ms / 1000, UTC).weekday() == 0
    return [day_ms - 7 * DAY_MS] if is_monday else []


def _content(name: str, start_ms: int) -> bytes:
    chance = Random(f"{name} {start_ms}")
    if name == "wells":
        return _wells(start_ms, chance)
    if name == "counties":
        return _counties(start_ms)
    if name == "roads":  # the same for four days, then it changes
        return f"road,state\nI-70,open {start_ms // DAY_MS // 4}\nUS-83,open\n".encode()
    if name == "drought":
        column = "drought_class" if start_ms >= RENAMED_FROM else "dm_class"
        return f"county,{column}\nReno,D{chance.randrange(5)}\nEllis,D{chance.randrange(5)}\n".encode()
    columns = "site,value" + (",unit" if name == "reservoirs" and start_ms >= at("2026-10-20") else "")
    unit = ",m" if columns.endswith("unit") else ""
    rows = 3 + start_ms // DAY_MS % 4
    lines = "".join(f"{name}-{number},{chance.randrange(100)}{unit}\n" for number in range(rows))
    return f"{columns}\n{lines}".encode()


def _wells(start_ms: int, chance: Random) -> bytes:
    rows = [f"W-{number},{chance.randrange(10, 90)}" for number in range(6)]
    if start_ms >= BROKEN_FROM:  # two checks fail at once
        rows += ["W-0,41", "W-7,-999"]
    return ("site,value\n" + "\n".join(rows) + "\n").encode()


def _counties(start_ms: int) -> bytes:
    west = -98.5 - start_ms // (7 * DAY_MS) % 3 / 10
    square = f"[[[{west},38],[{west + 0.8:.1f},38],[{west + 0.8:.1f},38.6],[{west},38.6],[{west},38]]]"
    return (
        '{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"name":"Reno"},'
        f'"geometry":{{"type":"Polygon","coordinates":{square}}}}}]}}'
    ).encode()


# --- announced objects ---------------------------------------------------------------------


class Announced(NamedTuple):
    """An object that is announced."""

    bucket: str
    key: str
    size: int
    there: int | None  # its true size; None: it is not there


def announced(hour_ms: int, share: int) -> list[Announced]:
    """What is announced in an hour, `share` of each feed."""
    when = datetime.fromtimestamp(hour_ms / 1000, UTC)
    found = []
    for number in range(share):
        minute, second = number * 60 // share, number * 3600 // share % 60
        truncated = hour_ms == at("2026-11-15T14:00")
        found.append(
            Announced(
                "unidata-nexrad-level2",
                f"{when:%Y/%m/%d}/KICT/KICT{when:%Y%m%d_%H}{minute:02d}{second:02d}_V06",
                60,
                20 if truncated and number < 32 else 60,
            )
        )
        found.append(
            Announced(
                "noaa-mrms-pds",
                f"CONUS/PrecipRate_00.00/{when:%Y%m%d}/MRMS_PrecipRate_00.00_{when:%Y%m%d-%H}"
                f"{minute:02d}{second:02d}.grib2.gz",
                50,
                25 if truncated and number < 36 else 50,
            )
        )
        if number < 49:
            missing = at("2026-11-15T21:00") <= hour_ms < at("2026-11-16") and number < 19
            found.append(
                Announced(
                    "noaa-hrrr-bdp-pds",
                    f"hrrr.{when:%Y%m%d}/conus/hrrr.t{when:%H}z.wrfsfcf{number:02d}.grib2",
                    40,
                    None if missing else 40,
                )
            )
    return found
