"""One look-up by the beginning of an id, with one set of messages."""

from __future__ import annotations

import pytest

from kfm.model.errors import UsageError
from kfm.reports.lookup import Sought, only

IDS = ["abcd-1", "abcd-2", "abcd-3", "abcd-4", "ef01-1"]


def _ids(*ids: str, word: str = "run") -> Sought:
    return Sought(word, f"{word}s", lambda _start: ids, str)


def test_the_beginning_of_an_id_is_enough() -> None:
    """One record that begins so is the one that is meant, in either case of messages."""
    assert only(" EF01", [_ids(*IDS)], "`kfm runs` lists them.") == "ef01-1"


def test_a_whole_id_wins_over_those_that_begin_so() -> None:
    """An id that is also the beginning of another is found."""
    assert only("abcd", [_ids("abcd", "abcde")], "") == "abcd"


def test_one_record_under_two_ids_is_one() -> None:
    """A record that both of its ids name is no ambiguity."""
    record = ("abcd-1", "abcd-9")
    first = Sought("entry", "entries", lambda _start: [record], lambda one: str(one[0]))
    second = Sought("run", "runs", lambda _start: [record], lambda one: str(one[1]))
    assert only("abcd", [first, second], "") == record


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("abc", "`abc` is too short for a run: give at least 4 characters of its id."),
        ("abcd", "Several runs begin with `abcd`: abcd-1, abcd-2, abcd-3 and 1 more."),
        ("nope", "There is no run `nope`."),
        ("n" * 100, f"There is no run `{'n' * 80}`."),
    ],
)
def test_the_message_says_why_none_is_meant(wanted: str, message: str) -> None:
    """Too short, several or none: each is told in the same words everywhere."""
    with pytest.raises(UsageError) as raised:
        only(wanted, [_ids(*IDS)], "`kfm runs` lists them.")
    assert raised.value.detail == message


def test_several_kinds_are_named() -> None:
    """Where records of two kinds begin so, both kinds are told."""
    with pytest.raises(UsageError, match="Several runs and calls begin with `abcd`"):
        only("abcd", [_ids("abcd-1"), _ids("abcd-2", word="call")], "")
    with pytest.raises(UsageError, match="There is no run and no call `nope`"):
        only("nope", [_ids(), _ids(word="call")], "")
