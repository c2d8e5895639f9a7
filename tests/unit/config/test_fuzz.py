"""Whatever stands in a configuration file, the loader answers with settings or with a sentence."""

from __future__ import annotations

import string
from typing import Any

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kfm.config.checks import check
from kfm.config.document import read_document, to_settings
from kfm.model.errors import ConfigError
from tests.unit.config.nonsense import GOOD, NONSENSE

RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def answer(name: str, data: bytes) -> Any:
    """Settings, or the error; anything else is a defect."""
    try:
        document = read_document(name, data)
        found = to_settings(document)
        check(document, found)
    except ConfigError as error:
        found = error
    assert not isinstance(found, ConfigError) or found.detail.startswith(name)
    return found


@RELAXED
@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbfversion: 1")
@example(b"? ")
@example(b"%YAML 9.9\n---\n")
@example(b"a: !!float x")
@example(b"a: !!int '\xd9\xa3'")
@example(b"{: }")
@example(b"- - - - : -")
def test_any_bytes(data: bytes) -> None:
    """Bytes never end in a traceback, in either format."""
    answer("kfm.yml", data)
    answer("kfm.json", data)


@RELAXED
@given(st.text(alphabet=string.printable + "éß\u2028\U0001f600", max_size=200))
def test_any_text(text: str) -> None:
    """Text never ends in a traceback."""
    answer("kfm.yml", text.encode())
    answer("kfm.json", text.encode())


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
)
WORDS = st.sampled_from(
    "version environment state store datasets sources publish policies freezes limits lease id dataset kind "
    "url window time_zone members path folder rights license care label level bbox params headers "
    "Authorization "
    "files http bucket sync local s3 P1D UTC a b ../x {window.start} env:X 2026-01-01 start end".split()
)
VALUES = st.recursive(
    LEAVES | WORDS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


@RELAXED
@given(st.dictionaries(WORDS, VALUES, max_size=6))
def test_any_document(values: dict[str, Any]) -> None:
    """Known words in wrong places never end in a traceback."""
    answer("kfm.json", msgspec.json.encode(values))


@RELAXED
@given(
    st.sampled_from([GOOD, *(text for text, _ in NONSENSE.values())]),
    st.lists(
        st.tuples(st.floats(0, 1), st.text(alphabet=":{}[]-,&*!|>'\"%@ \n\tab1", max_size=3)), max_size=4
    ),
)
def test_any_edit(text: str, edits: list[tuple[float, str]]) -> None:
    """A slip of the finger never ends in a traceback."""
    for where, what in edits:
        at = int(where * len(text))
        text = text[:at] + what + text[at + 1 :]
    answer("kfm.yml", text.encode())
