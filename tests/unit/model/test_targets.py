"""Which datasets a target takes."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.approvals import attempt_digest
from kfm.model.settings import Care, DatasetSettings, Rights, Settings, Target
from kfm.model.targets import ReachedTarget, reached, reached_text, shared, takes, taking, withheld

pytestmark = pytest.mark.req("DAT-6")

LEVELS = ("public", "review", "restricted", "blocked")
IDS = ("nests", "nest-boxes", "levels", "air")
PATTERNS = ("*", "nest*", "n?sts", "[nl]*", *IDS)
datasets = st.builds(
    lambda name, level: DatasetSettings(
        id=name, rights=level and Rights(license="CC0-1.0", care=Care(label="L", level=level))
    ),
    st.sampled_from(IDS),
    st.sampled_from((None, *LEVELS)),
)
targets = st.builds(
    Target,
    kind=st.just("s3"),
    name=st.sampled_from(("a", "b", "c")),
    url=st.sampled_from(("s3://one", "s3://two")),
    datasets=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3).map(tuple),
    care=st.none() | st.lists(st.sampled_from(LEVELS[:3]), min_size=1, max_size=3).map(tuple),
)
settings = st.builds(
    Settings,
    datasets=st.lists(datasets, unique_by=lambda one: one.id, max_size=4).map(tuple),
    publish=st.lists(targets, unique_by=lambda one: one.name, max_size=3).map(tuple),
)


@given(targets, datasets)
def test_restricted_data_is_taken_by_name_only(target: Target, dataset: DatasetSettings) -> None:
    """Its level in `care`, or its own id in `datasets` where `care` sets no limit; blocked by none."""
    if not takes(target, dataset):
        return
    assert dataset.rights is not None
    level = dataset.rights.care.level
    assert level != "blocked"
    if level == "restricted":
        assert "restricted" in (target.care or ()) or (target.care is None and dataset.id in target.datasets)


@given(targets, datasets)
def test_what_is_taken_is_what_both_lists_allow(target: Target, dataset: DatasetSettings) -> None:
    """The same answer as the rule written as one table."""
    level = dataset.rights.care.level if dataset.rights else "blocked"
    by_name = any(fnmatchcase(dataset.id, pattern) for pattern in target.datasets)
    levels = target.care if target.care is not None else ("public", "review")
    if target.care is None and dataset.id in target.datasets:
        levels = ("public", "review", "restricted")
    assert takes(target, dataset) == (by_name and level in levels and level != "blocked")
    assert (taking(target, dataset) == "taken") == takes(target, dataset)


@given(settings, settings, datasets)
def test_a_change_of_the_file_only_ever_takes_targets_away(
    start: Settings, now: Settings, dataset: DatasetSettings
) -> None:
    """What is reached took the dataset at the start and takes it now, at the same place."""
    found = reached(start, now, dataset)
    assert set(found) == set(reached(start, start, dataset)) & set(reached(now, now, dataset))
    assert list(found) == sorted(found, key=lambda one: one.name)


@given(settings)
def test_notes_name_restricted_datasets_alone(chosen: Settings) -> None:
    """What is left out by default is restricted, and what shares a target is not all restricted."""
    by_id = {one.id: one for one in chosen.datasets}
    for dataset_id, _ in withheld(chosen):
        rights = by_id[dataset_id].rights
        assert rights is not None
        assert rights.care.level == "restricted"
    for _, restricted, others in shared(chosen):
        assert restricted
        assert others
        assert not set(restricted) & set(others)


def test_an_attempt_is_bound_to_its_targets() -> None:
    """Another name, kind or place is another digest; without targets it is that of earlier versions."""
    dataset = DatasetSettings(id="nests", rights=Rights(license="CC0-1.0", care=Care(label="L")))
    one = ReachedTarget(name="a", kind="s3", place="s3://one")
    variants: list[tuple[ReachedTarget, ...]] = [
        (),
        (one,),
        (one, ReachedTarget(name="b", kind="s3", place="s3://two")),
        (ReachedTarget(name="b", kind="s3", place="s3://one"),),
        (ReachedTarget(name="a", kind="local", place="s3://one"),),
        (ReachedTarget(name="a", kind="s3", place="s3://two"),),
    ]
    digests = [attempt_digest(dataset, "sha256:1", each) for each in variants]
    assert len(set(digests)) == len(variants)
    assert digests[0] == "sha256:2aeefe643402534f4d4a6f323b94a55d0fb65eb3356824f824c90ac0473c81f1"


def test_an_address_is_named_without_its_secrets() -> None:
    """Plans and approvals are read by others."""
    target = Target(kind="stac", url="https://ann:s3cr3t@stac.example/api?token=s3cr3t")
    dataset = DatasetSettings(id="levels", rights=Rights(license="CC0-1.0", care=Care(label="L")))
    chosen = Settings(datasets=(dataset,), publish=(target,))
    assert "s3cr3t" not in reached_text(reached(chosen, chosen, dataset))
