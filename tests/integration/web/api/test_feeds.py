"""Feeds over the API: the same functions as the commands and the pages, read to their end by cursor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from kfm.model.feeds import HOUR_MS
from kfm.model.times import rfc3339
from kfm.web.api.components import component_ref
from kfm.web.openapi import api_openapi
from tests.integration.web.announced import (
    BUCKET,
    DEAD,
    EXPECTED,
    FEED,
    FORMER,
    HOURS,
    PER_HOUR,
    PRODUCT,
    Announced,
    announced_project,
)
from tests.integration.web.api.test_reads import printed


@pytest.fixture(scope="module")
def announced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Announced]:
    with announced_project(tmp_path_factory.mktemp("feeds") / "project") as made:
        yield made


def shaped(answer: str, document: Any) -> Any:
    jsonschema_rs.validator_for({**api_openapi(), **component_ref(answer)}, validate_formats=True).validate(
        document
    )
    return document


def test_a_feed_with_its_hours_and_failures(announced: Announced) -> None:
    """Expected and arrived by product and hour, backlog, causes: as they were announced, and as shaped."""
    (feed,) = shaped("feeds", announced.get("/feeds"))["feeds"]
    there = HOURS * PER_HOUR - PER_HOUR - FORMER
    assert (feed["dataset"], feed["expected"], feed["arrived"]) == (FEED, EXPECTED, there)
    assert feed["backlog"] == {"waiting": 0, "running": 0, "retrying": 1, "more_than_six_hours_ago": 1}
    assert feed["gaps"] >= 1
    one = shaped("feed", announced.get(f"/feeds/{FEED}"))
    assert one["feed"] | {"lag_ms": 0, "watermark": 0} == feed | {"lag_ms": 0, "watermark": 0}
    assert sum(each["arrived"] for each in one["hours"]) == there
    assert one["next_steps"][0].startswith(f"kfm nodd reconcile {BUCKET} ")
    failures = shaped("feed-failures", announced.get(f"/feeds/{FEED}/failures"))["failures"]
    assert [(each["error_code"], each["state"], each["heals"]) for each in failures] == [
        ("OBJECT_MISSING", "failed", False),
        ("SIZE_MISMATCH", "quarantined", False),
        ("HTTP_503", "retrying", True),
    ]
    for each in failures:
        asked = (
            f"standing=retrying&error_code={each['error_code']}"
            if each["heals"]
            else f"status={each['state']}"
        )
        assert len(announced.get(f"/units?dataset={FEED}&{asked}")["units"]) == each["count"]
    hour = next(each for each in one["hours"] if each["failed"])
    where = f"product={hour['product']}&start={hour['start']}&end={hour['end']}"
    for standing in ("failed", "quarantined", "retrying"):
        assert len(announced.get(f"/units?dataset={FEED}&{where}&standing={standing}")["units"]) == 1


def test_every_list_is_read_to_its_end_by_its_cursor(announced: Announced) -> None:
    """Page by page each row is told once."""
    for path, name in (
        (f"/feeds/{FEED}", "hours"),
        (f"/feeds/{FEED}/failures", "failures"),
        ("/feeds", "feeds"),
    ):
        whole = announced.get(f"{path}?limit=1000")[name]
        found: list[Any] = []
        cursor = ""
        for _ in range(len(whole) + 1):
            page = announced.get(f"{path}?limit=1{cursor}")
            found += page[name]
            if not page["more"]:
                assert page["next"] is None
                break
            cursor = f"&cursor={page['next']}"
        drop = ("lag_ms", "watermark")
        assert [{**each, **dict.fromkeys(drop)} for each in found] == [
            {**each, **dict.fromkeys(drop)} for each in whole
        ], path


def test_watermarks_are_those_of_the_command(
    announced: Announced, capsys: pytest.CaptureFixture[str]
) -> None:
    """One mechanism: what `kfm nodd watermarks` prints."""
    found = announced.get("/watermarks")["watermarks"]
    told = printed(announced, capsys, "nodd", "watermarks")["watermarks"]
    assert [{**one, "lag_ms": 0} for one in found] == [{**one, "lag_ms": 0} for one in told]
    assert announced.get("/watermarks?dataset=nothing") == {"watermarks": []}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/feeds/nothing", 404),
        ("/feeds/nothing/failures", 404),
        (f"/feeds/{FEED}?start=2020-01-01T00:00:00Z", 422),
        (f"/feeds/{FEED}?start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z", 422),
        (f"/feeds/{FEED}?cursor=x", 400),
        ("/units?product=x", 422),
        (f"/units?dataset={FEED}&product=x&status=failed", 422),
        ("/dead-letters/nothing", 404),
    ],
)
def test_nonsense_is_refused(announced: Announced, path: str, status: int) -> None:
    """With a reason, and nothing is looked through."""
    answer = announced.ask("GET", path)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]


def test_a_bucket_is_compared_and_what_is_missing_taken_in(announced: Announced) -> None:
    """Only buckets of the feed, by those who may operate; an entry is made when something is opened."""

    at = announced.now_ms - 24 * HOUR_MS
    stamp = rfc3339(at)[:13].replace("-", "").replace("T", "-") + "0000"
    key = f"CONUS/{PRODUCT}/{stamp[:8]}/MRMS_{PRODUCT}_{stamp}.grib2.gz"
    path = announced.folder / "upstream" / BUCKET / key
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 50)

    where = f"/feeds/{FEED}/reconcile"
    assert announced.change(where, "cy").status_code == 403
    assert announced.change("/feeds/nothing/reconcile").status_code == 404
    assert announced.change(where, bucket="another-one").status_code == 422
    assert announced.change(where, limit=0).status_code == 422
    seen = shaped("cli-nodd-reconcile", announced.change(where).json())
    assert (seen["listed"], seen["missing"], seen["opened"], seen["exit_code"]) == (1, 1, 0, 1)
    assert seen["gaps"][0]["object_uri"] == f"s3://{BUCKET}/{key}"
    assert announced.entries("backfill") == []
    opened = announced.change(where, bucket=f"s3://{BUCKET}", open=True, ticket="OPS-1").json()
    assert (opened["opened"], opened["exit_code"]) == (1, 0)
    (entry,) = announced.entries("backfill")
    assert (entry["actor"], entry["rationale"], entry["ticket"]) == ("ann", "because", "OPS-1")


def test_a_dead_message_is_shown_and_released(announced: Announced) -> None:
    """By its hash or the beginning of it, once, with an entry; its body is not told."""
    found = shaped("cli-nodd-dead-show", announced.get(f"/dead-letters/{DEAD[:8]}"))
    assert [one["error_code"] for one in found["records"]] == ["JSON_INVALID"]
    assert announced.change(f"/dead-letters/{DEAD}/release", "cy").status_code == 403
    assert announced.change(f"/dead-letters/{DEAD}/release", key="k" * 16).json()["released"] == 1
    assert announced.change(f"/dead-letters/{DEAD}/release", key="k" * 16).json()["released"] == 1
    assert announced.change(f"/dead-letters/{DEAD}/release").json()["released"] == 0
    assert len(announced.entries("dead-message-release")) == 1
