"""What a node writes to standard error is masked, whatever form it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = 'key"quoted\\secret-31'
CONFIG = """\
version: 1
environment: test
datasets:
  - {id: levels, rights: {license: CC0-1.0, care: {label: Public}}}
sources:
  - id: daily
    dataset: levels
    kind: http
    url: http://127.0.0.1:1/
    headers: {X-Key: "env:PLANTED"}
  - {id: local, dataset: levels, kind: files, folder: incoming, pipeline: "nodes.py:tell"}
publish:
  - {kind: local, path: published}
"""
NODES = """
import json, os, sys

def tell(context):
    sys.stderr.write(json.dumps({"token": os.environ["PLANTED"]}) + "\\n")
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)
"""


@pytest.mark.req("RS-13")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_document_on_standard_error_is_masked(tmp_path: Path, log_format: str) -> None:
    """One line that looks like a document is masked, too, and stays JSON."""
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.csv").write_text("id\n1\n", "utf-8")
    (tmp_path / "kfm.yml").write_text(CONFIG, "utf-8")
    (tmp_path / "nodes.py").write_text(NODES, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "kfm", "run", "--source", "local", "--log-format", log_format],
        cwd=tmp_path,
        env={**os.environ, "PLANTED": SECRET, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    told = [json.loads(line)["message"] for line in lines] if log_format == "json" else lines
    assert [json.loads(line) for line in told if line.startswith("{")] == [{"token": "***"}], done.stderr
    assert "secret-31" not in done.stderr
