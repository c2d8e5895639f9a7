"""Keys and hashes depend on what is said, and on nothing else."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model import input_hash
from kfm.model.canonical import canonical_bytes, tag_floats, utf16_order
from kfm.model.errors import UnhashableInput
from kfm.model.input_hash import CONTENT_FIELDS, inputs_bytes, inputs_hash
from kfm.model.keys import coalesced, run_id, trigger_key, work_base, work_key
from kfm.model.records import Trigger, Window, Work
from kfm.model.units import wal_id

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(-2, 2), _TEXT, st.lists(_TEXT, max_size=2)
)
_ROWS = st.lists(
    st.fixed_dictionaries(
        {"uri": st.sampled_from(["a", "b", "c", "é", "\uffff", "😀"])},
        optional={
            "etag": _VALUES,
            "checksum": _TEXT,
            "modified_ms": _VALUES,
            "size": _VALUES,
            "x": _VALUES,
            "$float": _TEXT,
        },
    ),
    max_size=5,
)
_MS = st.integers(-62_135_596_800_000, 253_402_300_799_999)


def _plainly(rows: list[dict[str, Any]]) -> bytes:
    """The rule, written as plainly as possible; an error is an empty answer."""
    kept: dict[str, Any] = {}
    try:
        for row in rows:
            present = tag_floats({key: value for key, value in row.items() if value is not None})
            if not present["uri"] or all(present.get(field, "") == "" for field in CONTENT_FIELDS):
                return b""
            if kept.setdefault(present["uri"], present) != present or canonical_bytes(
                kept[present["uri"]]
            ) != canonical_bytes(present):
                return b""
        ordered = [kept[uri] for uri in sorted(kept, key=utf16_order)]
        return canonical_bytes({"inputs": ordered, "kfm": "inputs/1", "params": {}})
    except UnhashableInput:
        return b""


@pytest.mark.req("RS-6")
@settings(max_examples=400, deadline=None)
@given(_ROWS)
def test_both_lanes_follow_the_rule(rows: list[dict[str, Any]]) -> None:
    """Fast or careful, the bytes are those of the plain rule, and so are the refusals."""
    try:
        got = inputs_bytes(rows)
    except UnhashableInput:
        got = b""
    assert got == _plainly(rows)


@pytest.mark.req("RS-6")
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(_TEXT.filter(bool), _TEXT.filter(bool)), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_order_of_inputs_does_not_matter(pairs: list[tuple[str, str]], chance: random.Random) -> None:
    """Shuffled, or given twice, the same inputs have the same hash."""
    rows = [{"uri": uri, "etag": etag} for uri, etag in dict(pairs).items()]
    other = rows + rows[:2]
    chance.shuffle(other)
    assert inputs_hash(other) == inputs_hash(rows)


def test_fast_lane_is_taken() -> None:
    """Ordinary inputs are hashed in the fast lane: the careful one is not even called."""
    rows = [
        {"uri": f"s3://b/{index}", "checksum": f"sha256:{index:064x}", "size": index} for index in range(50)
    ]
    assert input_hash._uniform_bytes(rows, b"{}") is not None


_WORKS = st.builds(
    lambda source, start, length, partition, version: Work(
        source_id=source,
        window=Window(start_ms=start, end_ms=min(start + length, 253_402_300_799_999), spec="x"),
        partition=partition,
        output_version=version,
    ),
    _TEXT,
    _MS,
    st.integers(1, 10**9),
    st.none() | _TEXT,
    _TEXT,
)


@pytest.mark.req("TRG-2")
@settings(max_examples=200, deadline=None)
@given(_WORKS, _WORKS, st.integers(0, 3), st.integers(0, 3))
def test_keys_are_equal_only_for_equal_work(one: Work, other: Work, first: int, second: int) -> None:
    """Two works share a key if and only if they are the same work in the same revision."""
    same = _facts(one) == _facts(other)
    assert (work_base(one) == work_base(other)) == same
    assert (work_key(one, first) == work_key(other, second)) == (same and first == second)
    assert work_base(one) != work_key(one, first)


def _facts(work: Work) -> tuple[Any, ...]:
    return (work.source_id, work.window.start_ms, work.window.end_ms, work.partition, work.output_version)


@pytest.mark.req("TRG-2")
@settings(max_examples=100, deadline=None)
@given(st.lists(_TEXT, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_members_coalesce_in_any_order(members: list[str], chance: random.Random) -> None:
    """Coalesced events have one key, in whatever order and however often they arrived."""
    again = members + members[:1]
    chance.shuffle(again)
    assert coalesced(again) == coalesced(members)


_PROGRAM = """
import json, sys
from kfm.model.keys import *; from kfm.model.input_hash import inputs_hash; from kfm.model.records import *
from kfm.model.units import wal_id; from kfm.model.windows import resolve_window
window = resolve_window("P1D", "America/Chicago", 1773068400000)
work = Work(source_id="größe", window=window, partition="p", output_version="v")
trigger = Trigger(type="upstream-event", source_id="größe", dataset_id="d", member_keys=("c", "a", "b", "a"))
shapes = {(("uri", "etag"), ("b", "1")), (("etag", "uri"), ("2", "é"))}  # a set: its order is the hash seed's
rows = [dict(zip(names, values)) for names, values in shapes]
print(json.dumps([trigger_key(trigger, work), work_key(work, 1), run_id("e", work_key(work)),
    inputs_hash(rows, {"b": 0.1, "a": [1, 2.5]}), wal_id("d", "s3://b/k%20", 5)]))
