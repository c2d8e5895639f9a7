"""`kfm gate`: do the policies decide as people expect?"""

from __future__ import annotations

import os

import click

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import one_line
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError

FIXTURES = "policies/fixtures.yaml"


@click.group(name="gate", cls=CommandGroup)
def command() -> None:
    """Test policies against fixtures."""


@command.command()
@click.argument("files", nargs=-1, metavar="[FIXTURES]...")
@session_options
def test(session: CommandSession, files: tuple[str, ...]) -> int:
    """Ask the policies about every fixture and compare with what it expects.

    FIXTURES are YAML files; without any, policies/fixtures.yaml beside the configuration. Exit code 1 if a
    fixture is not decided as it expects.
    """
    with session.app(read_only=True) as app:
        chosen = files or (app.loaded.resolve(FIXTURES),)
        for path in chosen:
            if not os.path.isfile(path):
                raise UsageError(
                    f"There is no fixtures file {path}.", remedy=f"Write one; `kfm init` makes {FIXTURES}."
                )
        results = [result for path in chosen for result in app.policies.evaluate_fixtures(path)]
    rows = [
        {
            "name": result.name,
            "passed": result.passed,
            "expected": result.expected,
            "got": result.got,
            "by": list(result.got_by),
            "detail": result.detail,
            "file": result.file,
            "line": result.line,
        }
        for result in results
    ]
    lines = []
    for row in rows:
        if row["passed"]:
            lines.append(f"ok    {one_line(row['name'])}")
        else:
            lines.append(f"FAIL  {row['file']}:{row['line']}: {one_line(row['name'])}")
            lines.append(f"      expected {row['expected']}, got {one_line(row['detail'])}")
    failed = sum(not row["passed"] for row in rows)
    lines.append(f"{len(rows) - failed} of {len(rows)} fixtures are decided as expected")
    code = 1 if failed else 0
    session.emit({"results": rows, "failed": failed, "exit_code": code}, lines, rows=rows)
    return code
