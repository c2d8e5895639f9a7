"""What tasks of Airflow ask of kfm, and what they make of the answers, without Airflow."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest

from kfm.integrations import airflow_service as asked
from kfm.integrations.airflow_service import KfmFailure

REQUEST = {
    "request_id": "r1",
    "state": "done",
    "outcome": "success",
    "source_id": "daily",
    "dataset_id": "levels",
    "window_start": "2026-03-01T00:00:00.000Z",
    "window_end": "2026-03-02T00:00:00.000Z",
    "run_id": "run1",
    "reason": "said",
}
RUN = {
    "run": {"version_id": "v1", "error_code": None, "error_message": None},
    "version": 4,
    "promotions": [{"version": 4}],
}


def key(**more: Any) -> str:
    of = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 1, "at": "now"}
    return asked.request_key(**{**of, **more})


def test_a_try_has_one_key() -> None:
    """A try that begins again finds its request; each other try, task, index and window has its own."""
    assert key() == key()
    others = [
        key(try_number=2),
        key(map_index=0),
        key(run_id="s"),
        key(task_id="u"),
        key(dag_id="e"),
        key(at="x"),
    ]
    assert len({key(), *others}) == 7
    assert len(key()) <= 200


@pytest.mark.parametrize(
    ("at", "extras", "times"),
    [
        (None, [], ["end"]),
        ("given", [{"window_end": "2026-03-02T00:00:00Z"}], ["given"]),
        (
            None,
            [
                {"window_end": "2026-03-03T00:00:00Z"},
                {"payload": {"window_end": "2026-03-02T00:00:00Z"}, "from_trigger": True},
                {"window_end": "2026-03-02T00:00:00Z"},
            ],
            ["2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"],
        ),
        (None, [{"windows": [{"window_end": "2026-03-04T00:00:00Z"}]}], ["2026-03-04T00:00:00Z"]),
        (None, [{"window_end": None}, {"other": 1}], ["end"]),
    ],
)
def test_which_windows(at: str | None, extras: list[dict[str, Any]], times: list[str]) -> None:
    """A time that is given; else each window that the events are about, once; else the data interval."""
    assert asked.times_of(at, extras, "end") == times


def test_what_it_came_to() -> None:
    """Published only where the run has promoted something; a repeated one is unchanged, and tells nothing."""
    published = asked.result_of(REQUEST, RUN)
    assert (published["outcome"], published["version"]) == ("published", 4)
    repeated = asked.result_of({**REQUEST, "outcome": "noop"}, RUN)
    found = asked.result_of(REQUEST, {**RUN, "promotions": []})
    assert (repeated["outcome"], found["outcome"]) == ("unchanged", "unchanged")
    assert asked.event_of([repeated, found]) is None
    told = asked.event_of([published, repeated])
    assert told is not None
    assert [one["run_id"] for one in told["windows"]] == ["run1"]
    assert asked.summary_of([published, repeated])["outcome"] == "published"


def test_a_snapshot_has_no_window() -> None:
    """The one window of a source without windows is not told as two thousand years."""
    from kfm.model.times import MS_MAX, MS_MIN, rfc3339

    whole = {**REQUEST, "window_start": rfc3339(MS_MIN), "window_end": rfc3339(MS_MAX)}
    assert asked.result_of(whole, RUN)["window_end"] is None


@pytest.mark.parametrize(
    ("change", "is_final", "said"),
    [
        ({"outcome": "failed"}, True, "KFM401: upstream is away fix: Retry it: `kfm retry run1`."),
        ({"outcome": "refused", "run_id": None}, True, "said fix: `kfm explain r1` says why."),
        ({"outcome": "absent"}, False, "said"),
        ({"state": "cancelled", "outcome": None}, True, "said"),
    ],
)
def test_what_failed(change: dict[str, Any], is_final: bool, said: str) -> None:
    """Code, cause and remedy; and whether Airflow's retries could help."""
    run = {
        **RUN,
        "run": {"version_id": None, "error_code": "KFM401", "error_message": "upstream is away"},
        "next_step": {"sentence": "Retry it", "command": "kfm retry run1"},
    }
    request = {**REQUEST, **change}
    with pytest.raises(KfmFailure) as caught:
        asked.result_of(request, run if request["run_id"] else None)
    assert caught.value.is_final is is_final
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("host", "port", "scheme", "extra", "url"),
    [
        ("kfm.example.org", None, None, {}, "https://kfm.example.org:8377/api/v1"),
        ("127.0.0.1", 9000, "http", {}, "http://127.0.0.1:9000/api/v1"),
        ("kfm", 443, "https", {"prefix": "/kfm/"}, "https://kfm:443/kfm/api/v1"),
        ("http://127.0.0.1:9000/", None, None, {}, "http://127.0.0.1:9000/api/v1"),
    ],
)
def test_addresses(host: str, port: int | None, scheme: str | None, extra: dict[str, str], url: str) -> None:
    """TLS unless a connection says otherwise, the port of `kfm serve`, and a prefix where it has one."""
    assert asked.address_of(host, port, scheme, None, extra).url == url


@pytest.mark.parametrize(("host", "scheme"), [(None, None), ("kfm", "postgres")])
def test_no_address(host: str | None, scheme: str | None) -> None:
    """A connection that can't be one is an error that no retry is made for."""
    with pytest.raises(KfmFailure) as caught:
        asked.address_of(host, None, scheme, None, {})
    assert caught.value.is_final


def test_what_a_command_printed() -> None:
    """Its document; or its error, with the code, and final where the exit code says so."""
    assert asked.document_of('{"results": []}', "", 0) == {"results": []}
    for code, is_final in ((2, True), (3, True), (4, False), (5, False)):
        with pytest.raises(KfmFailure, match="gone") as caught:
            asked.document_of('{"code": "KFM400", "message": "gone", "remedy": "x"}', "", code)
        assert (caught.value.is_final, caught.value.code) == (is_final, "KFM400")
    with pytest.raises(KfmFailure, match="no such file"):
        asked.document_of("", "no such file\n", 127)


def test_looks_are_bounded() -> None:
    """The time between two looks grows up to a minute, and a service that stays away is an error."""
    waits = list(islice(asked.intervals(5), 20))
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (5, asked.POLL_SECONDS_MAX)
    looks = 0

    async def look() -> bool:
        nonlocal looks
        looks += 1
        raise KfmFailure("away", code=None, remedy=None, is_final=looks == 3)

    with pytest.raises(KfmFailure, match="away"):
        asyncio.run(asked.until(look, 0))
    assert looks == 3
