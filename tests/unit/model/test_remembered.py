"""Values that are computed once."""

from __future__ import annotations

import threading

import pytest

from kfm.model.remembered import remembered

pytestmark = pytest.mark.req("GRO-3")
SECONDS_MAX = 20


class Looks:
    """Of two, each waits for the other."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_at_it = threading.Event()
        self.other: Looks | None = None

    @remembered
    def value(self) -> int:
        self.asked += 1
        self.is_at_it.set()
        assert self.other is None or self.other.is_at_it.wait(SECONDS_MAX)
        return self.asked


def test_it_is_computed_once() -> None:
    """Each object has its own."""
    one, other = Looks(), Looks()
    assert (one.value, one.value, other.asked) == (1, 1, 0)


def test_no_object_waits_for_another() -> None:
    """Two threads compute the values of two objects at once: neither holds up the other."""
    one, other = Looks(), Looks()
    one.other, other.other = other, one
    threads = [threading.Thread(target=lambda each=each: each.value, daemon=True) for each in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS_MAX)
    assert (one.__dict__.get("value"), other.__dict__.get("value")) == (1, 1)
