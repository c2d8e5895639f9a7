"""Merging, naming and comparing versions."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.contracts import require_valid
from kfm.model.errors import PathConflict, RightsMissing
from kfm.model.item_ids import item_id
from kfm.model.records import Asset, Item, Window
from kfm.model.settings import Care, Rights
from kfm.model.version_trees import facts_from, facts_of, folded
from kfm.model.versions import Version, VersionRoot, version_of
from kfm.publish import manifest as m
from tests.unit.publish.stand_ins import DATASET, DAY_MS, asset, item

ASSETS = st.builds(
    lambda path, data, media, modified: msgspec.structs.replace(
        asset(path, data), media_type=media, modified_ms=modified
    ),
    st.sampled_from(["a.csv", "b/c.csv", "b/d.csv", "e", "f/g/h"]),
    st.sampled_from([b"", b"one", b"two"]),
    st.sampled_from(["text/csv", "application/json"]),
    st.sampled_from([None, 0, 1_700_000_000_123]),
)
ITEMS = st.builds(
    lambda day, assets, source, partition: item(
        day, *{one.path: one for one in assets}.values(), source=source, partition=partition
    ),
    st.integers(0, 3),
    st.lists(ASSETS, max_size=2),
    st.sampled_from(["usgs", "noaa"]),
    st.sampled_from([None, "north"]),
)
HISTORIES = st.lists(st.tuples(ITEMS, st.sampled_from(["merge", "replace"])), max_size=6)


def build(history: list[tuple[Item, m.Mode]]) -> Version | None:
    head = None
    for one, mode in history:
        try:
            head = m.merge(head, DATASET, one, mode)
        except PathConflict:
            continue
    return head


@pytest.mark.req("TRG-4")
@given(HISTORIES)
def test_merging_again_changes_nothing(history: list[tuple[Item, m.Mode]]) -> None:
    """The same work merged twice is the same version: an upsert, not an append."""
    head = build(history)
    for one in head.items() if head else ():
        again = m.merge(head, DATASET, one, "merge")
        assert head is not None
        assert again.version_id == head.version_id
        assert m.diff(head, again) == []


@given(HISTORIES, HISTORIES)
def test_versions_differ_exactly_if_their_diff_is_not_empty(
    left: list[tuple[Item, m.Mode]], right: list[tuple[Item, m.Mode]]
) -> None:
    """An empty diff and an equal version id are the same statement."""
    old, new = build(left), build(right)
    if old is None or new is None:
        return
    assert (m.diff(old, new) == []) == (old.version_id == new.version_id)
    counts, changes = m.tally(old, new), m.diff(old, new)
    kinds = [change.kind for change in changes if change.what == "asset"]
    assert [counts.added, counts.changed, counts.removed] == [
        kinds.count(kind) for kind in ("added", "changed", "removed")
    ]
    paths = [one.path for entry in new.items() for one in entry.assets]
    assert counts.added + counts.changed + counts.unchanged == len(paths) == len(set(paths))


@pytest.mark.req("GRO-1")
@given(HISTORIES)
def test_an_edit_is_what_a_version_made_at_once_would_be(history: list[tuple[Item, m.Mode]]) -> None:
    """Whatever led to a version, it has the trees, the facts and the id of one that is made of its items."""
    head = build(history)
    if head is None:
        return
    whole = version_of(head.manifest())
    assert (head.version_id, head.tree_id, head.files_id) == (whole.version_id, whole.tree_id, whole.files_id)
    assert head.facts() == whole.facts() == facts_from(folded(facts_of(one) for one in head.items()))
    files = sorted((one.path, one.sha256, one.size) for entry in head.items() for one in entry.assets)
    assert list(head.files()) == files


@given(HISTORIES)
def test_the_order_of_assets_does_not_matter(history: list[tuple[Item, m.Mode]]) -> None:
    """Which file a pipeline wrote first is not part of the version."""
    turned = [
        (msgspec.structs.replace(one, assets=tuple(reversed(one.assets))), mode) for one, mode in history
    ]
    assert build(history) == build(turned)


@given(HISTORIES)
@settings(max_examples=30)
def test_a_manifest_matches_its_schema_and_its_bytes_are_its_id(history: list[tuple[Item, m.Mode]]) -> None:
    """A reader who has manifest.json can check the version's id with sha256sum."""
    head = build(history)
    if head is None:
        return
    data = b"".join(head.pieces())
    require_valid("manifest", msgspec.json.decode(data))
    assert head.version_id == "sha256:" + hashlib.sha256(data).hexdigest()
    assert msgspec.json.decode(data, type=VersionRoot) == head.root


