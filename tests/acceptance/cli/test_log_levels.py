"""How much is said on stderr: -v, -vv, --quiet, and what each command shows without them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.cli import process
from kfm.cli.logs import ROOT, STEPS, choose_levels, stderr_logging
from kfm.config.loader import load
from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]
LOGGER = logging.getLogger("kfm.runs.executor")


@pytest.fixture
def begun(kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KFM_LOG_FORMAT", raising=False)
    folder = project / "new"
    assert kfm("init", str(folder)).code == 0
    monkeypatch.chdir(folder)
    return folder


def test_steps_of_runs_are_shown_if_asked_for(kfm: Kfm, begun: Path) -> None:
    """Without -v a run's steps are in its artifacts alone; with it they are on stderr, too, as bare lines."""
    assert kfm("run").err == "fetch: 1 object, 156 B\n"
    again = ("run", "--force", "--rationale", "x", "--ticket", "y")
    assert "\nvalidate: contract kept\n" in kfm(*again, "-v").err
    assert "\nvalidate: contract kept\n" in kfm(*again, "-vv").err


def test_quiet_shows_neither_progress_nor_hints(kfm: Kfm, begun: Path) -> None:
    """Only warnings and errors; the result is the same."""
    quiet = kfm("run", "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out.startswith("published")
    failed = kfm("run", "-q", "--source", "nope")
    assert failed.code == 2
    assert failed.err.startswith("error KFM2")
    assert "\nfix: " in failed.err


def test_quiet_and_verbose_exclude_each_other(kfm: Kfm, begun: Path) -> None:
    """It can't be said at once that more and that less is wanted."""
    called = kfm("run", "-q", "-v")
    assert called.code == 2
    assert "--verbose and --quiet exclude each other" in called.err


@pytest.mark.parametrize(
    ("verbose", "quiet", "service", "shown"),
    [
        (0, False, False, ["warning", "error"]),
        (1, False, False, ["info", "warning", "error"]),
        (2, False, False, ["debug", "info", "warning", "error"]),
        (0, True, False, ["warning", "error"]),
        (0, False, True, ["info", "warning", "error"]),
        (2, False, True, ["debug", "info", "warning", "error"]),
        (0, True, True, ["warning", "error"]),
    ],
)
def test_levels(
    capsys: pytest.CaptureFixture[str], verbose: int, quiet: bool, service: bool, shown: list[str]
) -> None:
    """Each level is shown where it is wanted, as its bare message; services inform without being asked."""
    with stderr_logging("text"):
        choose_levels(verbose=verbose, quiet=quiet, service=service)
        for level in ("debug", "info", "warning", "error"):
            getattr(LOGGER, level)("%s", level)
        logging.getLogger(STEPS).error("a step")
    steps = ["a step"] if verbose and not quiet else []
    assert capsys.readouterr().err.splitlines() == [*shown, *steps]


def test_nothing_is_left_behind(kfm: Kfm, begun: Path) -> None:
    """After a command the handlers and levels of a process are those from before; the root's never change."""
    names = (None, ROOT, STEPS)
    kfm("run", "-vv")
    before = [(logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in names]
    kfm("run", "-vv", "--force", "--rationale", "x", "--ticket", "y")
    after = [(logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in names]
    assert after == before


@pytest.mark.req("TRG-9")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_records_show_no_secret_of_the_configuration(
    begun: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, log_format: str
) -> None:
    """What the environment holds under a secret's name is masked in messages, fields and tracebacks."""
    monkeypatch.setenv("KFM_TEST_TOKEN", "open-sesame-987654")
    process.begin(load(str(begun / "kfm.yml")))
    try:
        with stderr_logging(log_format):
            try:
                raise ValueError("open-sesame-987654")
            except ValueError:
                LOGGER.exception("%s", "open-sesame-987654", extra={"provider": "open-sesame-987654"})
    finally:
        process.begin()
    told = capsys.readouterr().err
    assert "sesame" not in told
    assert "ValueError" in told
    if log_format == "json":
        (line,) = told.splitlines()
        assert json.loads(line)["level"] == "error"
