"""Log files of a run: one JSON object a line, whatever the input holds."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.redaction import Discretion
from kfm.runs.artifacts import RunLog
from kfm.system import PosixFiles
from tests.stand_ins import FakeClock

pytestmark = pytest.mark.req("RS-13", "TRG-9")

SECRET = "sesame-open-1234"
# Half surrogates, control characters, line separators, quotes, very long texts: all that text can be.
TEXT = st.text(st.characters(), max_size=60) | st.sampled_from(
    ["\ud800", "a\nb\r\n", "\u2028\u2029\x85", "\x00", '"}\n{"', "x" * 100_000, SECRET, SECRET.encode().hex()]
)
VALUE = st.recursive(
    TEXT
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=9)
    | st.just(object())
    | st.just({1, 2}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(
    steps=st.lists(st.tuples(TEXT, TEXT, st.dictionaries(TEXT, VALUE, max_size=3)), min_size=1, max_size=4)
)
@settings(max_examples=150, deadline=None)
def test_each_line_is_one_object_and_tells_no_secret(steps):
    """Every step gives exactly one line, every line is one JSON object, and no secret is in it."""
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        log = RunLog(
            PosixFiles(),
            f"{folder}/log",
            FakeClock(),
            "0a1b2c3d-0000-8000-8000-000000000001",
            1,
            dry_run=False,
            announce=said.append,
            redact=Discretion(lambda: [SECRET]),
        )
        for phase, message, facts in steps:
            log.step(phase, message, **{f"f{name}": value for name, value in facts.items()})
            log.run_event("run.metrics", **{f"f{name}": value for name, value in facts.items()})
        log.close()
        for name in ("event_log.jsonl", "run.jsonl"):
            data = Path(folder, "log", name).read_bytes()
            lines = data.split(b"\n")
            assert lines.pop() == b""
            assert len(lines) == len(steps)
            assert all(isinstance(json.loads(line.decode("utf-8")), dict) for line in lines)
            assert SECRET.encode() not in data
            assert SECRET.encode().hex().encode() not in data
    assert len(said) == len(steps)
    assert not any(SECRET in line for line in said)
