"""A short form of `make hosts`: six hosts, three faults, one switch, and the recount."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import network
from tests.hosts.cable import HEADER, Cable
from tests.hosts.campaign import plan
from tests.hosts.network import Weather

ROOT = Path(__file__).resolve().parents[2]
FAR, OTHER = bytes((10, 77, 0, 16)), bytes((10, 77, 0, 17))


@pytest.fixture(scope="module")
def told(network_namespaces: str) -> dict[str, Any]:
    """What a campaign said: clocks of two hosts are wrong, one is cut off, one is killed, one jumps."""
    command = [sys.executable, "-m", "tests.hosts", "--short", "--tamper"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ended.stdout, ended.stderr
    return dict(json.loads(ended.stdout))


@pytest.mark.slow
@pytest.mark.req("FLT-3", "TRG-2", "UPD-12", "UPD-13", "WAL-8")
def test_hosts_that_fail_lose_and_repeat_nothing(told: dict[str, Any]) -> None:
    """Whichever host is cut off, killed or has a wrong clock: what was acknowledged is done exactly once, the
    bucket shows what the ledger has, and a switch lands within two seconds and holds."""
    assert not told["problems"], "\n".join([*told["problems"][:20], *told["timeline"]])
    assert told["faults"] == {"silence": 1, "kill": 1, "clock": 1}
    assert all((told["found"]["instants"], told["messages"], told["objects"])), told
    assert told["switches"] == 2, told


@pytest.mark.slow
def test_a_recount_names_what_was_changed(told: dict[str, Any]) -> None:
    """A request and a unit that vanish, and a published byte that changes, are told."""
    text = "\n".join(told["tampered"])
    assert "of which a sender was told" in text
    assert "lost: s3://" in text
    assert "the bucket does not show all of" in text


def test_a_plan_follows_from_its_seed() -> None:
    """The same faults at the same times, so that a failure can be had again."""
    assert plan(7, 60) == plan(7, 60) != plan(8, 60)


@pytest.mark.parametrize(
    ("weather", "way", "peer", "arrives"),
    [
        (Weather(), "in", FAR, 5.0),
        (Weather(delay_ms=50), "out", FAR, 5.05),
        (Weather(closed="in"), "in", FAR, None),
        (Weather(closed="in"), "out", FAR, 5.0),
        (Weather(closed="both", peer="10.77.0.16"), "out", FAR, None),
        (Weather(closed="both", peer="10.77.0.16"), "out", OTHER, 5.0),
        (Weather(loss=1.0), "out", FAR, None),
    ],
)
def test_a_cable_does_what_it_is_asked(
    weather: Weather, way: str, peer: bytes, arrives: float | None
) -> None:
    """Frames are late, lost or held back in the named direction, and only those of the named peer."""
    frame = bytes(HEADER) + bytes(12) + b"\x08\x00" + bytes(12) + bytes((10, 77, 0, 11)) + peer
    assert Cable(weather, random.Random(1)).due(way, frame, 5.0) == arrives


def test_frames_never_overtake() -> None:
    """Jitter makes a frame later, not earlier than the one before."""
    cable = Cable(Weather(delay_ms=10, jitter_ms=10), random.Random(1))
    due = [cable.due("in", bytes(80), number / 1000) or 0.0 for number in range(100)]
    assert due == sorted(due)


def test_what_a_killed_run_left_is_cleared(network_namespaces: str) -> None:
    """Its namespaces go with the next run, and those of a run that goes on stay."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = f"kfm{gone.pid}-alder"
    subprocess.run([network_namespaces, "netns", "add", left], check=True)
    with network.Network(["alder"]) as kept:
        network.clear_leftovers()
        there = os.listdir(network.FOLDER)
        assert left not in there
        assert kept.namespace("alder") in there
    assert kept.namespace("alder") not in os.listdir(network.FOLDER)