def test_items_of_other_slots_stay() -> None:
    """Merging one day leaves the other days and the other sources as they were."""
    head = m.merge(None, DATASET, item(1, asset("one.csv", b"1")), "merge")
    head = m.merge(head, DATASET, item(2, asset("two.csv", b"2")), "merge")
    head = m.merge(head, DATASET, item(1, asset("noaa.csv", b"n"), source="noaa"), "merge")
    head = m.merge(head, DATASET, item(1, asset("one.csv", b"new")), "merge")
    assert sorted(one.path for entry in head.items() for one in entry.assets) == [
        "noaa.csv",
        "one.csv",
        "two.csv",
    ]
    assert [entry.id for entry in head.items()] == sorted(entry.id for entry in head.items())


def test_replace_drops_the_other_items_of_that_source_only() -> None:
    """A snapshot source has one item; its neighbours in the dataset are not touched."""
    head = m.merge(None, DATASET, item(1, asset("one.csv", b"1")), "merge")
    head = m.merge(head, DATASET, item(1, asset("noaa.csv", b"n"), source="noaa"), "merge")
    head = m.merge(head, DATASET, item(2, asset("two.csv", b"2")), "replace")
    assert [one.path for entry in head.items() for one in entry.assets] == ["noaa.csv", "two.csv"]


def test_one_path_has_one_owner() -> None:
    """Two sources can't publish the same path; the message names both items and the path."""
    head = m.merge(None, DATASET, item(1, asset("same.csv", b"1")), "merge")
    with pytest.raises(PathConflict) as caught:
        m.merge(head, DATASET, item(2, asset("same.csv", b"2"), source="noaa"), "merge")
    for word in ("same.csv", "usgs_19700102T", "noaa_19700103T"):
        assert word in caught.value.message


def test_a_file_is_no_folder() -> None:
    """A path that is a file in one item and a folder in another can't be laid out, so it is refused."""
    head = m.merge(None, DATASET, item(1, asset("a/b", b"1")), "merge")
    with pytest.raises(PathConflict, match="folder"):
        m.merge(head, DATASET, item(2, asset("a/b/c.csv", b"2")), "merge")


def test_a_path_may_move_between_sources_in_one_promotion() -> None:
    """Several sources in one promotion are merged at once, not one after the other."""
    head = m.merge_items(
        None, DATASET, [item(1, asset("x", b"1")), item(1, asset("y", b"2"), source="noaa")], "merge"
    )
    swapped = m.merge_items(
        head, DATASET, [item(1, asset("y", b"1")), item(1, asset("x", b"2"), source="noaa")], "merge"
    )
    assert {change.kind for change in m.diff(head, swapped)} == {"changed"}


@pytest.mark.parametrize(
    "rights",
    [
        None,
        Rights(license=" ", care=Care(label="Public")),
        Rights(license="CC0-1.0", care=Care(label="")),
    ],
)
def test_without_rights_there_is_no_version(rights: Rights | None) -> None:
    """A dataset without licence or CARE label is not published."""
    dataset = msgspec.structs.replace(DATASET, rights=rights)
    with pytest.raises(RightsMissing):
        m.merge(None, dataset, item(1), "merge")


