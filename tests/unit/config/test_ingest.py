"""Datasets that a configuration names: looked up where announced objects matter, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.config.loader import load
from kfm.model.errors import ConfigError
from kfm.nodd.dataset_registry import require_known_datasets

NAMED = """\
ingest:
  policies:
    - {datasets: [mrsm, own-data], integrity: full}
  generic:
    - {bucket: own, dataset: own-data}
    - {bucket: other, dataset: gfs}
datasets: [{id: levels, rights: {license: CC0-1.0, care: {label: Public}}}]
sources:
  - {id: daily, dataset: levels, kind: files, folder: x, follows: [hrr, own-data]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.req("CLI-2")
def test_names_that_nothing_announces_are_told_with_their_lines(folder: Path) -> None:
    """Every wrong name at once, each with the nearest right one; generic datasets are right ones."""
    (folder / "kfm.yml").write_text(NAMED)
    loaded = load(environ={})  # loading alone does not look them up
    with pytest.raises(ConfigError) as caught:
        require_known_datasets(loaded)
    assert list(caught.value.facts["problems"]) == [
        "kfm.yml:3: there is no announced dataset `mrsm`; did you mean `mrms`?",
        "kfm.yml:6: `gfs` is a known dataset; give the objects that nothing describes a name of their own",
        "kfm.yml:9: there is no announced dataset `hrr`; did you mean `hrrr`?",
    ]


def test_right_names_are_right(folder: Path) -> None:
    """Known and generic names pass, and so does `*`."""
    text = NAMED.replace("mrsm", "mrms").replace("[hrr,", "[hrrr,").replace("dataset: gfs", "dataset: other")
    (folder / "kfm.yml").write_text(text + "\n")
    require_known_datasets(load(environ={}))


def test_secrets_of_replicas_and_buckets_are_kept_to_ourselves(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What their references stand for is never told."""
    monkeypatch.setenv("REPLICA_WORD", "replica-word-1")
    monkeypatch.setenv("BUCKET_WORD", "bucket-word-2")
    (folder / "kfm.yml").write_text(
        "ingest:\n  replicas: [{name: r, url: 'https://x', token: 'env:REPLICA_WORD'}]\n"
        "  object_options: {'s3://*': {secret_access_key: 'env:BUCKET_WORD', region: 'env:BUCKET_WORD'}}\n"
    )
    assert load().discretion.hide("replica-word-1 bucket-word-2") == "*** ***"


FEEDS = """\
ingest:
  feeds:
    - {dataset: goes-abi, products: [ABI-L2-CMIPC], platforms: [GOES-19, GOES-18]}
    - {dataset: goes-abi, products: [ABI-L2-CMIPC], platforms: [GOES-19]}
    - {dataset: gfs, products: ["a b"], per_hour: 0}
    - {dataset: gfs, products: [x], hours: [6, 24], within: soon}
    - {dataset: gfs, products: [y], from: yesterday}
    - {dataset: gfs, per_hour: 3}
"""


@pytest.mark.req("DAT-2")
def test_feeds_that_make_no_sense_are_told_with_their_lines(folder: Path) -> None:
    """A row that is there twice, a number, an hour or a time that can't be, a rule without products."""
    (folder / "kfm.yml").write_text(FEEDS)
    with pytest.raises(ConfigError) as caught:
        load(environ={})
    said = list(caught.value.facts["problems"])
    assert [one.partition(": ")[0] for one in said] == [f"kfm.yml:{line}" for line in (4, 5, 5, 6, 6, 7, 8)]
    for part, one in zip(
        ("expected twice", "no spaces", "at least 1", "0 to 23", "`within`", "`from`", "`products`"),
        said,
        strict=True,
    ):
        assert part in one, one


@pytest.mark.req("DAT-2")
def test_a_feed_of_a_dataset_that_nothing_announces_is_told(folder: Path) -> None:
    """With the nearest name that is known."""
    (folder / "kfm.yml").write_text("ingest:\n  feeds:\n    - {dataset: goes-aby}\n")
    with pytest.raises(ConfigError) as caught:
        require_known_datasets(load(environ={}))
    assert list(caught.value.facts["problems"]) == [
        "kfm.yml:3: there is no announced dataset `goes-aby`; did you mean `goes-abi`?"
    ]


@pytest.mark.req("DAT-2")
def test_a_feed_of_objects_that_nothing_describes_is_refused(folder: Path) -> None:
    """Neither product nor time is known of them, so no hour could ever have one."""
    (folder / "kfm.yml").write_text(
        "ingest:\n  generic: [{bucket: b, dataset: own}]\n"
        "  feeds: [{dataset: own, products: [x], per_hour: 1}]\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(environ={})
    assert "it is generic" in str(caught.value.facts["problems"])