"""


@pytest.mark.req("RS-6", "TRG-2", "WAL-2")
def test_process_and_locale_do_not_matter() -> None:
    """Other hash seeds, locales, time zones and folders give the same keys."""
    surroundings = (
        {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC", "PYTHONUTF8": "1"},
        {"PYTHONHASHSEED": "1", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kolkata", "PYTHONUTF8": "1"},
        {"PYTHONHASHSEED": "4242", "LANG": "de_DE.UTF-8", "TZ": "America/Chicago", "PYTHONUTF8": "1"},
    )
    answers = set()
    for environment in surroundings:
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "HOME")}
        kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**kept, **environment},
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
        )
        answers.add(done.stdout)
    assert len(answers) == 1
    assert all(json.loads(answers.pop()))


@pytest.mark.req("WAL-2")
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(_MS, st.sampled_from(["a", "b/c", "é"])), min_size=2, max_size=6))
def test_ids_of_units_sort_by_time(units: list[tuple[int, str]]) -> None:
    """Neighbours in time are neighbours on disk."""
    ids = [wal_id("d", f"s3://b/{key}", start_ms) for start_ms, key in sorted(units)]
    assert [one[:13] for one in sorted(ids)] == [one[:13] for one in ids]
    assert len(set(ids)) == len(set(units))


@pytest.mark.req("TRG-2")
def test_trigger_keys_do_not_collide_across_kinds() -> None:
    """The same words asked for in different ways are different requests."""
    work = Work(
        source_id="s", window=Window(start_ms=0, end_ms=1, spec="x"), partition=None, output_version="v"
    )
    asked = [
        Trigger(type="manual", source_id="s", dataset_id="d"),
        Trigger(type="cron", source_id="s", dataset_id="d"),
        Trigger(type="webhook", source_id="s", dataset_id="d", request_uuid="u"),
        Trigger(type="upstream-event", source_id="s", dataset_id="d", message_id="u"),
        Trigger(type="upstream-event", source_id="s", dataset_id="d", source_uri="u", content_tag="u"),
        Trigger(type="upstream-event", source_id="s", dataset_id="d", member_keys=("u",)),
        Trigger(type="manual", source_id="s", dataset_id="d", force=1),
        Trigger(type="manual", source_id="s", dataset_id="d", correction="1"),
    ]
    assert len({trigger_key(one, work) for one in asked}) == len(asked)
    assert len({run_id(environment, work_key(work)) for environment in ("a", "b")}) == 2
