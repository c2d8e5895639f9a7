"""A project, an application that obeys, and commands that are called as people call them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.acceptance.cli.fakes import FakeApp

CONFIG = """\
version: 1
environment: test
datasets:
  - id: levels
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: Public}}
sources:
  - {id: daily, dataset: levels, kind: files, folder: incoming}
  - {id: hourly, dataset: levels, kind: files, folder: incoming, window: PT1H}
publish:
  - {kind: local, path: published}
"""
SCHEMAS = Path(__file__).resolve().parents[3] / "src" / "kfm" / "contracts" / "schemas"


class Called(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return msgspec.json.decode(self.out)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration, and no environment that could interfere."""
    for name in (
        "KFM_CONFIG",
        "KFM_ENV",
        "KFM_STATE",
        "KFM_STORE",
        "GITHUB_ACTIONS",
        "NO_COLOR",
        "FORCE_COLOR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kfm.yml").write_text(CONFIG)
    (tmp_path / "incoming").mkdir()
    return tmp_path


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> FakeApp:
    """What the commands talk to, instead of the kernel."""
    fake = FakeApp()
    monkeypatch.setattr("kfm.app.open_app", fake.open)
    # There is no ledger to make evidence from.
    monkeypatch.setattr("kfm.lineage.collectors.deliver", lambda _app: fake.delivered)
    monkeypatch.setattr("kfm.audit.chain.seal_all", lambda *_: [])
    monkeypatch.setattr("kfm.runs.artifacts.leave_provenance", lambda *_: None)
    monkeypatch.setattr("kfm.cli.explain.opened", fake.place)
    return fake


@pytest.fixture
def kfm(project: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    """Call a command in this process."""
    from kfm.cli import main

    def call(*arguments: str) -> Called:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        return Called(int(str(ended.value.code or 0)), out, err)

    return call


@pytest.fixture
def process(project: Path) -> Callable[..., Called]:
    """Call a command in a process of its own."""

    def call(*arguments: str, module: str = "kfm", **options: Any) -> Called:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            text=True,
            timeout=60,
            check=False,
            **{**streams, **options},
        )
        return Called(done.returncode, done.stdout, done.stderr or "")

    return call


@pytest.fixture
def valid() -> Callable[[str, Any], None]:
    """Checks a document against the schema of its command."""
    import jsonschema_rs

    def check(name: str, document: Any) -> None:
        schema = msgspec.json.decode((SCHEMAS / f"cli-{name}.schema.json").read_bytes())
        jsonschema_rs.validator_for(schema, validate_formats=True).validate(document)

    return check


@pytest.fixture(autouse=True)
def _person(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person asks, as at a terminal; what machines may is tested in `tests/acceptance/starting`."""
    from kfm.cli.session import CommandSession

    monkeypatch.setattr(CommandSession, "by_person", True)
