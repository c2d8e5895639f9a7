"""Names of datasets: which version has which name, and whom a name means."""

from __future__ import annotations

import pytest

from kfm.model.dataset_names import (
    Rename,
    earlier_names,
    identity_of,
    name_at,
    owner_of,
    pointer,
    present_name,
)
from kfm.model.settings import (
    Care,
    DatasetSettings,
    Freeze,
    Hook,
    Rights,
    Settings,
    SourceSettings,
    Target,
    identified,
)
from kfm.model.targets import taking

pytestmark = pytest.mark.req("DAT-5")

PUBLIC = Rights(license="CC0-1.0", care=Care(label="Public"))
RESTRICTED = Rights(license="CC0-1.0", care=Care(label="Restricted", level="restricted"))


def renames(*names: tuple[str, str, int], dataset_id: str = "a") -> tuple[Rename, ...]:
    return tuple(
        Rename(dataset_id=dataset_id, old=old, new=new, sequence=at, renamed_at_ms=0, reason="why")
        for old, new, at in names
    )


def test_each_version_has_the_name_of_its_time() -> None:
    """From the version of a renaming on it has the new name; also a name that it had before."""
    known = renames(("a", "b", 3), ("b", "c", 5), ("c", "a", 9))
    assert [name_at("a", known, at) for at in (1, 2, 3, 4, 5, 8, 9, 12)] == list("aabbccaa")
    assert (present_name("a", known), earlier_names("a", known)) == ("a", ("b", "c"))
    assert (present_name("a", ()), earlier_names("a", ())) == ("a", ())


def test_a_pointer_names_the_present_name() -> None:
    """Whichever earlier name it stands at, under the number of the last renaming."""
    known = renames(("a", "b", 3), ("b", "c", 5))
    for name in ("a", "b"):
        told = pointer(name, known)
        assert (told["dataset_id"], told["renamed_to"], told["sequence"], told["state"]) == (
            name,
            "c",
            5,
            "renamed",
        )


def written(**changes: object) -> Settings:
    fixed: dict[str, object] = {
        "datasets": (
            DatasetSettings(id="c", formerly=("a", "b"), rights=PUBLIC),
            DatasetSettings(id="d", rights=PUBLIC),
        ),
        "sources": (
            SourceSettings(id="s", dataset="c", kind="files"),
            SourceSettings(id="t", dataset="d", kind="dataset", datasets={"b": "window"}),
        ),
    }
    return Settings(**{**fixed, **changes})  # type: ignore[arg-type]


def test_everything_below_the_configuration_has_the_first_name() -> None:
    """Sources, inputs, freezes and hooks mean the dataset by any of its names."""
    settings = identified(
        written(
            freezes=(Freeze(start="2026-01-01", end="2026-01-02", reason="r", datasets=("c*",)),),
            incidents=(Hook(kind="file", datasets=("b", "d")),),
        )
    )
    assert [dataset.names for dataset in settings.datasets] == [("a", "b", "c"), ("d",)]
    assert [source.dataset for source in settings.sources] == ["a", "d"]
    assert settings.sources[1].datasets == {"a": "window"}
    assert settings.freezes[0].datasets == ("c*", "a")
    assert settings.incidents[0].datasets == ("b", "d", "a")
    assert [settings.dataset_id(name) for name in ("a", "b", "c", "d", "e", None)] == [*"aaade", None]
    assert [settings.called_dataset(name) for name in ("a", "d", "e")] == ["c", "d", "e"]


def test_a_name_on_record_is_found_without_a_declaration() -> None:
    """A configuration that has lost `formerly` does not lose the dataset; a declared name comes first."""
    known = renames(("a", "x", 2))
    settings = identified(written())
    assert identity_of("x", settings, known) == "a"
    assert identity_of("b", settings, known) == "a"
    assert identity_of("d", settings, renames(("a", "d", 2))) == "d"
    assert (owner_of("x", known), owner_of("a", known)) == ("a", None)


@pytest.mark.parametrize(
    ("datasets", "rights", "taken"),
    [
        (("*",), PUBLIC, "taken"),
        (("c",), PUBLIC, "taken"),
        (("a",), PUBLIC, "taken"),
        (("c*",), PUBLIC, "taken"),
        (("a*",), PUBLIC, "other-datasets"),
        (("c*",), RESTRICTED, "care"),
        (("a",), RESTRICTED, "taken"),
        (("c",), RESTRICTED, "taken"),
    ],
)
def test_targets_take_it_by_id_or_by_its_present_name(
    datasets: tuple[str, ...], rights: Rights, taken: str
) -> None:
    """An id means the dataset, whichever of its names that is; a pattern is about the present one, and names
    no restricted dataset."""
    dataset = DatasetSettings(id="a", formerly=("b", "c"), rights=rights)
    assert taking(Target(kind="local", path="p", datasets=datasets), dataset) == taken
