"""Finds the run, invocation or unit that a person means."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kfm.model.errors import UsageError
from kfm.model.keys import unit_attempt_id
from kfm.model.patterns import late

WAL_ID = late(r"[0-9a-f]{13}-[0-9a-f]{20}")
WAL_ID_START = late(r"[0-9a-f]{13}(?:-[0-9a-f]{0,20})?")  # no other id has so many digits in a row there
UNITS_REMEDY = "`kfm nodd units` lists them."
ACTIVITY = late(r"(?:urn:kfm:attempt:)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
PREFIX_CHARS_MIN = 4
NAMED_MAX = 3
SEARCHED_MAX = 10_000
SHOWN_CHARS_MAX = 80


def is_wal_id(text: str) -> bool:
    """Is it the id of a unit? No id of anything else looks like one."""
    return WAL_ID.fullmatch(text) is not None


def begins_wal_id(text: str) -> bool:
    """Is it the id of a unit, or so much of one that it can't be of anything else?"""
    return WAL_ID_START.fullmatch(text) is not None


def find_unit(reader: Any, wanted: str) -> Any:
    """A unit with what the ledger keeps beside it, by its id or by the beginning of one."""
    if not is_wal_id(wanted) and begins_wal_id(wanted):
        wanted = only(wanted, [units_in(reader)], UNITS_REMEDY)
    found = reader.stored(wanted) if is_wal_id(wanted) else None
    if found is None:
        raise UsageError(f"There is no unit `{wanted[:80]}`.", remedy=UNITS_REMEDY)
    return found


def unit_of_activity(reader: Any, wanted: str) -> str | None:
    """The unit of an attempt that is known by its OpenLineage run, or by its activity in PROV.

    Such an id is made of the unit's id and can't be read back, so all units are gone through, newest
    first: for people at this machine, not for every reader of a server.
    """
    activity = ACTIVITY.fullmatch(wanted.strip().lower())
    if activity is None:
        return None
    for wal_id, attempts in reader.attempts():
        if any(unit_attempt_id(wal_id, number) == activity[1] for number in range(1, max(1, attempts) + 1)):
            return str(wal_id)
    return None


def find_run(ledger: Any, wanted: str) -> Any:
    """A run by its id, or by the beginning of it, if that is unambiguous."""
    return ledger.run(wanted) or only(wanted, [runs_in(ledger)], "`kfm runs` lists them.")


def find_run_or_call(ledger: Any, wanted: str) -> Any:
    """A run or an invocation, by its id or the beginning of it: a refused invocation became no run."""
    known = ledger.run(wanted) or ledger.invocation(wanted)
    remedy = "`kfm runs` lists runs; `kfm explain DATASET` names its newest invocation."
    return known or only(wanted, [runs_in(ledger), calls_in(ledger)], remedy)


class Sought(NamedTuple):
    """One kind of record that may be meant."""

    word: str
    words: str  # of several
    find: Callable[[str], Sequence[Any]]  # those whose id begins so, and perhaps others
    id_of: Callable[[Any], str]


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def only(wanted: str, sought: Sequence[Sought], remedy: str, *, short: str = "", none: str = "") -> Any:
    """The one record whose id is `wanted`, or begins so; UsageError if there is none, or several.

    `short` is another way out if `wanted` is too short; `none` another message if there is no such record.
    """
    start = wanted.strip().lower()
    shown = wanted[:SHOWN_CHARS_MAX]
    if len(start) < PREFIX_CHARS_MIN:
        raise UsageError(
            f"`{shown}` is too short for {_article(sought[0].word)}: "
            f"give at least {PREFIX_CHARS_MIN} characters of its id.",
            remedy=short or remedy,
        )
    found = [
        (kind, each)
        for kind in sought
        for each in kind.find(start)
        if kind.id_of(each).lower().startswith(start)
    ]
    found = [(kind, each) for kind, each in found if kind.id_of(each).lower() == start] or found
    if len({id(each) for _, each in found}) == 1:  # one record may be known by two ids
        return found[0][1]
    if not found:
        words = " and no ".join(kind.word for kind in sought)
        raise UsageError(none or f"There is no {words} `{shown}`.", remedy=remedy)
    kinds = " and ".join(dict.fromkeys(kind.words for kind, _ in found))
    names = ", ".join(kind.id_of(each) for kind, each in found[:NAMED_MAX])
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    raise UsageError(f"Several {kinds} begin with `{shown}`: {names}{more}.", remedy="Give more of the id.")


def runs_in(ledger: Any) -> Sought:
    return Sought("run", "runs", lambda start: ledger.find_runs(start, NAMED_MAX + 1), lambda run: run.run_id)


def calls_in(ledger: Any) -> Sought:
    return Sought(
        "invocation",
        "invocations",
        lambda start: ledger.find_invocations(start, NAMED_MAX + 1),
        lambda call: call.invocation_id,
    )


def changes_in(ledger: Any) -> Sought:
    """Changes of datasets by people."""
    return Sought(
        "change of a dataset",
        "changes of datasets",
        lambda _start: ledger.change_reader().changes(limit=SEARCHED_MAX),
        lambda one: one.change_id,
    )


def plans_in(reader: Any) -> Sought:
    """Lists of windows."""
    return Sought("plan", "plans", lambda start: reader.find(start, NAMED_MAX + 1), str)


def units_in(reader: Any) -> Sought:
    return Sought("unit", "units", lambda start: reader.find(start, NAMED_MAX + 1), str)


def requests_in(reader: Any) -> Sought:
    return Sought(
        "request", "requests", lambda start: reader.find(start, NAMED_MAX + 1), lambda one: one.request_id
    )


def incidents_in(ledger: Any) -> Sought:
    """By the id of an incident."""
    return Sought(
        "incident",
        "incidents",
        lambda start: ledger.find_incidents(start) if start.replace("-", "").isalnum() else [],
        lambda one: one.incident_id,
    )


def approvals_in(ledger: Any) -> Sought:
    return Sought(
        "request for an approval",
        "requests for approvals",
        lambda start: ledger.find_approvals(start, NAMED_MAX + 1),
        lambda one: one.request_id,
    )


def replays_in(reader: Any) -> Sought:
    return Sought(
        "replay",
        "replays",
        lambda start: [reader.replay(found) for found in reader.find(start, NAMED_MAX + 1)],
        lambda one: one.replay_id,
    )
