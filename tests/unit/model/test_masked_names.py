"""Which names give a masked dataset away, and how long they are masked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kfm.model.masked_names import NOTHING, MaskedNames, names_by_dataset
from kfm.model.redaction import mask
from kfm.model.settings import Care, DatasetSettings, Rights, Settings, SourceSettings

pytestmark = pytest.mark.req("RS-13")
KEY = "key"
PUBLIC = Rights(license="CC0-1.0", care=Care(label="Public"))
RESTRICTED = Rights(license="CC0-1.0", care=Care(label="x", level="restricted"))


class Known:
    """A ledger that remembers these names, and has published these datasets."""

    def __init__(self, remembered: dict[str, list[str]] | None = None, **published: Rights) -> None:
        self._remembered = remembered or {}
        self._published = published
        self.providers = ["upstream.example"]
        self.announced: list[str] = []

    def mark(self, _name: str) -> str:
        return KEY

    def remembered_names(self) -> dict[str, list[str]]:
        return self._remembered

    def head(self, dataset_id: str) -> Any:
        rights = self._published.get(dataset_id)
        return None if rights is None else (None, SimpleNamespace(header=SimpleNamespace(rights=rights)))

    def heads(self) -> Any:
        return [SimpleNamespace(dataset_id=name) for name in self._published]

    def breakers(self) -> Any:
        return [SimpleNamespace(provider=name) for name in self.providers]

    def unit_figures(self) -> Any:
        return [(name, "succeeded", 1, None) for name in self.announced]


SETTINGS = Settings(
    datasets=(
        DatasetSettings(id="rivers", domain="hydrology", rights=PUBLIC),
        DatasetSettings(id="rivers-of-graves", rights=PUBLIC),
        DatasetSettings(id="graves", title="Where they rest", domain="sites", rights=RESTRICTED),
    ),
    sources=(
        SourceSettings(id="gauge", dataset="rivers", kind="http", url="https://shared.example/a"),
        SourceSettings(id="feed", dataset="graves", kind="http", url="https://shared.example/b"),
        SourceSettings(id="list", dataset="graves", kind="http", url="https://own.example/c"),
    ),
)
SCHEDULES = [SimpleNamespace(id="weekly", source="feed"), SimpleNamespace(id="daily", source="gauge")]


def test_all_names_that_only_masked_datasets_have() -> None:
    """Ids, titles, sources, schedules, domains and providers; what a visible dataset has too is no secret."""
    names = MaskedNames(SETTINGS, Known(), SCHEDULES).names
    assert names == {"graves", "Where they rest", "sites", "feed", "list", "own.example", "weekly"} | {
        "upstream.example"  # called by a pipeline's own code: for whom is not known
    }


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("graves", True),
        ("m-graves", True),
        ("GRAVES_2026.csv", True),
        ("where-they-rest", True),
        ("https://own.example/x", True),
        ("https://shared.example/x", False),
        ("gravestones", False),
        ("rivers-of-graves are public", False),
        ("rivers-of-graves and graves", True),
        ("rivers", False),
    ],
)
def test_a_text_tells_in_any_spelling(text: str, tells: bool) -> None:
    """With other separators and cases, within a longer word; not within a name that may be seen."""
    assert MaskedNames(SETTINGS, Known(), SCHEDULES).tells(text) is tells


def test_what_left_the_configuration_stays_masked() -> None:
    """With all of its names; also if it was public when it was last published. What is declared decides."""
    remembered = {"graves": ["graves", "feed", "old-feed"], "rivers": ["rivers", "gauge"]}
    without = Settings(datasets=SETTINGS.datasets[:1], sources=SETTINGS.sources[:1])
    names = MaskedNames(without, Known(remembered, graves=PUBLIC))
    assert names.hides("graves")
    assert names.names == {"graves", "feed", "old-feed", "upstream.example"}
    assert not names.hides("rivers")
    assert names.hides("never-heard-of")
    assert not MaskedNames(without, Known(graves=PUBLIC)).hides("graves")


def test_what_is_announced_is_no_secret() -> None:
    """A dataset that is known from announced objects alone may be named, as its units are; not one that is
    declared as masked, or was."""
    known = Known({"tombs": ["tombs"]})
    known.announced = ["hrrr", "graves", "tombs"]
    names = MaskedNames(SETTINGS, known)
    for name, is_hidden in (("hrrr", False), ("graves", True), ("tombs", True), ("never-heard-of", True)):
        assert names.hides(name) is is_hidden, name
        assert names.hides_units(name) is (is_hidden and name != "never-heard-of"), name


def test_a_guess_finds_nothing_and_a_mask_its_name() -> None:
    """Filters take masks, with their kind or without; a masked name means nothing that there is."""
    names = MaskedNames(SETTINGS, Known(), SCHEDULES)
    assert names.meant("graves") == names.meant("dataset:graves") == NOTHING
    assert names.meant(mask("graves", KEY)) == "graves"
    assert names.meant(f"dataset:{mask('graves', KEY)}") == "dataset:graves"
    assert (names.meant("rivers"), names.meant("masked-000000000000")) == ("rivers", "masked-000000000000")
    assert names.mask("dataset:graves") == f"dataset:{mask('graves', KEY)}"


def test_names_are_told_by_dataset() -> None:
    """As they are remembered: each under the dataset that it gives away."""
    assert names_by_dataset(SETTINGS, SCHEDULES) == {
        "graves": {
            "graves",
            "Where they rest",
            "sites",
            "feed",
            "list",
            "shared.example",
            "own.example",
            "weekly",
        }
    }
