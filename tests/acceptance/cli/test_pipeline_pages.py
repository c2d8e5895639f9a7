"""The pages about pipelines are true: what they show is what happens, and their queries run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import Called
from tests.acceptance.cli.test_tutorial import comparable

DOCS = Path(__file__).resolve().parents[3] / "docs"
TUTORIAL = (DOCS / "tutorials" / "pipeline.md").read_text("utf-8")
QUERIES = (DOCS / "how-to" / "query-run-state.md").read_text("utf-8")
CODE = re.findall(r"```python\n(.*?)```", TUTORIAL, flags=re.DOTALL)[0]
FIRST_FILE = "site,depth_cm,moisture\nkonza,10,21.5\nkonza,30,24.0\n"


def test_the_tutorial(tmp_path: Path) -> None:
    """A reader who follows the page sees what it shows; its code fits on one screen."""
    assert len(CODE.splitlines()) <= 30
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "kfm").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kfm "$@"\n')
    (bin_folder / "kfm").chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "soil.py").write_text(CODE)
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "GITHUB_", "FORCE"))
    }
    environ |= {"PATH": f"{bin_folder}:{environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for block in re.findall(r"```console\n(.*?)```", TUTORIAL, flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            lines = done.stdout.replace(" in moisture", " in <listcomp>").splitlines()  # as of Python 3.12
            assert [comparable(line) for line in lines] == [comparable(line) for line in shown], command


def test_the_queries(kfm: Callable[..., Called], project: Path) -> None:
    """Every query of the page runs in DuckDB on what was exported, and finds what has happened."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    pytest.importorskip("arro3.io", reason="the extra `parquet` is not installed")
    (project / "kfm.yml").unlink()
    (project / "data").mkdir()
    (project / "data" / "may.csv").write_text(FIRST_FILE)
    (project / "soil.py").write_text(CODE)
    kfm("pipeline", "run", "soil.py")
    kfm("pipeline", "run", "soil.py")
    (project / "data" / "may.csv").write_text(FIRST_FILE + "konza,5,wet\n")
    assert kfm("pipeline", "run", "soil.py").code == 1
    assert kfm("run-state", "export", "run-states.parquet").code == 0
    found = []
    for query in re.findall(r"```sql\n(.*?)```", QUERIES, flags=re.DOTALL):
        relation = duckdb.sql(query)
        found.append([dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()])
    skips, slowest, drift, restless, slower, failures = found
    assert {row["dataset_id"]: row["skip_rate"] for row in skips} == {
        "soil.samples": 0.333,
        "soil.moisture": 0.333,
        "soil.report": 0.5,
    }
    assert {row["dataset_id"]: row["executed"] for row in slowest} == {
        "soil.samples": 2,
        "soil.moisture": 2,
        "soil.report": 1,
    }
    changed = {row["dataset_id"]: (row["inputs"], row["by_inputs"]) for row in drift}
    assert changed == {"soil.samples": (2, 1), "soil.moisture": (1, 0), "soil.report": (1, 0)}
    assert restless == []
    assert isinstance(slower, list)
    assert [(row["dataset_id"], row["error_code"], row["failures"]) for row in failures] == [
        ("soil.moisture", "KFM607", 1)
    ]
