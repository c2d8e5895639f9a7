"""Import paths that users' code, other packages and older files rely on."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PUBLIC = {
    "kfm": [
        "call",
        "deadline",
        "within",
        "handed_up",
        "Pipeline",
        "run_state",
        "CircuitOpen",
        "CallTimedOut",
    ],
    "kfm.model.errors": ["KfmError", "GateDenied", "CircuitOpen"],
    "kfm.model.records": ["Found", "Window", "PublishedRun"],
    "kfm.nodd.grammar": ["Dataset", "Place", "Rule"],
    "kfm.nodd.patterns": ["Fields", "Pattern", "Template", "need", "KINDS"],
    "kfm.nodd.spans": ["Span", "digits"],
    "kfm.integrations.airflow": ["get_provider_info"],
    "kfm.integrations.langgraph": ["node"],
    "kfm.ports": ["Source", "Projection"],
    "kfm.testing.plugin": ["kfm_time"],
    "kfm.testing.driven_time": ["driven_time", "DrivenTime"],
    "updater.idempotency.keygen": [],
    "updater.idempotency.ledger": [],
    "updater.publisher.base": [],
    "updater.publisher.github_actions": [],
    "updater.publisher.noop": [],
    "updater.scheduler.webhook_validator": [],
    "updater.runner": ["main"],
}

# old module → new module, and each name that was documented or is likely in use, with its name of today
MOVED: dict[tuple[str, str], dict[str, str]] = {
    ("kfm.core.errors", "kfm.model.errors"): {"KfmError": "KfmError", "GateDenied": "GateDenied"},
    ("kfm.core.records", "kfm.model.records"): {
        "Found": "Found",
        "Window": "Window",
        "RunState": "PublishedRun",
    },
    ("kfm.ingest.grammar", "kfm.nodd.grammar"): {
        "Dataset": "Dataset",
        "Place": "Place",
        "Rule": "Rule",
        "Reading": "Reading",
        "read": "read",
    },
    ("kfm.ingest.patterns", "kfm.nodd.patterns"): {
        "Fields": "Fields",
        "KINDS": "KINDS",
        "Pattern": "Pattern",
        "Template": "Template",
        "need": "need",
    },
    ("kfm.ingest.spans", "kfm.nodd.spans"): {
        "Span": "Span",
        "at": "at",
        "cycle": "cycle",
        "cycle_only": "cycle_only",
        "day_of_year": "day_of_year",
        "digits": "digits",
        "forecast": "forecast",
        "named_forecast": "named_forecast",
        "scan": "scan",
        "unknown": "unknown",
        "valid_at": "valid_at",
        "whole_year": "whole_year",
    },
    ("kfm.airflow", "kfm.integrations.airflow"): {"get_provider_info": "get_provider_info"},
    ("kfm.langgraph", "kfm.integrations.langgraph"): {"node": "node"},
}


@pytest.mark.req("UPD-17")
@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_imported_without_a_warning(module: str) -> None:
    """Every documented module is there under its path, with the names that the documentation uses."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = importlib.import_module(module)
        for name in PUBLIC[module]:
            assert getattr(found, name) is not None


@pytest.mark.parametrize(("old", "new"), MOVED)
def test_a_moved_name_is_the_same_object_and_warns(old: str, new: str) -> None:
    """Code that imports by the old path gets the very class, so `isinstance` and `except` agree."""
    before, after = importlib.import_module(old), importlib.import_module(new)
    for name, now in MOVED[old, new].items():
        with pytest.warns(DeprecationWarning, match=re.escape(f"{old}.{name} is now {new}.{now}")) as caught:
            assert getattr(before, name) is getattr(after, now)
        assert caught[0].filename == __file__  # the warning names the line that must change


