"""The pages on policies and contracts say what the code does."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from kfm.policy.cedar import CedarPolicies
from kfm.publish.contract import ContractLimits, load_contract, vocabulary

DOCS = Path(__file__).parents[3] / "docs"


def _blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text("utf-8")
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(body) for _indent, body in found]


def test_the_example_contract_can_be_read() -> None:
    """The guide's contract is one."""
    (text,) = _blocks("how-to/write-a-contract.md", "yml")
    assert load_contract(text.encode(), "guide").objects[0].primary_key


def test_every_shipped_policy_is_listed() -> None:
    """The reference names each shipped policy, and no other."""
    page = (DOCS / "reference" / "policies.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `([a-z]+\.[a-z-]+)` \|", page, flags=re.MULTILINE)) | {"base.permit"}
    assert listed == set(CedarPolicies().policy_ids)


@pytest.mark.parametrize(
    "word", sorted(vocabulary.KFM_CONTRACT | vocabulary.KFM_OBJECT | vocabulary.KFM_QUALITY)
)
def test_every_extension_is_listed(word: str) -> None:
    """The reference explains each extension of the standard."""
    assert f"| `{word}` |" in (DOCS / "reference" / "contracts.md").read_text("utf-8")


def test_the_limits_are_those_of_the_code() -> None:
    """Numbers on the page are the numbers in force."""
    page = (DOCS / "reference" / "contracts.md").read_text("utf-8")
    limits = ContractLimits()
    for number in (
        limits.record_chars_max,
        limits.element_chars_max,
        limits.columns_max,
        limits.pattern_chars_max,
        limits.unique_in_memory_max,
    ):
        assert f"{number:,}" in page
