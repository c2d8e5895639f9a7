"""Projects for `kfm run`: a folder, an upstream, and commands that end with a code and a document."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.project import CONTRACT, RIGHTS, Ended, Project, environment, table
from tests.crash.upstream import Upstream, serving

if TYPE_CHECKING:
    from tests.acceptance.runs.hooked import Hooked

SCHEMAS = Path(__file__).resolve().parents[3] / "src" / "kfm" / "contracts" / "schemas"

CONFIG = """\
version: 1
environment: test
lease: {{seconds: 1}}
datasets:
  - {{id: levels, title: Levels, domain: hydrology, rights: {rights}}}
sources:
  - {source}
publish:
  - {{kind: local, path: published}}
{more}
"""
SOURCE = (
    "{{id: notes, dataset: levels, kind: files, folder: incoming, "
    'pattern: "*.csv", contract: contract.odcs.yaml{more}}}'
)


class Inside(Project):
    """Commands are called in this process: the same words, a tenth of the time."""

    def configure(
        self, *, source: str | None = None, extra: str = "", rights: str = RIGHTS, more: str = ""
    ) -> None:
        """Write kfm.yml; `extra` are more fields of the usual source."""
        source = source or SOURCE.format(more=f", {extra}" if extra else "")
        self.write("kfm.yml", CONFIG.format(source=source, rights=rights, more=more))

    def kfm(self, *arguments: str) -> Ended:
        from kfm.cli import main

        out, err = io.StringIO(), io.StringIO()
        with self._surroundings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main(list(arguments))
            except SystemExit as ended:
                code = int(str(ended.code or 0))
        return Ended(code, out.getvalue(), err.getvalue())

    @contextlib.contextmanager
    def _surroundings(self) -> Iterator[None]:
        folder, before = os.getcwd(), dict(os.environ)
        os.chdir(self.folder)
        wanted = environment(**self.env)
        os.environ.clear()
        os.environ.update(wanted)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
            os.chdir(folder)


@pytest.fixture
def project(tmp_path: Path) -> Inside:
    """One dataset, two small tables in a folder, a contract, a local target."""
    made = Inside(tmp_path / "project")
    made.configure()
    made.write("contract.odcs.yaml", CONTRACT)
    made.write("incoming/a.csv", table("a", 3))
    made.write("incoming/b.csv", table("b", 4))
    return made


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving() as served:
        served.bodies["/levels.csv"] = table("gauge", 3000)
        yield served


@pytest.fixture
def hooked() -> Iterator[Hooked]:
    """A server that hears of incidents."""
    from tests.acceptance.runs.hooked import serving_hooks

    with serving_hooks() as served:
        yield served


@pytest.fixture
def wrong(project: Inside) -> Inside:
    """A project whose pipeline fails."""
    from tests.acceptance.runs.hooked import make_wrong

    return make_wrong(project)


@pytest.fixture
def valid() -> Callable[[str, Any], None]:
    """Checks a document against one of the schemas that ship."""
    import jsonschema_rs

    def check(name: str, document: Any) -> None:
        schema = json.loads((SCHEMAS / f"{name}.schema.json").read_bytes())
        jsonschema_rs.validator_for(schema, validate_formats=True).validate(document)

    return check


def http_source(upstream: Upstream, more: str = "") -> str:
    """A source whose bodies can be held back."""
    extra = f", {more}" if more else ""
    return f'{{id: notes, dataset: levels, kind: http, url: "{upstream.url}/levels.csv"{extra}}}'


@pytest.fixture(autouse=True)
def _person(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person asks, as at a terminal; what machines may is tested in `tests/acceptance/starting`."""
    from kfm.cli.session import CommandSession

    monkeypatch.setattr(CommandSession, "by_person", True)