def test_the_warning_of_a_from_import_names_the_file_that_imports(tmp_path: Path) -> None:
    """A person who looks for what to change finds the place in the warning."""
    script = tmp_path / "mine.py"
    script.write_text("x = 1\nfrom kfm.core.errors import GateDenied\n")
    command = [sys.executable, "-W", "always::DeprecationWarning", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{script}:2: DeprecationWarning: kfm.core.errors.GateDenied is now" in done.stderr


def test_an_error_is_caught_by_its_old_name() -> None:
    """`except` with a class of the old path catches what kfm raises today."""
    from kfm.model.errors import GateDenied

    with pytest.warns(DeprecationWarning, match="kfm.model.errors"):
        from kfm.core.errors import GateDenied as Before
    with pytest.raises(Before):
        raise GateDenied("no")


def test_an_unknown_name_of_a_moved_module_is_an_import_error() -> None:
    """A misspelt name fails as it does in any module."""
    with pytest.raises(ImportError, match="cannot import name"):
        from kfm.core.errors import NoSuchError  # noqa: F401


def test_pickles_of_the_old_path_can_be_read() -> None:
    """Objects that were pickled before the move are loaded as those of today."""
    from kfm.model.records import Window

    with pytest.warns(DeprecationWarning, match="kfm.model.records"):
        assert pickle.loads(b"ckfm.core.records\nWindow\n.") is Window


@pytest.mark.slow
def test_type_checkers_see_through_moved_paths(tmp_path: Path) -> None:
    """mypy --strict gives users of an old path the same types as users of the new one."""
    module = tmp_path / "mine.py"
    module.write_text(
        "from kfm.core.errors import GateDenied\n"
        "from kfm.core.records import Found, RunState\n"
        "from kfm.ingest.grammar import Dataset\n"
        "from kfm.ingest.patterns import Pattern\n"
        "from kfm.ingest.spans import Span\n"
        "from kfm.langgraph import node\n"
        "def of(found: Found, run: RunState, dataset: Dataset, pattern: Pattern, span: Span) -> str:\n"
        "    try:\n"
        "        return found.uri\n"
        "    except GateDenied as error:\n"
        "        return error.code\n"
        "def wrong(found: Found) -> int:\n"
        "    return found.uri\n"
        "made = node('soil')\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(module)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src")},
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(errors) == 1, done.stdout
    assert "Incompatible return value type" in errors[0]


def test_entry_points_name_what_is_there() -> None:
    """Scripts and entry points of the distribution can be loaded."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    references = list(project["scripts"].values())
    for group in project["entry-points"].values():
        references += group.values()
    assert len(references) >= 3
    for reference in references:
        module, _, name = reference.partition(":")
        found = importlib.import_module(module)
        assert not name or callable(getattr(found, name))


def test_the_module_of_child_processes_can_be_run() -> None:
    """`python -m` finds what worker processes of a pipeline are started with."""
    from kfm.pipelines.children import CHILD

    spec = importlib.util.find_spec(CHILD)
    assert spec is not None
    assert spec.origin is not None
    assert 'if __name__ == "__main__":' in Path(spec.origin).read_text()


def test_documentation_uses_paths_of_today() -> None:
    """Imports from kfm in the documentation and the examples resolve, and none of them warns."""
    pattern = re.compile(r"^\s*from ((?:kfm|updater)[\w.]*) import ([\w, ]+)$", re.MULTILINE)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    found = {(*match, page.name) for page in pages for match in pattern.findall(page.read_text())}
    assert len(found) > 5
    for module, names, page in found:
        if module == "kfm.integrations.airflow":  # its names need Airflow
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            there = importlib.import_module(module)
            for name in names.split(","):
                word = name.strip().partition(" as ")[0]
                assert getattr(there, word, None) is not None, f"{page}: {module} has no {word}"


@pytest.mark.parametrize("old", ["kfm.core.errors", "kfm.core.records", "kfm.ingest.spans"])
def test_star_imports_of_old_paths_go_on_working(old: str) -> None:
    """`from kfm.core.errors import *` brings the names of the new module, and warns."""
    names: dict[str, object] = {}
    with pytest.warns(DeprecationWarning, match="is now kfm"):
        exec(f"from {old} import *", names)
    assert {"kfm.core.errors": "KfmError", "kfm.core.records": "RunState", "kfm.ingest.spans": "Span"}[
        old
    ] in names
