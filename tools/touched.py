"""How many source files a reader meets who follows one command: `make house`, or `python tools/touched.py`.

How it counts: each scenario is one real command in a fresh project, in a child process that is traced
with `sys.setprofile` in every thread. A file of `src/kfm` counts if a function or method in it was
entered at least once. Bodies of modules and classes do not count, so that importing a file is not
touching it, nor do comprehensions (their function counts); functions that run while a module is imported
do, decorators among them. Processes that the command starts are not followed. `--files` lists the files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 120
FOREIGN = ("KFM_", "GITHUB_", "PYTHON")
OPTIMIZED = 0x1  # a code flag of functions, which bodies of modules and classes lack

TRACER = f"""
import atexit, json, os, runpy, sys, threading
root, out = sys.argv[1:3]
seen, leave = {{}}, os._exit
def profile(frame, event, argument):
    if event == "call":
        code = frame.f_code
        if code.co_flags & {OPTIMIZED} and code.co_filename.startswith(root):
            if not code.co_name.startswith("<") or code.co_name == "<lambda>":
                seen.setdefault(code.co_filename, set()).add(code.co_qualname)
def write():
    sys.setprofile(None)
    with open(out, "w") as file:
        json.dump({{name: len(names) for name, names in dict(seen).items()}}, file)
def leaving(status):
    write()
    leave(status)
os._exit = leaving
atexit.register(write)
sys.argv = ["kfm", *sys.argv[3:]]
threading.setprofile(profile)
sys.setprofile(profile)
runpy.run_module("kfm", run_name="__main__", alter_sys=True)
"""

QUEUE = """
ingest:
  queues:
    - {name: weather, kind: folder, path: spool}
"""
KEY = "ABI-L2-CMIPC/2026/073/10/OR_ABI-L2-CMIPC-M6C13_G19_s20260731001171_e20260731003556_c20260731004041.nc"
ANNOUNCEMENT = {
    "Records": [
        {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-east-1",
            "eventTime": "2026-03-14T10:05:00.000Z",
            "eventName": "ObjectCreated:Put",
            "s3": {
                "s3SchemaVersion": "1.0",
                "bucket": {"name": "noaa-goes19"},
                "object": {"key": KEY, "size": 1000, "eTag": "0" * 32},
            },
        }
    ]
}


class Touched(NamedTuple):
    scenario: str
    goal: int
    files: dict[str, int]  # path inside src/kfm → functions of it that were entered


class Scenario(NamedTuple):
    name: str
    goal: int
    prepare: Callable[[Path], None]
    command: tuple[str, ...]


def _environ(folder: Path, root: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {
        **kept,
        "XDG_CACHE_HOME": str(folder / ".cache"),
        "NO_COLOR": "1",
        "PYTHONPATH": str(root / "src"),
    }


def _call(folder: Path, root: Path, *words: str) -> None:
    command = [sys.executable, "-m", "kfm", *words]
    environ = _environ(folder, root)
    subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, timeout=SECONDS_MAX)


def _sample(root: Path) -> Callable[[Path], None]:
    """What `kfm init` writes."""
    return lambda folder: _call(folder, root, "init", ".")


def _published(root: Path) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        _sample(root)(folder)
        _call(folder, root, "run")

    return prepare


def _announced(root: Path) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        _sample(root)(folder)
        with (folder / "kfm.yml").open("a") as config:
            config.write(QUEUE)
        (folder / "spool").mkdir()
        (folder / "spool" / "messages.jsonl").write_text(json.dumps(ANNOUNCEMENT) + "\n")

    return prepare


def dataset_of_sample(folder: Path) -> str:
    """The id of the one dataset in the sample's configuration."""
    from ruamel.yaml import YAML

    return str(YAML(typ="safe").load(folder / "kfm.yml")["datasets"][0]["id"])


def scenarios(root: Path) -> tuple[Scenario, ...]:
    return (
        Scenario("first `kfm run` of the sample", 110, _sample(root), ("run",)),
        Scenario("`kfm run`, unchanged", 60, _published(root), ("run",)),
        Scenario("`kfm explain DATASET`", 30, _published(root), ("explain", "DATASET")),
        Scenario("one announced object", 80, _announced(root), ("worker", "--until-idle")),
    )


def measure(root: Path = ROOT) -> list[Touched]:
    """Play every scenario once."""
    found = []
    package = root / "src" / "kfm"
    for scenario in scenarios(root):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "project")
            folder.mkdir()
            scenario.prepare(folder)
            words = [dataset_of_sample(folder) if word == "DATASET" else word for word in scenario.command]
            out = Path(scratch, "touched.json")
            command = [sys.executable, "-c", TRACER, f"{package}{os.sep}", str(out), *words]
            ended = subprocess.run(
                command,
                check=False,
                cwd=folder,
                env=_environ(folder, root),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
            )
            if ended.returncode != 0:
                raise SystemExit(f"touched: {scenario.name} ended with {ended.returncode}: {ended.stderr}")
            counted = json.loads(out.read_text())
        files = {Path(name).relative_to(package).as_posix(): count for name, count in counted.items()}
        found.append(Touched(scenario.name, scenario.goal, dict(sorted(files.items()))))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="list the files, with functions entered in each")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    given = parser.parse_args(arguments)
    for one in measure(given.root.resolve()):
        functions = sum(one.files.values())
        print(f"{one.scenario:34}{len(one.files):6} files {functions:6} functions   goal ≤ {one.goal}")
        if given.files:
            for path, count in one.files.items():
                print(f"    {count:4}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
