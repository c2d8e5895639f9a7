"""From a configuration to an emitter: names, masks and homes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from kfm.config.loader import Loaded, OpenLineage, load
from kfm.lineage.collectors import (
    MASK_KEY,
    MaskKey,
    dataset_homes,
    describe_collector,
    make_collector,
    make_emitter,
)
from kfm.lineage.emitter import NullEmitter
from kfm.model.errors import ConfigError
from kfm.model.redaction import is_masked, mask
from kfm.sinks.openlineage_http import HttpCollector
from tests.stand_ins import FakeClock
from tests.unit.lineage.outbox import make_store
from tests.unit.lineage.samples import attempt, ended, event, everything, run

CONFIG = """\
version: 1
environment: test
datasets:
  - id: ks-streamflow
    rights: {license: CC0-1.0, care: {label: Public}}
  - id: burial-mounds
    rights: {license: CC0-1.0, care: {label: Private, level: restricted}}
  - id: no-rights
sources:
  - {id: daily, dataset: ks-streamflow, kind: files, folder: incoming}
publish:
  - {kind: local, path: ./published}
  - {kind: s3, url: "s3://open-data/v1/"}
  - {kind: s3, name: whole, url: "s3://other"}
  - {kind: noop}
  - {kind: github-actions}
"""
NOTHING = OpenLineage({})


class Around:
    """As much of an application as a collector needs."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.settings = loaded.settings
        self.state = loaded.resolve(loaded.settings.state)
        self.clock = FakeClock()
        self.ledger = self.store = make_store(self.clock)


def read(folder: Path, more: str = "") -> Loaded:
    (folder / "kfm.yml").write_text(CONFIG + more)
    return load(str(folder / "kfm.yml"), environ={})


@pytest.mark.req("UPD-15")
def test_a_dataset_is_named_where_its_targets_show_it(tmp_path: Path) -> None:
    """Folders by their whole path, buckets by bucket and key; what shows nothing lasting has no name."""
    assert list(dataset_homes(read(tmp_path), "ks")) == [
        ("file", f"{tmp_path}/published/ks"),
        ("s3://open-data", "v1/ks"),
        ("s3://other", "ks"),
    ]


@pytest.mark.req("RS-13")
@pytest.mark.parametrize(
    ("dataset_id", "hidden"),
    [("ks-streamflow", False), ("burial-mounds", True), ("no-rights", True), ("not-configured", True)],
)
def test_what_may_not_be_named_is_masked(tmp_path: Path, dataset_id: str, hidden: bool) -> None:
    """Restricted data, data without declared rights and data that is not configured any more are masked."""
    key = MaskKey()
    emitter = make_emitter(read(tmp_path), key, NOTHING)
    key.value = "k"
    document = event(emitter.ended(ended("complete"), run(dataset_id=dataset_id), everything()))
    shown = document["run"]["facets"]["kfmRunState"]["dataset_id"]
    assert shown == (mask(dataset_id, "k") if hidden else dataset_id)
    assert (dataset_id in json.dumps(document)) == (not hidden)


def test_without_a_key_masked_names_are_all_the_same(tmp_path: Path) -> None:
    """Before the key is known nothing can be guessed from a mask."""
    emitter = make_emitter(read(tmp_path), MaskKey(), NOTHING)
    document = event(emitter.started(attempt(), run(dataset_id="burial-mounds"), everything()))
    assert document["run"]["facets"]["kfmRunState"]["dataset_id"] == "masked"


def test_the_key_is_made_once_and_only_where_it_is_needed(tmp_path: Path) -> None:
    """An environment has one mask key; one with nothing to mask has none."""
    store, loaded = make_store(), read(tmp_path)
    first, second = MaskKey(), MaskKey()
    first.take(store, loaded.settings, lambda: "one")
    second.take(store, loaded.settings, lambda: "two")
    assert first.value == second.value == store.mark(MASK_KEY) == "one"
    other = make_store()
    third = MaskKey()
    public = [one for one in loaded.settings.datasets if not is_masked(one)]
    third.take(other, replace(loaded.settings, datasets=tuple(public)), lambda: "three")
    assert other.mark(MASK_KEY) is None


@pytest.mark.parametrize(
    ("more", "given"),
    [("lineage: {export: none}\n", OpenLineage({"url": "http://c"})), ("", OpenLineage({}, disabled=True))],
)
def test_who_wants_no_lineage_has_none(tmp_path: Path, more: str, given: OpenLineage) -> None:
    """`export: none` and a disabled client silence the emitter, whatever else is said."""
    assert isinstance(make_emitter(read(tmp_path, more), MaskKey(), given), NullEmitter)


@pytest.mark.req("TRG-9")
def test_a_token_goes_to_the_collector_that_it_was_given_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's token is used with the file's address only."""
    pytest.importorskip("openlineage.client")
    monkeypatch.setenv("LINEAGE_TOKEN", "t0ken")
    loaded = read(tmp_path, "lineage: {export: http, url: 'http://own', token: 'env:LINEAGE_TOKEN'}\n")
    app = Around(loaded)
    own = make_collector(app, NOTHING)
    other = make_collector(app, OpenLineage({"url": "http://other"}))
    assert isinstance(own, HttpCollector)
    assert isinstance(other, HttpCollector)
    assert own._transport.config.auth.get_bearer() == "Bearer t0ken"
    assert other._transport.config.auth.get_bearer() is None


def test_a_collector_without_an_address_is_a_mistake(tmp_path: Path) -> None:
    """Who wants HTTP has to say where to."""
    with pytest.raises(ConfigError, match="no collector is named"):
        make_collector(Around(read(tmp_path, "lineage: {export: http}\n")), NOTHING)


@pytest.mark.parametrize(
    ("more", "path"),
    [("", ".kfm/lineage/openlineage.jsonl"), ("lineage: {path: log/l.jsonl}\n", "log/l.jsonl")],
)
def test_a_file_has_its_place(tmp_path: Path, more: str, path: str) -> None:
    """Events go into the state folder, or where the configuration says, seen from its own folder."""
    assert describe_collector(Around(read(tmp_path, more)), NOTHING) == str(tmp_path / path)


def test_the_namespace_of_jobs_can_be_set(tmp_path: Path) -> None:
    """It is kfm.<environment>, unless the configuration says otherwise."""
    said = [
        make_emitter(read(tmp_path, more), MaskKey(), NOTHING)
        for more in ("", "lineage: {namespace: water.prod}\n")
    ]
    names = [event(one.started(attempt(), run(), everything()))["job"]["namespace"] for one in said]
    assert names == ["kfm.test", "water.prod"]