NAMES = st.text(max_size=20) | st.sampled_from(
    ["usgs", "usgs-daily", "a_b", "a~b", "ä", "x" * 300, "..", "a/b"]
)


@given(st.lists(st.tuples(NAMES, st.integers(0, 3), st.none() | NAMES), min_size=2, max_size=2))
def test_an_items_id_is_safe_and_belongs_to_one_slot(slots: list[tuple[str, int, str | None]]) -> None:
    """Ids can stand in a URL and as a file name, and two slots never share one."""
    ids = [
        item_id(source, Window(start_ms=day * DAY_MS, end_ms=(day + 1) * DAY_MS, spec="P1D"), partition)
        for source, day, partition in slots
    ]
    assert (ids[0] == ids[1]) == (slots[0] == slots[1])
    for one in ids:
        assert one.isascii()
        assert not set(one) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-")
        assert len(one) < 250


def test_an_items_id_can_be_read() -> None:
    """The usual id shows source and window as they are."""
    window = Window(start_ms=1_767_247_200_000, end_ms=1_767_333_600_000, spec="P1D")
    assert item_id("usgs-daily", window, None) == "usgs-daily_20260101T060000Z_20260102T060000Z"
    assert item_id("usgs-daily", window, "north").endswith("Z~north")


def test_rights_and_titles_are_part_of_the_diff() -> None:
    """Changed rights are shown field by field, with both values."""
    head = m.merge(None, DATASET, item(1, asset("a", b"1")), "merge")
    dataset = msgspec.structs.replace(
        DATASET, title="Other", rights=Rights(license="CC-BY-4.0", care=Care(label="Public", level="review"))
    )
    changes = {
        change.name: change
        for change in m.diff(head, m.merge(head, dataset, item(1, asset("a", b"1")), "merge"))
    }
    assert (changes["rights.license"].before, changes["rights.license"].after) == ("CC0-1.0", "CC-BY-4.0")
    assert changes["rights.care.level"].after == "review"
    assert changes["title"].after == "Other"


@pytest.mark.req("RS-13")
def test_an_extent_is_taken_from_the_dataset_and_stays_out_of_the_diff() -> None:
    """An item without extent has the dataset's; the diff says that it changed, without coordinates."""
    boxed = msgspec.structs.replace(DATASET, bbox=(-102.05, 37.0, -94.6, 1e-7))
    head = m.merge(None, boxed, item(1, asset("a", b"1")), "merge")
    assert head.items()[0].bbox == ("-102.05", "37", "-94.6", "0.0000001")
    changes = m.diff(m.merge(None, DATASET, item(1, asset("a", b"1")), "merge"), head)
    assert [(change.what, change.kind) for change in changes] == [("item", "changed")]
    assert b"102.05" not in msgspec.json.encode(changes)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6))
def test_decimal_text_is_the_same_number(value: float) -> None:
    """Text for a coordinate reads back as exactly that coordinate, and has no exponent."""
    text = m.decimal_text(value)
    assert float(text) == value
    assert "e" not in text.lower()


def test_blobs() -> None:
    """Bytes that stand at two paths are one object."""
    head = m.merge(None, DATASET, item(1, asset("a", b"1"), asset("b", b"1"), asset("c", b"2")), "merge")
    assert m.blobs(head.items()) == {asset("a", b"1").sha256, asset("c", b"2").sha256}


def test_every_field_of_the_records_is_in_the_schema() -> None:
    """A field that is added to a record must be added to the published schema."""
    full = Asset(path="p", sha256="0" * 64, size=1, media_type="a/b", source_uri="u", modified_ms=1)
    one = msgspec.structs.replace(item(1, full, partition="p"), bbox=("0", "0", "1", "1"))
    head = m.merge(None, DATASET, one, "merge")
    require_valid("manifest", msgspec.json.decode(b"".join(head.pieces())))
    require_valid("manifest", msgspec.json.decode(msgspec.json.encode(head.manifest())))
