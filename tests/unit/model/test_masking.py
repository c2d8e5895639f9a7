"""Datasets whose people have not agreed to be seen have another name in public."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.redaction import is_masked, mask
from kfm.model.settings import Care, DatasetSettings, Rights, Sovereignty

pytestmark = pytest.mark.req("RS-13")


def dataset(level="public", consent=None):
    sovereignty = Sovereignty(authority="Nation", consent=consent) if consent else None
    care = Care(label="CARE", level=level)
    return DatasetSettings(id="graves", rights=Rights(license="CC0-1.0", care=care, sovereignty=sovereignty))


@pytest.mark.parametrize(
    ("level", "consent", "expected"),
    [
        ("public", None, False),
        ("review", None, False),
        ("restricted", None, True),
        ("blocked", None, True),
        ("public", "granted", False),
        ("public", "pending", True),
        ("public", "withdrawn", True),
        ("restricted", "granted", True),
    ],
)
def test_who_is_masked(level, consent, expected):
    """Restricted or blocked by CARE, or without consent: masked. Nothing else is."""
    assert is_masked(dataset(level, consent)) is expected


def test_undeclared_rights_are_masked():
    """Where no rights are declared, the careful answer is given."""
    assert is_masked(DatasetSettings(id="graves")) is True


def test_the_masked_name():
    """The name is a keyed hash: the value that other implementations of HMAC-SHA256 give."""
    assert mask("graves", "key") == "masked-7dc0844f0607"


@given(dataset_id=st.text(), key=st.text(min_size=1))
def test_shape_and_stability(dataset_id, key):
    """Any id becomes twelve hex digits, always the same ones, other ones under another key."""
    name = mask(dataset_id, key)
    assert re.fullmatch("masked-[0-9a-f]{12}", name)
    assert name == mask(dataset_id, key)
    assert name != mask(dataset_id, f"{key}x")
