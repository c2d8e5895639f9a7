"""Regular expressions of contracts: ECMA-262 in linear time."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.errors import ContractError
from kfm.publish.contract import expressions, load_contract
from kfm.publish.contract.expressions import Expression, ExpressionError
from tests.unit.publish.contract.staged import check_files, contract_text, failed, find, table

EVIL = (
    r"^(a+)+$",
    r"^(a|aa)+$",
    r"^(a|a?)+$",
    r"(.*,){20}z",
    r"^(\w+\s?)*$",
    r"(a*)*b",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
)


@pytest.mark.req("UPD-9")
@pytest.mark.parametrize("pattern", EVIL)
def test_no_pattern_makes_a_check_hang(pattern: str) -> None:
    """Where trying again would take ages, the answer takes time in proportion to the text."""
    text = contract_text(
        table({"name": "a", "logicalType": "string", "logicalTypeOptions": {"pattern": pattern}})
    )
    began = time.process_time()
    report = check_files(text, {"x.jsonl": b'{"a": "' + b"a" * 9_000 + b'!"}\n'})
    assert failed(report) == ["schema.column.pattern:a"]
    assert time.process_time() - began < 2


@pytest.mark.req("UPD-9")
def test_a_pattern_of_too_many_states_ends_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has to be worked out anew for every text is worked out within a bound, and the report says so."""
    monkeypatch.setattr(expressions, "STEPS_MAX", 300_000)
    text = contract_text(
        table({"name": "a", "logicalType": "string", "logicalTypeOptions": {"pattern": "x[xy]{3000}$"}})
    )
    report = check_files(text, {"x.jsonl": b'{"a": "%s"}\n' % (b"xxy" * 3_000)})
    assert "steps to be compared with a pattern" in find(report, "schema.readable:t").detail


@pytest.mark.req("UPD-9")
def test_the_memory_of_a_pattern_is_bounded() -> None:
    """States are remembered up to a number of places, and then worked out again."""
    expression = Expression("x[xy]{200}$")
    texts = ["".join("xy"[(at >> bit) & 1] for bit in range(12)) * 30 for at in range(20)]
    answers = [expression.matches(text) for text in texts]
    assert answers == [text[-201] == "x" for text in texts]
    assert sum(len(places) for places, _ in expression._states) <= expressions.CACHED_MAX


_ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\b", "^", "$", "(?:)", "-"])
_TIMES = st.sampled_from(["", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])


@st.composite
def _pattern(draw: st.DrawFn, depth: int = 3) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            inner = draw(_pattern(depth - 1))
            parts.append(f"({inner}|{draw(_pattern(depth - 1))})" if draw(st.booleans()) else f"(?:{inner})")
        else:
            parts.append(draw(_ATOMS))
        if parts[-1] not in ("^", "$", r"\b"):
            parts[-1] += draw(_TIMES)
    return "".join(parts)


@pytest.mark.req("UPD-9")
@settings(max_examples=200, deadline=None)
@given(_pattern(), st.lists(st.text("ab1-_", max_size=7), min_size=1, max_size=5))
def test_answers_are_those_of_an_engine_that_tries(pattern: str, texts: list[str]) -> None:
    """On what both know, the machine says what Python's own engine says, in whatever order it is asked."""
    expression = Expression(pattern)
    tried = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    assert [expression.matches(text) for text in texts] == [tried.search(text) is not None for text in texts]


@settings(max_examples=300, deadline=None)
@given(st.text("ab(){}[]|*+?^$\\.-<>=!:,0129kuxdwsbB", max_size=25))
def test_any_text_is_an_expression_or_refused(pattern: str) -> None:
    """Whatever is written, it is read or refused with a sentence."""
    with contextlib.suppress(ExpressionError):
        assert Expression(pattern).matches("ab-1") in (True, False)


def test_a_refused_pattern_names_its_line() -> None:
    """The contract is refused where it is read, not where it is used."""
    text = contract_text(
        table({"name": "a", "logicalType": "string", "logicalTypeOptions": {"pattern": "(?=a)b"}})
    )
    with pytest.raises(ContractError, match="lookaround is not supported"):
        load_contract(text, "c.odcs.yaml")
