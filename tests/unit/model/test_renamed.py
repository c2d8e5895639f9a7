"""Sources under their first names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.masked_names import names_by_dataset
from kfm.model.records import Asset, Item
from kfm.model.settings import Care, DatasetSettings, Rights, Settings, SourceSettings, identified
from kfm.model.versions import Version
from kfm.publish.manifest import merge

pytestmark = pytest.mark.req("DAT-5")

RIGHTS = Rights(license="CC0-1.0", care=Care(label="L"))
DATASET = DatasetSettings(id="d", rights=RIGHTS)
DAY_MS = 86_400_000
NAMES = ("a", "b", "c", "d", "e")


def source(name: str, formerly: tuple[str, ...] = (), members: tuple[str, ...] = ()) -> SourceSettings:
    return SourceSettings(id=name, dataset="d", kind="files", formerly=formerly, members=members)


histories = st.permutations(NAMES).flatmap(
    lambda names: st.lists(st.integers(0, 4), min_size=1, max_size=3).map(
        lambda cuts: [
            names[start:end] for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 5], strict=True)
        ]
    )
)


@given(histories)
def test_the_first_name_is_the_identity_and_every_name_finds_it(histories: list[list[str]]) -> None:
    """Whatever it is called now: its id is the first name, and what it is called is the last."""
    lives = [life for life in histories if life]
    settings = Settings(sources=tuple(source(life[-1], tuple(life[:-1])) for life in lives))
    found = identified(settings)
    for life in lives:
        for name in life:
            assert found.source(name).id == found.source_id(name) == life[0]
        assert found.called(life[0]) == life[-1]
    assert found.source_id("nothing") == "nothing"
    assert found.source_named("nothing") is None
    assert (found is settings) == all(len(life) == 1 for life in lives)


def test_members_are_meant_by_their_present_names() -> None:
    """A sync that names a renamed member has it by its identity."""
    found = identified(Settings(sources=(source("all", members=("new",)), source("new", ("old",)))))
    assert found.source("all").members == ("old",)
    assert found.sync_of("old") == "all"


def test_no_name_of_a_masked_dataset_is_told() -> None:
    """Former names give it away as much as the present one."""
    dataset = DatasetSettings(
        id="d", rights=Rights(license="CC0-1.0", care=Care(label="L", level="restricted"))
    )
    settings = identified(Settings(datasets=(dataset,), sources=(source("new", ("old", "middle")),)))
    assert {"old", "middle", "new"} <= names_by_dataset(settings)["d"]


def item(source_id: str, day: int, path: str) -> Item:
    return Item(
        id="",
        source_id=source_id,
        window_start_ms=day * DAY_MS,
        window_end_ms=(day + 1) * DAY_MS,
        partition=None,
        assets=(Asset(path=path, sha256="0" * 64, size=1, media_type="text/csv"),),
    )


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), unique=True, max_size=8),
    st.sampled_from(("merge", "replace")),
)
def test_items_of_every_name_are_in_one_slot(before: list[tuple[str, int]], mode: str) -> None:
    """A slot of the source has one item, whatever names it had; other sources keep theirs."""
    head: Version | None = None
    for name, day in before:
        head = merge(head, DATASET, item(name, day, f"{name}/{day}.csv"), "merge")
    own = ("a", "b", "c")
    merged = merge(head, DATASET, item("a", 1, "new.csv"), mode, own)  # type: ignore[arg-type]
    kept = {(one.source_id, one.window_start_ms // DAY_MS) for one in merged.items()}
    gone = {one for one in before if one[0] in own and (mode == "replace" or one[1] == 1)}
    assert kept == (set(before) - gone) | {("a", 1)}
