"""The lineage file is moved away and compressed, and no line is lost or doubled by it."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable
from kfm.model.runs import OutboxMessage
from kfm.sinks import event_file as module
from kfm.sinks.event_file import FileCollector, Rotation, event_lines, moved_files
from kfm.system import SystemClock
from tests.stand_ins import FakeClock

DAY_MS = 86_400_000
STEPS = ("sync", "sync_folder", "rename", "unlink", "flock", "_write_all")  # where a process may die


class Killed(BaseException):
    """As kill -9 would: nothing that follows is done."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lineage" / "events.jsonl"


def messages(*numbers: int) -> list[OutboxMessage]:
    body = '{{"eventTime":"2026-01-01","n":{:06d}}}'
    return [OutboxMessage(n, f"id-{n}", "openlineage", "run", body.format(n), 0, 1, 0, None) for n in numbers]


def written(path: Path) -> list[int]:
    return [int(line.rpartition(b":")[2].rstrip(b"}\n")) for line in event_lines(str(path))]


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path.parent))


@pytest.mark.req("GRO-5")
def test_a_full_file_is_moved_away_and_compressed(path: Path) -> None:
    """Before it would grow beyond its limit; what was moved away is compressed when the pass ends."""
    collector = FileCollector(str(path), FakeClock(), rotation=Rotation(bytes_max=150, period_ms=0))
    for number in range(9):
        collector.deliver(messages(number))
    assert all(size <= 150 for size in map(os.path.getsize, moved_files(str(path))))
    collector.close()
    assert names(path) == [
        "events.000001.jsonl.gz",
        "events.000002.jsonl.gz",
        "events.jsonl",
    ]
    assert written(path) == list(range(9))
    with gzip.open(path.parent / "events.000001.jsonl.gz") as first:
        assert len(first.readlines()) == 3


@pytest.mark.req("GRO-5")
def test_a_file_of_an_earlier_day_is_moved_away(path: Path) -> None:
    """By when it was written to, so that one that no one writes to is not looked at."""
    clock = FakeClock()
    collector = FileCollector(str(path), clock, rotation=Rotation(bytes_max=0, period_ms=DAY_MS))
    for number in range(3):
        collector.deliver(messages(number))
        os.utime(path, ns=(0, clock.now_ms() * 1_000_000))
        clock.passed_ms += DAY_MS // 2
    collector.close()
    assert 1 <= len(moved_files(str(path))) <= 2
    assert written(path) == [0, 1, 2]


def test_without_limits_it_is_one_file(path: Path) -> None:
    """And nothing in its folder is looked at."""
    collector = FileCollector(str(path), FakeClock())
    for number in range(50):
        collector.deliver(messages(number))
    collector.close()
    assert names(path) == ["events.jsonl"]


@pytest.mark.req("GRO-5")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 3])
def test_a_killed_process_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str, nth: int
) -> None:
    """Whatever it died in, before it was done or after, every line that counted is there once."""
    for after in (False, True):
        target = path.parent / str(after) / path.name
        counted: list[int] = []
        with monkeypatch.context() as patch:
            _die(patch, step, nth, after=after)
            collector = FileCollector(str(target), FakeClock(), rotation=Rotation(150, 0))
            with suppress(Killed):
                for number in range(12):
                    collector.deliver(messages(number))
                    counted.append(number)
                    if number % 4 == 3:
                        collector.close()
        again = FileCollector(str(target), FakeClock(), rotation=Rotation(150, 0))
        rest = range(len(counted), 14)  # what did not count is delivered again
        for number in rest:
            again.deliver(messages(number))
        again.close()
        found = written(target)
        assert sorted(set(found)) == list(range(14))
        assert [number for number, times in Counter(found).items() if times > 1] in ([], [len(counted)])
        assert all(name.endswith((".jsonl", ".gz", ".part")) for name in names(target))
        assert not [name for name in moved_files(str(target)) if not name.endswith(".gz")]


def _die(patch: pytest.MonkeyPatch, step: str, nth: int, *, after: bool) -> None:
    """At the nth time that this is called, before it or after."""
    place: Any = module
    if step in ("rename", "unlink"):
        place = os
    elif step == "flock":
        place = module.fcntl
    real, calls = getattr(place, step), iter(range(1, 1_000_000))

    def dying(*arguments: Any) -> Any:
        dies = next(calls) == nth
        if dies and not after:
            raise Killed
        answer = real(*arguments)
        if dies:
            raise Killed
        return answer

    patch.setattr(place, step, dying)


@pytest.mark.req("GRO-5")
def test_several_append_while_it_is_moved(path: Path) -> None:
    """Each line is there once, also where another one moved the file meanwhile."""

    def append(first: int) -> None:
        for number in range(first, first + 20):
            collector = FileCollector(str(path), SystemClock(), rotation=Rotation(300, 0))
            for _ in range(1000):
                with suppress(BackendUnavailable):  # replaced again and again: the delivery tries again
                    collector.deliver(messages(number))
                    break
            if not number % 5:
                collector.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, (0, 100, 200, 300)))
    FileCollector(str(path), SystemClock(), rotation=Rotation(300, 0)).close()
    wanted: Iterator[int] = (first + n for first in (0, 100, 200, 300) for n in range(20))
    assert sorted(written(path)) == sorted(wanted)
    numbers = [int(Path(name).name.split(".")[1]) for name in moved_files(str(path))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_only_our_own_names_count(path: Path) -> None:
    """Of what lies beside the file, what was moved away from it is known by name: the oldest first, each
    once, as it was written where both are there."""
    path.parent.mkdir()
    beside = ("000010.jsonl.gz", "000002.jsonl", "000002.jsonl.gz", "1000000.jsonl", "00003.jsonl")
    for ending in (*beside, "000004.txt", "000005.jsonl.gz.part", "x000006.jsonl"):
        (path.parent / f"{path.stem}.{ending}").write_text("")
    (path.parent / "other.000007.jsonl").write_text("")
    expected = ("000002.jsonl", "000010.jsonl.gz", "1000000.jsonl")
    assert moved_files(str(path)) == [str(path.parent / f"{path.stem}.{one}") for one in expected]
