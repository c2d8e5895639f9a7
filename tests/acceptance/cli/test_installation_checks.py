"""`kfm doctor` on names that are other projects' on the public package index: `kfm` and `updater`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]


def _distribution(folder: Path, name: str, command: str = "") -> None:
    """What an installer would leave of a distribution: its metadata, and its entry points."""
    info = folder / f"{name}-9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n")
    if command:
        (info / "entry_points.txt").write_text(f"[console_scripts]\n{command}\n")


def _installation(called: Called) -> list[dict[str, Any]]:
    return [check for check in called.document["checks"] if check["name"] == "installation"]


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of our own command, first on PATH."""
    folder = tmp_path / "own" / "bin"
    _command(folder, "from kfm.cli import main")
    paths = {"scripts": str(folder)}
    monkeypatch.setattr("sysconfig.get_path", lambda name: paths[name])
    monkeypatch.setenv("PATH", str(folder))
    return folder


def _command(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "kfm"
    script.write_text(f"#!{sys.executable}\n{text}\n")
    script.chmod(0o755)
    return script


@pytest.mark.usefixtures("scripts")
def test_a_clean_installation_is_ok(kfm: Kfm, valid: Callable[[str, Any], None]) -> None:
    """One line, with the distribution's name and version."""
    called = kfm("doctor", "--offline", "--json")
    (check,) = _installation(called)
    assert check["state"] == "ok"
    assert check["message"].startswith("kfm-kernel 0.")
    valid("doctor", called.document)


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("kfm = filemanager.main:run", "another project"),
        ("", "another project"),
        ("kfm = kfm.cli:main", "an older kfm, from before it was called kfm-kernel"),
    ],
)
def test_a_foreign_kfm_is_reported(
    kfm: Kfm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, what: str
) -> None:
    """A distribution called kfm beside ours is a warning that says what it is and how to remove it."""
    _distribution(tmp_path / "packages", "kfm", command)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    called = kfm("doctor", "--offline", "--json")
    (check,) = _installation(called)
    assert (called.code, check["state"]) == (0, "warn")
    assert f"the distribution kfm 9.9 is installed, too: {what}," in check["message"]
    assert check["fix"] == "pip uninstall kfm, then pip install --force-reinstall --no-deps kfm-kernel"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import filemanager", "another program"),
        ("from kfm.cli import main", "another installation of kfm"),
    ],
)
def test_another_command_earlier_on_path_is_reported(
    kfm: Kfm, tmp_path: Path, scripts: Path, monkeypatch: pytest.MonkeyPatch, text: str, what: str
) -> None:
    """What a shell would start is named, with our own command and the way to it."""
    other = _command(tmp_path / "other", text)
    monkeypatch.setenv("PATH", f"{other.parent}:{scripts}")
    (check,) = _installation(kfm("doctor", "--offline", "--json"))
    assert check["state"] == "warn"
    assert check["message"] == f"the command kfm on PATH is {other}: {what}, not {scripts / 'kfm'}"
    assert check["fix"] == f"Put {scripts} first on PATH, or call {scripts / 'kfm'}."


def test_links_and_wrappers_of_our_command_are_ours(
    kfm: Kfm, tmp_path: Path, scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pipx links it, or as a shell script calls it, it is no other command."""
    link = tmp_path / "linked" / "kfm"
    link.parent.mkdir()
    link.symlink_to(scripts / "kfm")
    wrapper = _command(tmp_path / "wrapped", f"# exec {scripts / 'kfm'}")
    for first in (link, wrapper):
        monkeypatch.setenv("PATH", f"{first.parent}:{scripts}")
        (check,) = _installation(kfm("doctor", "--offline", "--json"))
        assert check["state"] == "ok"


@pytest.mark.usefixtures("scripts")
def test_a_foreign_updater_is_reported(kfm: Kfm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside ours it is a warning; once `import updater` finds it first, that is said."""
    folder = tmp_path / "packages"
    _distribution(folder, "updater")
    monkeypatch.syspath_prepend(folder)
    (check,) = _installation(kfm("doctor", "--offline", "--json"))
    assert check["state"] == "warn"
    assert "the distribution updater 9.9 is installed, too: another project" in check["message"]
    assert "kfm-kernel" in check["fix"]
    (folder / "updater").mkdir()
    (folder / "updater" / "__init__.py").write_text("")
    for name in [each for each in sys.modules if each.partition(".")[0] == "updater"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(folder)  # forgets what import has cached
    (check,) = _installation(kfm("doctor", "--offline", "--json"))
    assert check["state"] == "warn"
    assert f"`import updater` is {folder / 'updater'}, not kfm's module" in check["message"]
    assert check["fix"].startswith("pip uninstall updater")
