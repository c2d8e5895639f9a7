"""A shell completes values: names of the configuration, ids of the ledger, the same from a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kfm.cli import main
from kfm.cli.command_line import kfm as group
from kfm.cli.completion_values import BY_COMMAND, BY_NAME, LEDGER, SERVICE, kind_of
from kfm.web.api.operation_table import OPERATIONS
from kfm.web.openapi import api_openapi
from tests.catalogue_server import serving
from tests.integration.web.api.world import TOKENS, World

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("completion") / "project").past()


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, project: World) -> None:
    for name in ("KFM_SERVER", "KFM_CONFIG", "KFM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project.folder)


def completed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], typed: str, shell: str = "bash"
) -> list[str]:
    """The values that a shell offers for the last word of what was typed."""
    words = typed.split(" ")
    monkeypatch.setenv("_KFM_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", typed if shell != "fish" else " ".join(words[:-1]))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1) if shell != "fish" else words[-1])
    capfd.readouterr()
    with pytest.raises(SystemExit):
        main([])
    out, err = capfd.readouterr()
    assert err == ""
    if shell == "zsh":
        lines = out.splitlines()
        return [value for kind, value in zip(lines[::3], lines[1::3], strict=False) if kind == "plain"]
    return [line.partition(",")[2].partition("\t")[0] for line in out.splitlines() if line]


@pytest.mark.parametrize("shell", SHELLS)
def test_names_and_ids_are_completed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], project: World, shell: str
) -> None:
    """In every shell: sources, datasets, schedules, providers, runs; of runs to retry only failed ones."""

    def typed(text: str) -> list[str]:
        return completed(monkeypatch, capfd, text, shell)

    assert typed("kfm run --source ") == ["river", "mound", "broken"]
    assert typed("kfm runs --source ri") == ["river"]
    assert typed("kfm coverage ") == ["rivers", "burials"]
    assert typed("kfm schedule pause ") == ["river-daily"]
    assert typed("kfm breaker reset ") == ["host:example.org"] or shell == "zsh"  # it has its own escapes
    assert typed("kfm retry ") == [project.failed_id[:13]]
    assert set(typed("kfm show ")) == {project.run_id[:13], project.failed_id[:13]}
    assert typed(f"kfm show {project.run_id[:15]}") == [project.run_id]
    assert "rivers" in typed("kfm explain ")


def test_what_click_completes_stays(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Commands, options and choices are completed as before."""
    assert "schedule" in completed(monkeypatch, capfd, "kfm sch")
    assert "--source" in completed(monkeypatch, capfd, "kfm runs --so")
    assert "published" in completed(monkeypatch, capfd, "kfm runs --status pub")


def test_it_never_fails_loudly(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without a configuration, with a broken one, with a service that is away: nothing, in silence."""
    monkeypatch.chdir(tmp_path)
    assert completed(monkeypatch, capfd, "kfm runs --source ") == []
    (tmp_path / "kfm.yml").write_text("version: [")
    assert completed(monkeypatch, capfd, "kfm retry ") == []
    assert completed(monkeypatch, capfd, "kfm --server http://127.0.0.1:1 retry ") == []
    assert completed(monkeypatch, capfd, "kfm --server nonsense retry ") == []
    assert {one.name for one in tmp_path.iterdir()} == {"kfm.yml"}


def test_a_service_is_asked_where_one_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], project: World, tmp_path: Path
) -> None:
    """With --server the same values come from the service, on a machine without the project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KFM_TOKEN", TOKENS["ann"])
    with serving(project.app) as address:
        server = f"kfm --server {address}"
        assert completed(monkeypatch, capfd, f"{server} coverage ") == ["burials", "rivers"]
        assert completed(monkeypatch, capfd, f"{server} retry ") == [project.failed_id[:13]]
        assert completed(monkeypatch, capfd, f"{server} schedule pause ") == ["river-daily"]
        assert completed(monkeypatch, capfd, f"{server} nodd show ") == []


def test_every_kind_can_be_read(project: World) -> None:
    """Each kind of value is read from a ledger; those of a service are lists of its API."""
    app = project.opened()
    try:
        for kind, read in LEDGER.items():
            for start in ("", "0", "0123456"):
                assert all(one.text for one in read(app, start)), kind
    finally:
        app.close()
    answers = api_openapi()["components"]["schemas"]
    operations = {one.path: one for one in OPERATIONS if one.method == "GET"}
    for path, asked, rows, name, about in SERVICE.values():
        assert {*asked} <= {one.name for one in operations[path].parameters}
        shown = str(answers)
        assert all(f"'{field}'" in shown for field in (rows, name, *about)), path


def test_every_parameter_that_is_completed_is_one() -> None:
    """The tables name commands and parameters that there are; whatever names a source, a dataset or a run
    has its values."""
    commands = dict(_commands(group))
    known = {kind for kinds in (BY_NAME, *BY_COMMAND.values()) for kind in kinds.values() if kind}
    assert known <= set(LEDGER)
    for begin, names in BY_COMMAND.items():
        meant = [one for path, one in commands.items() if path == begin or path.startswith(f"{begin} ")]
        assert meant, begin
        assert set(names) <= {each.name for one in meant for each in one.params}, begin
    assert kind_of("runs", "source") == "source"
    assert kind_of("retry", "run_id") == "failed run"
    assert kind_of("branch merge", "source") == "branch"
    assert kind_of("graph", "run") == ""
    assert kind_of("doctor", "offline") == ""


def _commands(parent: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(parent)
    for name in parent.list_commands(context):
        found = parent.get_command(context, name)
        assert found is not None
        whole = f"{path} {name}".strip()
        if isinstance(found, click.Group):
            yield from _commands(found, whole)
        else:
            yield whole, found
