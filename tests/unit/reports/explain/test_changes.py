"""What changed between two documents that were hashed, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.input_hash import inputs_bytes
from kfm.reports.explain.inputs import changes, outside, upstream

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def document(*rows: dict[str, Any], **params: Any) -> str:
    return inputs_bytes(rows, params).decode()


@pytest.mark.req("RS-12")
def test_each_kind_of_change() -> None:
    """Inputs and parameters that came, went or changed are told by name, with from and to."""
    before = document(
        {"uri": "file:a.csv", "checksum": ONE},
        {"uri": "https://example.org/x", "etag": "v1", "last_modified": "Mon"},
        {"id": "soil.raw", "checksum": ONE},
        {"uri": "file:gone.csv", "checksum": ONE},
        cell=1.5,
        old="x",
        same=[1, 2],
    )
    after = document(
        {"uri": "file:a.csv", "checksum": TWO},
        {"uri": "https://example.org/x", "etag": "v2", "last_modified": "Mon"},
        {"id": "soil.raw", "checksum": ONE},
        {"uri": "file:new.csv", "checksum": ONE},
        cell=2.25,
        new=True,
        same=[1, 2],
    )
    assert [each.text for each in changes(before, after)] == [
        f"checksum of input file:a.csv changed from {ONE} to {TWO}",
        "input file:gone.csv is gone",
        "input file:new.csv is new",
        "etag of input https://example.org/x changed from v1 to v2",
        "parameter cell changed from 1.5 to 2.25",
        "parameter new is new: true",
        "parameter old is gone",
    ]
    assert upstream(after) == [("soil.raw", ONE)]
    assert outside(after) == ["file:a.csv", "file:new.csv", "https://example.org/x"]


values = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=3)
    | st.lists(st.integers(0, 3), max_size=2)
)
documents = st.builds(
    lambda rows, params: (rows, params),
    st.dictionaries(st.text("abc", min_size=1, max_size=2), st.sampled_from([ONE, TWO]), max_size=4),
    st.dictionaries(st.sampled_from("klmn"), values, max_size=3),
)


@pytest.mark.req("RS-12")
@given(documents, documents)
def test_something_is_told_exactly_if_something_changed(one: Any, other: Any) -> None:
    """Two documents differ if and only if a change is told, and the way back is as long."""
    texts = [
        document(*({"id": name, "checksum": digest} for name, digest in rows.items()), **params)
        for rows, params in (one, other)
    ]
    assert bool(changes(*texts)) == (texts[0] != texts[1])
    assert len(changes(*texts)) == len(changes(*reversed(texts)))
