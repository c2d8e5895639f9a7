"""Data that holds a secret is not taken in, however it is cut into chunks."""

from __future__ import annotations

import base64
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.errors import SecretInData
from kfm.objects.scratch import ScratchObjects
from kfm.objects.secret_scan import WatchedObjects, needles

pytestmark = pytest.mark.req("RS-13")

SECRET = "sesame/open+9~77"
SPELT = [
    SECRET.encode(),
    base64.b64encode(SECRET.encode()),
    base64.urlsafe_b64encode(b"a" + SECRET.encode() + b"b"),
    base64.b64encode(b"ab" + SECRET.encode()),
    SECRET.encode().hex().encode(),
    SECRET.encode().hex().upper().encode(),
]


def watched() -> WatchedObjects:
    return WatchedObjects(ScratchObjects(), needles([SECRET]))


@given(
    spelt=st.sampled_from(SPELT),
    before=st.binary(max_size=30),
    after=st.binary(max_size=30),
    cuts=st.lists(st.integers(0, 120), max_size=4),
)
def test_no_spelling_in_any_chunks(spelt, before, after, cuts):
    """Also where the secret begins in one chunk and ends in the next; nothing of it is kept."""
    objects = watched()
    data = before + spelt + after
    places = [0, *sorted(cuts), len(data)]
    staging, _ = objects.stage()
    with pytest.raises(SecretInData):
        for start, end in pairwise(places):
            staging.write(data[start:end])
    staging.keep_partial()
    assert list(objects.all()) == []


@given(chunks=st.lists(st.binary(max_size=200), max_size=6))
def test_other_data_passes_unchanged(chunks):
    """What is stored is what was written."""
    objects = watched()
    staging, offset = objects.stage("resume")
    assert offset == 0
    for chunk in chunks:
        staging.write(chunk)
    sha256, size = staging.commit()
    reader = objects.open(sha256)
    assert b"".join(iter(lambda: reader.read(1000), b"")) == b"".join(chunks)
    assert size == len(b"".join(chunks))
    assert objects.has(sha256)


def test_short_secrets_are_not_looked_for_in_data():
    """They would be found by chance."""
    assert needles(["12345"]) == ()
