"""Clients that programs write from the description of the API."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kfm.web.openapi import api_openapi
from tests.catalogue_server import serving
from tests.integration.web.api.world import TOKENS, World

TYPESCRIPT = Path(__file__).resolve().parents[3] / "typescript"
USE = """\
import sys
from kfm_client import AuthenticatedClient
from kfm_client.api.runs import list_runs, show_run
from kfm_client.api.standing import set_switch
from kfm_client.models import Runs, RunRecord, SetSwitch, SetSwitchPosition, SwitchSet

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], raise_on_unexpected_status=True)
found = list_runs.sync(client=client, limit=1)
assert isinstance(found, Runs) and found.more and len(found.runs) == 1
rest = list_runs.sync(client=client, cursor=found.next_)
assert isinstance(rest, Runs) and not rest.more
one = show_run.sync(rest.runs[0].run_id, client=client)
assert isinstance(one, RunRecord) and one.run.run_id == rest.runs[0].run_id
body = SetSwitch(position=SetSwitchPosition.PAUSED, rationale="Trial of a client.")
done = set_switch.sync("all", client=client, body=body)
assert isinstance(done, SwitchSet) and done.switch.position == "paused"
"""


@pytest.fixture
def described(tmp_path: Path) -> Path:
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps({**api_openapi(), "info": {**api_openapi()["info"], "title": "kfm"}}))
    return path


def test_every_object_has_a_name() -> None:
    """No component refers into another one or holds an object of its own, and none has a command's name."""
    components = api_openapi()["components"]["schemas"]

    def inner(schema: object, *, top: bool = False) -> bool:
        if isinstance(schema, list):
            return any(map(inner, schema))
        if not isinstance(schema, dict):
            return False
        own = schema.get("properties", {})
        if not top and isinstance(own, dict) and own and schema.get("type") == "object":
            return True
        kept = {key: each for key, each in schema.items() if key not in ("properties", "default", "enum")}
        return any(map(inner, kept.values())) or any(map(inner, own.values()))

    assert [name for name, schema in components.items() if inner(schema, top=True)] == []
    assert [name for name, schema in components.items() if "$defs" in schema or set(schema) == {"$ref"}] == []
    assert [name for name in components if not name.isalnum() or not name[0].isupper()] == []
    assert [name for name in components if name.startswith("Cli")] == []


@pytest.mark.req("GOV-3")
def test_a_client_in_python(tmp_path: Path, described: Path) -> None:
    """openapi-python-client writes every operation and every type, and what it wrote reads and changes."""
    world = World(tmp_path / "project").past()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"),
            *("--path", str(described), "--output-path", str(tmp_path / "kfm_client")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    missed = [line for line in done.stdout.splitlines() if line.startswith(("WARNING", "ERROR"))]
    assert missed == [], done.stdout
    written = {path.stem for path in (tmp_path / "kfm_client" / "api").rglob("*.py")} - {"__init__"}
    paths = api_openapi()["paths"]
    assert len(written) == sum(len(operations) for operations in paths.values())
    with serving(world.app) as address:
        used = subprocess.run(
            [sys.executable, "-c", USE, f"{address}/api/v1", TOKENS["ann"]],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
    assert used.returncode == 0, used.stderr


def test_types_in_typescript(tmp_path: Path, described: Path, node_path: str) -> None:
    """openapi-typescript writes the types of the API, and tsc --strict finds nothing in them."""
    if not (TYPESCRIPT / "node_modules").is_dir():
        pytest.skip("`make node` brings openapi-typescript")
    types = tmp_path / "kfm.d.ts"
    tools = TYPESCRIPT / "node_modules"
    for command in (
        [str(tools / "openapi-typescript" / "bin" / "cli.js"), str(described), "-o", str(types)],
        [str(tools / "typescript" / "bin" / "tsc"), "--noEmit", "--strict", str(types)],
    ):
        done = subprocess.run([node_path, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{name}: {{" in types.read_text("utf-8") for name in ("Run", "Incident", "Unit"))
