"""Policy fixtures: what `kfm gate test` runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.errors import PolicyError
from kfm.policy.cedar import CedarPolicies

GOOD = """
- name: public data runs
  action: run
  dataset: {id: a, rights: {license: MIT, care: {label: L}}}
  expect: %s
"""


@pytest.fixture(scope="module")
def policies() -> CedarPolicies:
    return CedarPolicies()


def test_a_fixture_that_goes_otherwise_says_how(policies: CedarPolicies, tmp_path: Path) -> None:
    """A wrong expectation is a failed result with file and line, not an error."""
    file = tmp_path / "f.yaml"
    file.write_text(GOOD % "deny")
    (result,) = policies.evaluate_fixtures(file)
    assert (result.passed, result.got, result.line, result.file) == (False, "allow", 2, str(file))


def test_the_deciding_policies_are_compared(policies: CedarPolicies, tmp_path: Path) -> None:
    """A denial for another reason than the expected one fails."""
    file = tmp_path / "f.json"
    file.write_text(
        '[{"name": "n", "action": "run", "dataset": {"id": "a"}, "expect": "deny", "by": ["care.blocked"]}]'
    )
    (result,) = policies.evaluate_fixtures(file)
    assert not result.passed
    assert result.got_by == ("care.level-undeclared", "licence.unknown")


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", ":1: a list"),
        ("- 5", ":1: a fixture is a mapping"),
        (
            "\n- {name: n, action: run, dataset: {id: a}, expct: deny}",
            ":2: 'expct' is not a word of a fixture; did you mean 'expect'?",
        ),
        (
            "- {name: n, action: rn, dataset: {id: a}, expect: deny}",
            ":1: action must be one of run, publish, force",
        ),
        (
            "- {name: n, action: run, expect: deny,\n   dataset: {id: a, rihts: 1}}",
            ":2: `rihts` is not a setting of `dataset`; did you mean `rights`?",
        ),
        (
            "- &a {name: n, action: run, expect: deny, dataset: {id: a}}\n- {<<: *a, nme: m}",
            ":2: 'nme' is not a word of a fixture",
        ),
        ("- {name: n, action: run, dataset: 3, expect: deny}", "must be mappings"),
        ("- {name: n, action: run, dataset: {id: a}, expect: deny, by: x}", "by must be a list"),
        ("- {name: n, name: m}", ":1:"),
        ("[", ":"),
        ("\x00", ":1:"),
    ],
)
def test_a_faulty_file_names_the_line(
    policies: CedarPolicies, tmp_path: Path, text: str, message: str
) -> None:
    """Every complaint names file, line and nearest word."""
    file = tmp_path / "f.yaml"
    file.write_text(text)
    with pytest.raises(PolicyError) as raised:
        policies.evaluate_fixtures(file)
    assert message in raised.value.message
    assert str(file) in raised.value.message


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_fixtures_or_a_clear_error(
    policies: CedarPolicies, tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """Garbage is a PolicyError, never another one."""
    file = tmp_path_factory.mktemp("f") / "f.yaml"
    file.write_bytes(data)
    complaint = str(file)
    try:
        policies.evaluate_fixtures(file)
    except PolicyError as error:
        complaint = error.message
    assert str(file) in complaint


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(
    word=st.sampled_from(["name", "action", "dataset", "principal", "context", "expect", "by"]),
    value=json_values | st.fixed_dictionaries({"approvals": json_values, "trigger": json_values}),
)
def test_any_value_is_a_fixture_or_a_clear_error(
    policies: CedarPolicies, tmp_path_factory: pytest.TempPathFactory, word: str, value: object
) -> None:
    """A right word with nonsense behind it is a PolicyError, never another one."""
    file = tmp_path_factory.mktemp("f") / "f.json"
    fixture = {"name": "n", "action": "run", "dataset": {"id": "a"}, "expect": "deny", word: value}
    file.write_text(json.dumps([fixture]))
    complaint = str(file)
    try:
        policies.evaluate_fixtures(file)
    except PolicyError as error:
        complaint = error.message
    assert str(file) in complaint


def test_yaml_of_any_style_is_understood(policies: CedarPolicies, tmp_path: Path) -> None:
    """Block text, quotes and decimals are values like others."""
    file = tmp_path / "f.yaml"
    file.write_text(
        "- name: >-\n    folded\n    text\n  action: run\n  dataset:\n    id: a\n    title: |\n      long\n"
        "    bbox: [1, 2, 3.5, 4]\n    rights: {license: 'MIT', care: {label: \"x\"}}\n  expect: allow\n"
    )
    (result,) = policies.evaluate_fixtures(file)
    assert (result.passed, result.name) == (True, "folded text")


def test_a_missing_file_is_a_clear_error(policies: CedarPolicies, tmp_path: Path) -> None:
    """A name that leads nowhere says so."""
    with pytest.raises(PolicyError, match="No such file"):
        policies.evaluate_fixtures(tmp_path / "none.yaml")


def test_a_fixture_takes_over_members_of_another(policies: CedarPolicies, tmp_path: Path) -> None:
    """`<<` merges mappings; what a fixture says itself holds, and a bomb of merges is refused."""
    file = tmp_path / "f.yaml"
    file.write_text(
        "- &base {name: one, action: run, dataset: {id: a}, expect: deny}\n- {<<: *base, name: two}\n"
        "- {<<: [{name: three}, *base]}\n"
    )
    found = policies.evaluate_fixtures(file)
    assert [(result.name, result.line) for result in found] == [("one", 1), ("two", 2), ("three", 3)]
    bomb = ["- &m0 {}"] + [f"- &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 30)}]}}" for n in range(1, 9)]
    file.write_text("\n".join(bomb))
    with pytest.raises(PolicyError, match="more than"):
        policies.evaluate_fixtures(file)
