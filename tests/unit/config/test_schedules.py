"""`cron.yml`: what it may say, and what is said where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import updater
from kfm.config.loader import Loaded, load
from kfm.config.schedule_file import read_schedules
from kfm.config.schedules import load_schedules
from kfm.model.errors import ConfigError
from kfm.model.schedules import MissedPolicy, Schedule
from kfm.model.settings import DatasetSettings, Settings, SourceSettings

KNOWN = Settings(
    datasets=(DatasetSettings(id="levels"),),
    sources=(
        SourceSettings(id="daily", dataset="levels", kind="files", folder="x", time_zone="America/Chicago"),
        SourceSettings(id="hourly", dataset="levels", kind="files", folder="x", window="PT1H"),
    ),
)
CONFIG = """\
datasets: [{id: levels, rights: {license: CC0-1.0, care: {label: Public}}}]
sources: [{id: daily, dataset: levels, kind: files, folder: x}]
"""
WRONG = """\
version: 1
schedules:
  - {id: a, source: daly, cron: "15 7 * * *"}
  - {id: a, source: daily, cron: "15 27 * * *"}
  - {id: A, source: daily, every: PT1H, time_zone: America/Chicgo}
  - {id: both, source: daily, every: PT1H, cron: "0 0 * * *"}
  - {id: none, source: daily}
  - {id: "b/c", source: daily, every: P1D}
  - {id: month, source: daily, cron: "0 0 31 2 *", missed: {within: P1M, cap: 0}}
  - {id: shaken, source: daily, every: PT1H, jitter: PT1H}
  - {id: anchored, source: daily, cron: "0 0 * * *", anchor: 2026-01-01}
  - {id: still, source: daily, every: PT1H, anchor: yesterday, window: 2026-01-01/P1D}
"""
SAID = """\
cron.yml:3: schedule `a` names the source `daly`, which is not there; did you mean `daily`?
cron.yml:4: two schedules have the id `a`
cron.yml:4: `cron` can't be used: `27` can't be the hour
cron.yml:5: the schedule ids `a` and `A` differ in case only
cron.yml:5: there is no time zone `America/Chicgo`; did you mean `America/Chicago`?
cron.yml:6: schedule `both` needs `cron` or `every`, one of the two
cron.yml:7: schedule `none` needs `cron` or `every`, one of the two
cron.yml:8: the schedule id `b/c` has characters that are not allowed
cron.yml:8: `every` can't be used: 'P1D' could mean days by the clock or by the hour
cron.yml:9: `cron` can't be used: no date matches it
cron.yml:9: `within` can't be used: 'P1M' is not always equally long: use days or hours
cron.yml:9: `cap` must be from 1 to 1,000
cron.yml:10: `jitter` must be shorter than `every`
cron.yml:11: `anchor` only applies to `every`
cron.yml:12: `anchor` can't be used: 'yesterday' is not an RFC 3339 time
cron.yml:12: `window` can't be used: a schedule needs a length, such as P1D, not a span
"""


def read(text: str) -> tuple[Schedule, ...]:
    return read_schedules("cron.yml", text.encode(), KNOWN)


@pytest.mark.req("UPD-13")
def test_all_that_a_schedule_may_say() -> None:
    """Every field arrives; what is left out is the source's, or the documented default."""
    full, plain = read(
        """\
version: 1
schedules:
  - id: full
    source: hourly
    every: PT90M
    anchor: 2026-01-01T00:10:00Z
    time_zone: Europe/Berlin
    window: PT1H
    jitter: PT5M
    overlap: queue-one
    missed: {run: all, within: P2D, cap: 7}
    while_paused: drop
    enabled: false
  - {id: plain, source: daily, cron: "15  7 * * MON-FRI"}
"""
    )
    assert full == Schedule(
        id="full",
        source="hourly",
        every_ms=5_400_000,
        anchor_ms=1_767_226_200_000,
        time_zone="Europe/Berlin",
        window="PT1H",
        jitter_ms=300_000,
        overlap="queue-one",
        missed=MissedPolicy(run="all", within_ms=172_800_000, cap=7),
        while_paused="drop",
        enabled=False,
    )
    assert plain == Schedule(id="plain", source="daily", cron="15 7 * * MON-FRI", time_zone="America/Chicago")


@pytest.mark.req("UPD-13", "CLI-2")
def test_every_problem_names_its_line() -> None:
    """All problems at once, in the order of the lines, with the nearest right word where there is one."""
    with pytest.raises(ConfigError) as caught:
        read(WRONG)
    said = list(caught.value.facts["problems"])
    expected = SAID.splitlines()
    assert len(said) == len(expected)
    for sentence, beginning in zip(said, expected, strict=True):
        assert sentence.startswith(beginning)


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schedules: [{id: a, sorce: daily}]", "cron.yml:1: `sorce` is not a setting"),
        ("schedules:\n  - {id: a, source: daily, overlap: skp}", "cron.yml:2: `overlap` can't be `skp`"),
        ("schedule: []", "cron.yml:1: `schedule` is not a setting; did you mean `schedules`?"),
        ("- a", "cron.yml:1: the file must hold settings"),
        ("", "cron.yml: the file is empty"),
    ],
)
def test_wrong_shapes(text: str, said: str) -> None:
    """A misspelt field or word is named with its line."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert said in caught.value.detail


def test_which_file(tmp_path: Path) -> None:
    """The file that is named must be there; `cron.yml` beside the configuration is optional."""
    place = tmp_path / "kfm.yml"

    def loaded() -> Loaded:
        return load(str(place), environ={})

    place.write_text(CONFIG)
    assert load_schedules(loaded()) == ()
    (tmp_path / "cron.yml").write_text("schedules: [{id: a, source: daily, every: PT1H}]")
    assert [each.id for each in load_schedules(loaded())] == ["a"]
    place.write_text(f"schedules: when.yml\n{CONFIG}")
    with pytest.raises(ConfigError, match=r"kfm.yml:1: there is no file `when.yml`"):
        load_schedules(loaded())
    (tmp_path / "when.yml").write_text("schedules: [{id: b, source: daily, every: PT1H}]")
    assert [each.id for each in load_schedules(loaded())] == ["b"]


@settings(max_examples=200, deadline=None)
@given(st.text("0123456789*/,-#LWAMON ", max_size=24))
def test_hostile_expressions(text: str) -> None:
    """Whatever stands there is a schedule or a sentence."""
    said = ""
    try:
        (each,) = read(f'schedules: [{{id: a, source: daily, cron: "{text}"}}]')
    except ConfigError as error:
        said = error.detail
    else:
        assert each.cron == " ".join(text.split())
    assert not said or said.startswith("cron.yml:1: `cron` can't be used")


@pytest.mark.req("UPD-17")
def test_the_shipped_schedules() -> None:
    """The sample of the documented layout is read, for the sources of the sample configuration."""
    folder = Path(updater.__file__).parent
    sample = load(str(folder / "config_templates" / "config.example.yml"), environ={})
    text = (folder / "scheduler" / "cron.yml").read_bytes()
    assert [each.id for each in read_schedules("cron.yml", text, sample.settings)]
