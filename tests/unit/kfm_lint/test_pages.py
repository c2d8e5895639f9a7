"""Each rule has a page whose examples are true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kfm.lint.checking import check
from kfm.lint.rules import BY_CODE, CODES, page
from kfm.model.errors import all_errors

pytestmark = pytest.mark.req("RET-10")

ROOT = Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs" / "reference" / "lint"


def _examples(code: str) -> tuple[str, str]:
    text = (PAGES / f"{code.lower()}.md").read_text(encoding="utf-8")
    found, not_found = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return found, not_found


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_bad_example_is_found(code: str) -> None:
    """The rule fires on the lines that the example marks, and on no other."""
    bad, _ = _examples(code)
    marked = {number for number, line in enumerate(bad.split("\n"), 1) if line.endswith(f"# {code}")}
    assert marked
    text = re.sub(rf"  # {code}$", "", bad, flags=re.MULTILINE)
    findings = check(text.encode()).findings
    assert {each.line for each in findings if each.code == code} == marked


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_good_example_is_not_found(code: str) -> None:
    """The way out leads out: no rule has anything to say about it."""
    assert check(_examples(code)[1].encode()).findings == []


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_page_says_what_the_rule_says(code: str) -> None:
    """`kfm explain` and the documentation tell the same."""
    text = (PAGES / f"{code.lower()}.md").read_text(encoding="utf-8")
    rule = BY_CODE[code]
    assert text.startswith(f"# {code}: {rule.name}\n\n**{rule.message}**\n")
    assert " ".join(rule.page.split()) in text
    assert f"Way out: {rule.remedy}" in text
    assert (
        f"| [{code}]({code.lower()}.md) | {rule.name} | {rule.message} |" in (PAGES / "index.md").read_text()
    )
    assert (ROOT / rule.docs).is_file()


def test_the_page_can_be_looked_up() -> None:
    """By code, in either case; None for what is no rule."""
    found = page("kfm103")
    assert found is not None
    assert (found["kind"], found["code"], found["name"]) == ("rule", "KFM103", "fixed-sleep")
    assert page("KFM204") is None


def test_rules_and_errors_share_no_code() -> None:
    """A code means one thing."""
    assert not CODES & {error.code for error in all_errors()}


def test_linting_needs_no_kernel() -> None:
    """Nothing of the kernel is imported, nor anything that is not in the standard library."""
    code = "import sys, kfm.lint.checking, kfm.lint.formats, kfm.lint.flake8; print(*sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert {name for name in loaded if name.startswith("kfm.") and not name.startswith("kfm.lint")} == set()
    assert not {"msgspec", "click", "orjson", "httpx"} & set(loaded)
