"""Whatever a file holds, the linter answers."""

from __future__ import annotations

import ast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfm.lint import reading
from kfm.lint.checking import check
from tests.unit.kfm_lint.test_rules import EVERY

pytestmark = pytest.mark.req("RET-10")

ODD = {
    "null byte": b"x = 1\0\n",
    "syntax error": b"def f(:\n",
    "unknown encoding": b"# -*- coding: klingon -*-\nx = 1\n",
    "not the encoding it says": b"# -*- coding: ascii -*-\nx = '\xe9'\n",
    "not utf-8": b"x = '\xe9'\n",
    "nested parentheses": b"(" * 5000 + b")" * 5000,
    "deep operators": b"x = " + b"-" * 100_000 + b"1\n",
    "deep attributes": b"x = a" + b".b" * 50_000 + b"\n",
    "only an indent": b"    \n  x\n",
    "large": b"#" * (reading.FILE_BYTES_MAX + 1),
    "utf-16": "x = 1\n".encode("utf-16"),
}
STRANGE = {
    "empty": b"",
    "bom": b"\xef\xbb\xbfx = 1\n",
    "latin-1": b"# -*- coding: latin-1 -*-\nname = 'caf\xe9'\n",
    "form feed": b"x = 1\n\x0cy = 2\n",
    "carriage returns": b"x = 1\ry = 2\r\nz = 3",
    "bad escape": b"x = '\\d'\n",
}
LOOP = """\
import time
while True:
    try:
        go()
        break
    except OSError:
        time.sleep(1)
"""


@pytest.mark.parametrize("data", ODD.values(), ids=ODD.keys())
def test_what_cannot_be_read_is_a_finding(data: bytes) -> None:
    """A file that could not be checked is reported, once, and never passes for clean."""
    checked = check(data, "odd.py")
    assert [finding.code for finding in checked.findings] == ["KFM109"]
    assert checked.findings[0].line >= 1


@pytest.mark.parametrize("data", STRANGE.values(), ids=STRANGE.keys())
def test_what_python_reads_is_read(data: bytes) -> None:
    """A file that Python accepts is checked, however unusual."""
    assert check(data).findings == []


def test_an_old_encoding_is_honoured() -> None:
    """The coding line decides how comments, and so waivers, are read."""
    text = "# -*- coding: latin-1 -*-\n" + LOOP.replace(
        "sleep(1)", "sleep(1)  # kfm: allow KFM103 dépôt répond"
    )
    checked = check(text.encode("latin-1"), every=True)
    assert [finding.code for finding in checked.waived] == ["KFM103"]
    assert [finding.code for finding in checked.findings] == ["KFM101"]


def test_a_long_chain_of_branches_is_read() -> None:
    """Depth that the parser takes does not overthrow the rules."""
    chain = "".join(f"    elif x == {n}:\n        pass\n" for n in range(400))
    text = f"while True:\n    if x:\n        pass\n{chain}    try:\n        go()\n        break\n"
    text += "    except OSError:\n        pass\n"
    codes = {finding.code for finding in check(text.encode(), every=True).findings}
    assert codes in ({"KFM101", "KFM102"}, {"KFM109"})


def test_columns_count_characters() -> None:
    """A finding after accents and emoji points at what it means."""
    text = "def f():\n    é = '🛰️'; c = x(max_retries=1)\n    from requests.adapters import HTTPAdapter\n"
    text += "    ü = '🛰'; a = HTTPAdapter(max_retries=3)\n"
    (finding,) = check(text.encode()).findings
    line = text.split("\n")[finding.line - 1]
    assert line[finding.column - 1 : finding.end_column - 1] == "3"


def test_nothing_is_executed() -> None:
    """Code is read, not run."""
    assert check(b"raise SystemExit(3)\nimport does_not_exist\n").findings == []


def test_findings_have_a_limit() -> None:
    """A generated file can't flood a report."""
    text = "def f():\n" + "    try:\n        save()\n    except Exception:\n        pass\n" * 3000
    assert len(check(text.encode()).findings) == 1000


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))
    )
)
def test_any_bytes_get_an_answer(data: bytes) -> None:
    """No input makes it fail."""
    check(data)


WORDS = """while True : for attempt in range ( 3 ) try except Exception as e finally else if not break
    continue
    return raise pass time . sleep ( 5 ) requests post get status_code == 429 kfm: allow KFM103 # lambda await
    async def f with yield * ** [ ] { } , = += x self match case _ @ retry None 0 " ' \\ \n     """.split(" ")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_any_words_get_an_answer(words: list[str]) -> None:
    """Nor does a heap of its own vocabulary."""
    check(" ".join(words).encode())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(EVERY), st.data())
def test_damaged_code_gets_an_answer(case: object, data: st.DataObject) -> None:
    """Nor real code from which lines were lost or swapped; what still parses is placed inside the file."""
    lines = case.text.split("\n")  # type: ignore[attr-defined]
    kept = data.draw(st.lists(st.sampled_from(lines), max_size=20))
    text = "\n".join(kept)
    for finding in check(text.encode()).findings:
        assert 1 <= finding.line <= len(lines) + len(kept) + 1
        assert finding.column >= 1


def test_the_tree_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One parse for all rules."""
    parsed = []
    real = ast.parse
    monkeypatch.setattr(ast, "parse", lambda *given, **more: parsed.append(1) or real(*given, **more))
    check(EVERY[0].text.encode())
    assert parsed == [1]
