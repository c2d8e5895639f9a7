"""Whatever the engine may know, what is said of it is valid, bounded and the same each time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.lineage.facets import NAME_CHARS_MAX, dataset_name
from kfm.model.energy import Energy
from kfm.model.records import Asset, Check, Found, GateResult, Invocation, Run, ValidationReport
from kfm.model.runs import Attempt, Circumstances, Code, DataColumn
from tests.unit.lineage.samples import emitter, event, validator

UUIDS = st.uuids().map(str)
WORDS = st.text(min_size=1, max_size=12)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)  # half characters, too
URIS = st.one_of(
    ANY_TEXT,
    st.builds(
        "{}://{}/{}".format,
        st.sampled_from(["s3", "gs", "https", "file", "postgres", "x"]),
        ANY_TEXT,
        ANY_TEXT,
    ),
)
TIMES = st.integers(-62_135_596_800_000, 253_402_300_799_999)
NUMBERS = st.integers(0, 2**53 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
KEY_MEMBERS = "kfm source_id source_uri member_keys window revision partition payload".split()


def records(kind: type, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, **known)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


GATES = st.lists(
    records(GateResult, gate=WORDS, reason=ANY_TEXT, policy_ids=st.lists(ANY_TEXT, max_size=2).map(tuple)),
    max_size=3,
).map(tuple)
FOUND = records(
    Found, uri=URIS, path=ANY_TEXT, media_type=WORDS, size=maybe(NUMBERS), checksum=maybe(ANY_TEXT)
)
ASSETS = records(Asset, path=ANY_TEXT, sha256=WORDS, size=st.integers(0, 2**40), media_type=WORDS)
CHECKS = records(Check, name=ANY_TEXT, detail=ANY_TEXT, path=maybe(ANY_TEXT), sample=st.just(()))
INVOCATIONS = records(
    Invocation,
    invocation_id=UUIDS,
    run_id=maybe(UUIDS),
    source_id=WORDS,
    dataset_id=WORDS,
    idempotency_key=WORDS,
    actor=ANY_TEXT,
    requested_at_ms=TIMES,
    gates=GATES,
)
RUNS = records(
    Run,
    run_id=UUIDS,
    source_id=WORDS,
    dataset_id=WORDS,
    pipeline_id=WORDS,
    window_start_ms=TIMES,
    window_end_ms=TIMES,
    fence=st.integers(),
)
ATTEMPTS = records(
    Attempt,
    run_id=UUIDS,
    attempt=st.integers(0, 99),
    node=st.sampled_from(["", "fetch", "publish"]),
    lineage_id=UUIDS,
    started_at_ms=TIMES,
    ended_at_ms=maybe(TIMES),
    ending=st.sampled_from(["complete", "fail", "abort"]),
    error_message=maybe(ANY_TEXT),
    validation=maybe(st.dictionaries(st.sampled_from(["checks", "passed", "failed", "other"]), NUMBERS)),
    energy=maybe(records(Energy, cpu_us=NUMBERS, energy_uwh=NUMBERS, co2_ug=st.integers())),
)
KNOWN = records(
    Circumstances,
    invocation=maybe(INVOCATIONS),
    gates=GATES,
    key_documents=st.dictionaries(
        st.sampled_from(["trigger", "work", "envelope", "other"]),
        st.dictionaries(st.sampled_from(KEY_MEMBERS), JSON) | JSON,
        max_size=3,
    ),
    inputs=st.lists(FOUND, max_size=3).map(tuple),
    outputs=st.lists(ASSETS, max_size=3).map(tuple),
    report=maybe(st.builds(ValidationReport, checks=st.lists(CHECKS, max_size=3).map(tuple))),
    columns=st.lists(records(DataColumn, name=ANY_TEXT, type=ANY_TEXT), max_size=3).map(tuple),
    code=maybe(records(Code, path=ANY_TEXT, sha=WORDS)),
)


@pytest.mark.req("UPD-15", "TRG-8")
@settings(max_examples=150)
@given(attempt=ATTEMPTS, run=RUNS, known=KNOWN, masked=st.booleans())
def test_whatever_is_known_makes_a_valid_event(
    attempt: Attempt, run: Run, known: Circumstances, masked: bool
) -> None:
    """Every attempt makes events that follow our schema, byte for byte the same when asked twice."""
    one, other = (
        emitter(masked=lambda _: masked, mask=lambda text: f"masked-{len(text.encode()):x}") for _ in "ab"
    )
    for said in ("started", "ended"):
        emitted = getattr(one, said)(attempt, run, known)
        event(emitted)
        assert emitted == getattr(other, said)(attempt, run, known)


@pytest.mark.req("TRG-8")
@settings(max_examples=50)
@given(call=INVOCATIONS, known=KNOWN, at_ms=TIMES)
def test_a_refused_invocation_makes_valid_events(call: Invocation, known: Circumstances, at_ms: int) -> None:
    """A refused invocation makes two valid events, any other outcome but a failure none."""
    said = emitter().refused(call, known, at_ms)
    assert len(said) == (2 if call.outcome in ("refused", "failed") else 0)
    for emitted in said:
        event(emitted)


@settings(max_examples=300)
@given(uri=URIS)
def test_every_uri_has_a_bounded_name(uri: str) -> None:
    """Any text has a namespace and a name, neither empty nor endless."""
    namespace, name = dataset_name(uri)
    assert 0 < len(namespace) <= NAME_CHARS_MAX
    assert 0 < len(name) <= NAME_CHARS_MAX


def test_the_schema_would_notice() -> None:
    """A member that is not in the schema is an error, wherever it stands."""
    assert not validator().is_valid({"eventType": "START"})
