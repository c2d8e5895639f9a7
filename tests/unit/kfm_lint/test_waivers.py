"""A waiver gives its reason, and lifts what it names and nothing else."""

from __future__ import annotations

import pytest

from kfm.lint.checking import check

pytestmark = pytest.mark.req("RET-10")

LOOP = """\
import time
def read(device):
    for attempt in range(5):
        try:
            return device.read()
        except DeviceError:
{above}            time.sleep(1){beside}
    raise GaveUp
"""


def _codes(above: str = "", beside: str = "") -> list[str]:
    text = LOOP.format(above=above and f"            {above}\n", beside=beside and f"  {beside}")
    return [finding.code for finding in check(text.encode()).findings]


def test_without_a_waiver() -> None:
    """The code of these tests does break one rule."""
    assert _codes() == ["KFM103"]


@pytest.mark.parametrize(
    "comment",
    [
        "# kfm: allow KFM103 the device answers once a second",
        "#kfm:allow KFM103: the device answers once a second",
        "# KFM: Allow kfm103 – the device answers once a second",
    ],
)
def test_a_reason_lifts_it(comment: str) -> None:
    """Beside the line or alone above it, however it is punctuated."""
    assert _codes(beside=comment) == []
    assert _codes(above=comment) == []


@pytest.mark.parametrize(
    "comment",
    ["# kfm: allow KFM103", "# kfm: allow KFM103 ok", "# kfm: allow KFM999 for good reasons",
     "# kfm: allow because I say so", "# kfm: ignore KFM103 for good reasons", "# kfm:"],
)  # fmt: skip
def test_a_bad_waiver_lifts_nothing(comment: str) -> None:
    """No reason, no such rule, no rule, another verb: the finding stands, and the waiver is one more."""
    assert _codes(beside=comment) == ["KFM103", "KFM100"]


def test_an_unused_waiver_is_found() -> None:
    """What lifts nothing today would hide something tomorrow."""
    assert _codes(beside="# kfm: allow KFM101, KFM103 the device answers once a second") == ["KFM100"]
    assert [each.code for each in check(b"x = 1  # kfm: allow KFM103 was needed once\n").findings] == [
        "KFM100"
    ]


def test_waivers_one_under_the_other() -> None:
    """Each speaks about the code below the last."""
    text = """\
def save(rows):
    # kfm: allow KFM101 the sensor comes back in spring
    # kfm: allow KFM102 and this line lifts nothing
    while True:
        try:
            return send(rows)
        except OSError:
            time.sleep(random.random())
"""
    found = check(text.encode())
    assert [each.code for each in found.waived] == ["KFM101"]
    assert [(each.code, each.line) for each in found.findings] == [("KFM100", 3)]


def test_a_string_is_no_waiver() -> None:
    """Only comments count."""
    assert _codes(above='note = "# kfm: allow KFM103 the device answers once a second"') == ["KFM103"]


def test_a_rule_that_is_not_asked_for_makes_no_waiver_unused() -> None:
    """With --ignore KFM103 a waiver for it is not blamed."""
    text = LOOP.format(above="", beside="  # kfm: allow KFM103 the device answers once a second")
    assert check(text.encode(), codes=frozenset({"KFM100", "KFM101"})).findings == []
