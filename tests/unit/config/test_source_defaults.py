"""`source_defaults`: what sources have in common is written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.config.loader import Loaded, load
from kfm.model.errors import ConfigError

HEAD = """\
version: 1
datasets:
  - {id: levels, rights: {license: CC0-1.0, care: {label: Public}}}
"""


def loaded(folder: Path, text: str) -> Loaded:
    path = folder / "kfm.yml"
    path.write_text(HEAD + text)
    return load(str(path), {}, {})


@pytest.mark.req("UPD-1", "CLI-2")
def test_a_source_has_what_it_does_not_say(tmp_path: Path) -> None:
    """Each field that a source leaves out is the default; what it says itself stays."""
    found = loaded(
        tmp_path,
        """\
source_defaults: {dataset: levels, kind: files, time_zone: America/Chicago, window: PT1H}
sources:
  - {id: a, folder: in}
  - {id: b, folder: in, window: P1D}
""",
    )
    a, b = found.settings.sources
    assert (a.dataset, a.kind, a.time_zone, a.window) == ("levels", "files", "America/Chicago", "PT1H")
    assert b.window == "P1D"
    assert found.origins["sources[0].window"].endswith("kfm.yml:4")
    assert found.origins["sources[1].window"].endswith("kfm.yml:7")


@pytest.mark.req("UPD-1")
def test_a_default_that_a_kind_has_not_is_left_out(tmp_path: Path) -> None:
    """Headers are for HTTP, a provider for what calls out; a folder takes neither, and that is no error."""
    found = loaded(
        tmp_path,
        """\
source_defaults: {dataset: levels, headers: {Accept: text/csv}, provider: gauges}
sources:
  - {id: a, kind: files, folder: in}
  - {id: b, kind: http, url: "https://example.org/b.csv"}
""",
    )
    a, b = found.settings.sources
    assert (a.headers, a.provider) == ({}, None)
    assert (b.headers, b.provider) == ({"Accept": "text/csv"}, "gauges")


@pytest.mark.req("CLI-2")
def test_a_wrong_default_is_said_once_at_its_line(tmp_path: Path) -> None:
    """Two sources that have it are not two problems, and the line is that of the default."""
    with pytest.raises(ConfigError) as refused:
        loaded(
            tmp_path,
            """\
source_defaults: {dataset: levels, kind: files, window: P0D}
sources:
  - {id: a, folder: in}
  - {id: b, folder: in}
""",
        )
    assert refused.value.detail.count("window") == 1
    assert "kfm.yml:4:" in refused.value.detail


@pytest.mark.req("CLI-2")
def test_a_misspelt_default_names_the_right_word(tmp_path: Path) -> None:
    """An unknown field is refused with the nearest right one; a secret is refused here, too."""
    with pytest.raises(ConfigError, match="did you mean `time_zone`"):
        loaded(tmp_path, "source_defaults: {timezone: UTC}\n")
    with pytest.raises(ConfigError, match="holds a secret"):
        loaded(tmp_path, "source_defaults: {headers: {Authorization: Bearer abcdefgh}}\n")
