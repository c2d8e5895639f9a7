"""The matrix of requirements and tests can't lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LISTED = """
[[requirement]]
id = "A-1"
text = "first"
status = "delivered"

[[requirement]]
id = "A-2"
text = "second"
status = "partial"
"""

PROVEN = '''
import pytest

@pytest.mark.req("A-1")
def test_first():
    """A promise."""
'''


def _trace(tmp_path: Path, tests: str, listed: str = LISTED) -> subprocess.CompletedProcess[str]:
    (tmp_path / "requirements.toml").write_text(listed)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(tests)
    command = [
        sys.executable,
        str(ROOT / "tools" / "trace.py"),
        "--requirements",
        str(tmp_path / "requirements.toml"),
    ]
    return subprocess.run(
        [*command, "--tests", str(tmp_path / "tests")], capture_output=True, text=True, timeout=30
    )


def test_prints_which_test_proves_what(tmp_path: Path) -> None:
    """Each requirement is followed by its tests and their promises."""
    ran = _trace(tmp_path, PROVEN)
    assert ran.returncode == 0, ran.stderr
    assert "A-1  [delivered, 1 tests]  first\n    tests/test_it.py::test_first  — A promise." in ran.stdout


def test_delivered_without_a_test_fails(tmp_path: Path) -> None:
    """Nothing is called delivered that no test proves."""
    ran = _trace(tmp_path, "def test_nothing(): ...\n")
    assert ran.returncode == 1
    assert "A-1 is listed as delivered but no test proves it" in ran.stderr
    assert "A-2" not in ran.stderr


def test_unknown_requirement_fails(tmp_path: Path) -> None:
    """A marker can't name a requirement that does not exist."""
    ran = _trace(tmp_path, PROVEN + '\n@pytest.mark.req("A-9")\ndef test_other(): ...\n')
    assert ran.returncode == 1
    assert "tests/test_it.py::test_other names A-9" in ran.stderr


@pytest.mark.parametrize(
    "source",
    [
        'import pytest\npytestmark = pytest.mark.req("A-1")\ndef test_first(): ...\n',
        'import pytest\npytestmark = [pytest.mark.slow, pytest.mark.req("A-1")]\ndef test_first(): ...\n',
        'import pytest\n@pytest.mark.req("A-2", "A-1")\nclass Suite:\n    def test_first(self): ...\n',
    ],
    ids=["module", "list", "class"],
)
def test_markers_count_wherever_pytest_lets_them_stand(tmp_path: Path, source: str) -> None:
    """Markers on a module or a class hold for the tests in it."""
    assert _trace(tmp_path, source).returncode == 0


def test_a_requirement_listed_twice_fails(tmp_path: Path) -> None:
    """One id, one meaning."""
    ran = _trace(tmp_path, PROVEN, LISTED + LISTED)
    assert ran.returncode == 1
    assert "listed twice: A-1, A-2" in ran.stderr
