"""Announced feeds: products are expected hour by hour, and what did not come is seen, told and settled."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.model.feeds import HOUR_MS
from kfm.model.quantities import instant
from kfm.model.times import rfc3339
from kfm.nodd.spans import day_parts
from kfm.system import SystemClock
from tests.acceptance.cli.conftest import Called
from tests.nodd_messages import record

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
PRODUCT, PLATFORM = "ABI-L2-MCMIPC", "GOES-19"
ROW = f"goes-abi {PRODUCT} {PLATFORM}"
CONFIG = """\
version: 1
environment: test
ingest:
  queues: [{name: spool, kind: folder, path: spool}]
  feeds:
    - {dataset: goes-abi, products: [ABI-L2-MCMIPC], platforms: [GOES-19], from: 'FROM'}
"""


@pytest.fixture
def feed(project: Path, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """It is forty minutes past the hour: the hour before is due."""
    real = SystemClock.now_ms
    began_ms = real(SystemClock())
    ahead_ms = began_ms // HOUR_MS * HOUR_MS + 40 * 60_000 - began_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: real(clock) + ahead_ms)
    return Feed(project)


class Feed:
    """Messages about scans of one product, hours ago by the clock."""

    def __init__(self, project: Path, hours: int = 6) -> None:
        self.project = project
        self.now_ms = SystemClock().now_ms()
        self.first_ms = (self.now_ms // HOUR_MS - hours) * HOUR_MS
        (project / "spool").mkdir()
        (project / "kfm.yml").write_text(CONFIG.replace("FROM", rfc3339(self.first_ms)))

    def hour_ms(self, number: int) -> int:
        return self.first_ms + number * HOUR_MS

    def keys(self, number: int, scans: Iterable[int] = range(12)) -> Iterator[tuple[str, str]]:
        """Stamp and key of scans of the hour with this number, one every five minutes."""
        year, _, _, hour, doy = day_parts(self.hour_ms(number))
        for scan in scans:
            stamp = f"{year}{doy}{hour}{scan * 5:02d}170"
            name = f"OR_{PRODUCT}-M6_G19_s{stamp}_e{stamp[:-1]}9_c{stamp[:-1]}9.nc"
            yield stamp, f"{PRODUCT}/{year}/{doy}/{hour}/{name}"

    def announce(self, number: int, scans: Iterable[int] = range(12)) -> None:
        for stamp, key in self.keys(number, scans):
            told = record("noaa-goes19", key)
            told["s3"]["object"] |= {"size": 4, "eTag": md5(b"scan").hexdigest()}
            (self.project / "spool" / f"{stamp}.json").write_text(json.dumps({"Records": [told]}))


def states(kfm: Kfm, *more: str) -> list[str]:
    document = kfm("coverage", "goes-abi", "--json", *more).document
    return [one["state"] for one in document["windows"]]


def worked(kfm: Kfm) -> None:
    assert kfm("worker", "--until-idle").code == 0


@pytest.mark.req("DAT-1", "DAT-2")
def test_a_gap_of_a_feed_is_seen_by_product_and_hour(kfm: Kfm, feed: Feed, valid: Valid) -> None:
    """Two scans of one hour never came, another hour has none: each is named, with how many are there, and
    with the listing that may find them; the hour is that of the data, whenever it came."""
    for number in (5, 0, 3, 1):
        feed.announce(number)
    feed.announce(2, range(10))
    worked(kfm)
    called = kfm("coverage", "goes-abi", "--json")
    valid("coverage", called.document)
    found = {one["window_start"]: one for one in called.document["windows"]}
    assert [one["source_id"] for one in found.values()] == [ROW] * 6
    words = [found[instant(feed.hour_ms(number))]["state"] for number in range(6)]
    assert words == ["published", "published", "overdue", "published", "overdue", "published"]
    short = found[instant(feed.hour_ms(2))]
    assert (short["objects"], short["objects_min"], short["is_late"]) == (10, 12, True)
    health = called.document["health"]
    assert health["state"] == "incomplete"
    assert health["watermark"] == instant(feed.hour_ms(2))
    assert health["newest"] == instant(feed.hour_ms(6))
    assert called.document["next_steps"][0].startswith(
        f"kfm nodd reconcile noaa-goes19 --dataset goes-abi --from {rfc3339(feed.hour_ms(2))} --to "
    )
    (incident,) = kfm("incident", "list", "--json").document["incidents"]  # the worker has looked at its end
    assert (incident["kind"], incident["affected"]) == ("overdue", 2)
    shown = kfm("incident", "show", incident["incident_id"], "--json").document
    assert shown["next_step"]["command"] == "kfm coverage goes-abi"
    assert kfm("explain", "goes-abi").out.startswith("Dataset goes-abi is incomplete: 2 windows overdue")
    (product,) = called.document["products"]
    assert product["newest"] == instant(feed.hour_ms(5) + 55 * 60_000 + 17_000)
    assert 0 < product["lag_ms"] < 2 * HOUR_MS
    assert product["latency_ms"] > 0


@pytest.mark.req("DAT-1", "DAT-2")
def test_the_picture_of_a_feed(kfm: Kfm, feed: Feed) -> None:
    """A row for each product, a sign for each hour, then only what is open, and the command that may find
    it."""
    for number in (0, 1, 3, 5):
        feed.announce(number)
    worked(kfm)
    lines = kfm("coverage", "goes-abi").out.splitlines()
    assert lines[0] == "goes-abi is incomplete"
    assert any(line.split() == [PRODUCT, PLATFORM, "##o#o#"] for line in lines), lines
    assert sum(" overdue " in line and "0 of 12 objects" in line for line in lines) == 2
    assert lines[-1].startswith("  kfm nodd reconcile noaa-goes19 ")
    assert f"{ROW}: 12 an hour, 30 min 0 s after its end" in " ".join(lines)
    assert states(kfm, "--state", "overdue") == ["overdue"] * 2
    assert states(kfm, "--product", PRODUCT, "--to", rfc3339(feed.hour_ms(2))) == ["published"] * 2
    unknown = kfm("coverage", "goes-abi", "--product", "ABI-L2-MCMIPX")
    assert unknown.code == 2
    assert "did you mean" in unknown.err
    hour = f"{rfc3339(feed.hour_ms(2))}/PT1H"
    nowhere = kfm("dismiss", "goes-abi", hour, "--platform", "GOES-20", "--rationale", "never")
    assert "Nothing of a platform `GOES-20` is expected of goes-abi; did you mean" in nowhere.err


@pytest.mark.req("DAT-1")
def test_what_no_entry_names_is_not_missing(kfm: Kfm, feed: Feed) -> None:
    """Another satellite, or a product that was never subscribed, is expected of no hour."""
    for number in range(6):
        feed.announce(number)
    worked(kfm)
    health = kfm("coverage", "goes-abi", "--json").document["health"]
    assert health["windows"] == {"published": 6}
    assert health["state"] == "fresh"
    assert kfm("status").out.splitlines()[0] == "all clear"


@pytest.mark.req("DAT-1", "DAT-3")
def test_an_hour_that_will_never_come_is_dismissed(kfm: Kfm, feed: Feed, valid: Valid) -> None:
    """With a reason, for a product and an hour; its incident ends, the feed is fresh. Undone, it is expected
    again; and data that comes after all counts."""
    for number in (0, 1, 2, 3, 5):
        feed.announce(number)
    worked(kfm)
    look(feed.project)
    (incident,) = kfm("incident", "list", "--json").document["incidents"]
    assert (incident["kind"], incident["affected"]) == ("overdue", 1)
    hour = f"{rfc3339(feed.hour_ms(4))}/PT1H"
    assert kfm("dismiss", "goes-abi", hour, "--product", PRODUCT).code == 3  # a reason is needed
    why = ("--rationale", "the satellite was in eclipse")
    called = kfm("dismiss", "goes-abi", hour, "--product", PRODUCT, "--platform", PLATFORM, *why, "--json")
    assert called.code == 0, called.err
    valid("dismiss", called.document)
    assert [(one["state"], one["reason"]) for one in called.document["windows"]] == [("dismissed", why[1])]
    assert why[1] in kfm("coverage", "goes-abi").out
    assert kfm("coverage", "goes-abi", "--json").document["health"]["state"] == "fresh"
    assert kfm("incident", "list", "--json").document["incidents"] == []
    assert kfm("dismiss", "goes-abi", hour, "--undo", *why).code == 0
    assert states(kfm)[4] == "overdue"
    look(feed.project)
    assert len(kfm("incident", "list", "--json").document["incidents"]) == 1
    feed.announce(4)
    worked(kfm)
    assert states(kfm) == ["published"] * 6
    look(feed.project)
    assert kfm("incident", "list", "--json").document["incidents"] == []


def look(project: Path) -> None:
    """What every service, and every worker with feeds, does once a minute."""
    from kfm.service.overdue import mark_overdue

    with open_app(load(str(project / "kfm.yml"))) as app:
        mark_overdue(app)


@pytest.mark.req("DAT-2")
def test_an_incident_of_a_feed_ends_hour_by_hour(kfm: Kfm, feed: Feed) -> None:
    """One for the feed, however many hours; each hour leaves it with its data, found once or looked at
    twice."""
    feed.announce(0)
    feed.announce(5)
    worked(kfm)
    look(feed.project)
    look(feed.project)
    (incident,) = kfm("incident", "list", "--json").document["incidents"]
    assert incident["affected"] == 4
    feed.announce(1)
    feed.announce(3)
    worked(kfm)
    look(feed.project)
    with open_app(load(str(feed.project / "kfm.yml")), read_only=True) as app:
        (kept,) = app.ledger.incidents(state="open", limit=10)
        left = app.ledger.incident_subjects(kept.cause)
    assert [one.rpartition(" ")[2].partition("/")[0] for one in left] == [
        rfc3339(feed.hour_ms(2)),
        rfc3339(feed.hour_ms(4)),
    ]
    before = kfm("coverage", "goes-abi", "--json").document["health"]
    feed.announce(2)
    feed.announce(4)
    worked(kfm)
    look(feed.project)
    assert kfm("incident", "list", "--json").document["incidents"] == []
    after = kfm("coverage", "goes-abi", "--json").document["health"]
    assert (before["windows"]["published"], after["windows"]["published"]) == (4, 6)


@pytest.mark.req("DAT-1")
def test_command_api_and_metrics_tell_the_same_of_a_feed(kfm: Kfm, feed: Feed) -> None:
    """One verdict, before and after the hours that were looked at are remembered."""
    from starlette.testclient import TestClient

    from kfm.web.api.routes import api_app
    from kfm.web.request_context import WebContext

    for number in (0, 2, 5):
        feed.announce(number)
    worked(kfm)
    for _ in range(2):
        health = kfm("coverage", "goes-abi", "--json").document["health"]
        assert health["windows"] == {"published": 3, "overdue": 3}
        summary = kfm("coverage", "--json").document["datasets"]
        assert [{"dataset_id": "goes-abi", **without_lag(health)}] == list(map(without_lag, summary))
        (shown,) = kfm("status", "--json").document["datasets"]
        assert (shown["dataset_id"], without_lag(shown["health"])) == ("goes-abi", without_lag(health))
        client = TestClient(
            api_app(WebContext(load(str(feed.project / "kfm.yml")))),
            base_url="http://127.0.0.1",
            client=("127.0.0.1", 5000),
        )
        answered = client.get("/api/v1/datasets/goes-abi/coverage").json()
        (listed,) = client.get("/api/v1/datasets").json()["datasets"]
        assert without_lag(listed["health"]) == without_lag(health)
        assert without_lag(answered["health"]) == without_lag(health)
        assert [one["state"] for one in answered["windows"]] == states(kfm)
        figures = kfm("metrics").out
        for state in ("published", "overdue"):
            assert f'kfm_dataset_windows{{dataset="goes-abi",state="{state}"}} 3' in figures
        assert 'kfm_dataset_health{dataset="goes-abi",health="incomplete"} 1' in figures
        look(feed.project)


def without_lag(health: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in health.items() if name != "lag_ms"}


@pytest.mark.req("DAT-3")
def test_a_feed_is_reconciled_and_not_run(kfm: Kfm, feed: Feed) -> None:
    """Nothing can be asked for: the error names what can be done."""
    called = kfm("run", "--missing", "goes-abi")
    assert called.code == 2
    assert "kfm nodd reconcile" in called.err


@pytest.mark.req("DAT-1", "DAT-3")
def test_a_listing_fills_the_gap_that_lost_messages_left(kfm: Kfm, feed: Feed) -> None:
    """The command that coverage ends with finds what was never announced; opened and worked off, the hour is
    there by the time in its keys, long after it."""
    for number in (0, 1, 2, 4, 5):
        feed.announce(number)
    feed.announce(3, range(5))
    config = feed.project / "kfm.yml"
    config.write_text(config.read_text() + "  mirrors: {noaa-goes19: mirror}\n")
    for number in range(6):
        for _, key in feed.keys(number):
            (feed.project / "mirror" / key).parent.mkdir(parents=True, exist_ok=True)
            (feed.project / "mirror" / key).write_text("scan")
    worked(kfm)
    assert states(kfm)[3] == "overdue"
    (step,) = kfm("coverage", "goes-abi", "--json").document["next_steps"]
    found = kfm(*shlex.split(step)[1:], "--json")
    assert (found.code, found.document["missing"], found.document["known"]) == (1, 7, 5)
    assert kfm(*shlex.split(step)[1:], "--open", "--rationale", "the queue was full").code == 0
    assert states(kfm)[3] == "waiting"
    worked(kfm)
    assert states(kfm) == ["published"] * 6
    document = kfm("coverage", "goes-abi", "--json").document
    assert (document["health"]["state"], document["next_steps"]) == ("fresh", [])
    assert kfm("incident", "list", "--json").document["incidents"] == []


@pytest.mark.req("DAT-1", "DAT-2")
@pytest.mark.parametrize("named", ["", ", products: [ABI-L2-MCMIPC, ABI-L2-ACHAC], platforms: [GOES-19]"])
def test_a_product_without_a_cadence_is_shown_by_its_lag(
    kfm: Kfm, feed: Feed, named: str, valid: Valid
) -> None:
    """So is a feed of which no product is named: nothing is expected, and nothing is missing."""
    config = feed.project / "kfm.yml"
    first = config.read_text().partition("    - {dataset")[0]
    config.write_text(f"{first}    - {{dataset: goes-abi{named}}}\n")
    feed.announce(4)
    worked(kfm)
    document = kfm("coverage", "goes-abi", "--json").document
    valid("coverage", document)
    assert (document["health"]["state"], document["windows"]) == ("fresh", [])
    came = {one["product"]: (one["is_expected"], one["lag_ms"] is not None) for one in document["products"]}
    expected = {PRODUCT: (bool(named), True)}
    if named:
        expected["ABI-L2-ACHAC"] = (False, False)
        assert document["objectives"]["goes-abi ABI-L2-ACHAC GOES-19"].startswith("no cadence is known")
        alone = ("coverage", "goes-abi", "--product", "ABI-L2-ACHAC")
        assert list(kfm(*alone, "--json").document["objectives"]) == ["goes-abi ABI-L2-ACHAC GOES-19"]
        assert sum(line.startswith("due ") for line in kfm(*alone).out.splitlines()) == 1
    assert came == expected
    assert PRODUCT in kfm("coverage", "goes-abi").out
    assert kfm("incident", "list", "--json").document["incidents"] == []
