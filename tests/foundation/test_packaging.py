"""What is shipped, and what it costs to install and to start."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
BASE_BYTES_MAX = 60_000_000
UNBOUNDED = """\
while True:
    try:
        save()
        break
    except Exception:
        pass
"""


def _pinned(name: str) -> list[Requirement]:
    """The requirements of a compiled file that apply on this machine."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    lines = [line.rstrip("\\ ") for line in text.splitlines() if re.match(r"[a-zA-Z0-9]", line)]
    parsed = [Requirement(line) for line in lines]
    return [requirement for requirement in parsed if not requirement.marker or requirement.marker.evaluate()]


def _installed_bytes(name: str) -> int:
    """Files of a distribution, and the bytecode that is compiled from them."""
    files = {Path(str(entry.locate())) for entry in importlib.metadata.distribution(name).files or ()}
    for source in [path for path in files if path.suffix == ".py"]:
        files.update(
            (source.parent / "__pycache__").glob(f"{source.stem}.{sys.implementation.cache_tag}.pyc")
        )
    return sum(path.stat().st_size for path in files if path.is_file())


def test_base_installation_is_below_60_mb() -> None:
    """What every user installs stays below 60 MB, compiled bytecode included."""
    sizes = {requirement.name: _installed_bytes(requirement.name) for requirement in _pinned("base")}
    assert sum(sizes.values()) < BASE_BYTES_MAX, sorted(sizes.items(), key=lambda item: -item[1])[:8]
    assert len(sizes) > 10


def test_everything_is_pinned_with_hashes_and_without_addresses() -> None:
    """A compiled file names versions and hashes, never a registry or a folder of one machine."""
    files = sorted((ROOT / "requirements").glob("*.txt"))
    frameworks = {"airflow", "dbos", "langgraph", "node", "pgstac"}  # each in an environment of its own
    ours = {"uv", "build", "base", "progress", "demo", "service", "test"}
    assert {path.stem for path in files} == ours | frameworks
    for path in files:
        text = path.read_text()
        assert not re.search(r"://|^--(index|extra|find)|/(home|root|tmp|opt)/|^#", text, re.MULTILINE), path
        entries = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
        assert all("==" in entry and "--hash=sha256:" in entry for entry in entries), path


def test_pins_agree_with_each_other() -> None:
    """The tests run with the versions that users get."""
    wanted = {
        requirement.name: str(requirement.specifier)
        for name in ("build", "progress", "service")
        for requirement in _pinned(name)
    }
    tested = {requirement.name: str(requirement.specifier) for requirement in _pinned("test")}
    assert {name: tested.get(name) for name in wanted} == wanted


def test_every_direct_dependency_is_pinned() -> None:
    """A dependency added to pyproject.toml is in the compiled file, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {Requirement(text).name.replace(".", "-") for text in project["dependencies"]}
    direct.remove("kfm-lint")  # ours, installed from this repository
    assert direct <= {requirement.name for requirement in _pinned("base")}


def _built(folder: Path, out: Path) -> Path:
    command = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def kernel_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(ROOT, tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="module")
def lint_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(ROOT / "src" / "kfm_lint", tmp_path_factory.mktemp("lint"))


@pytest.fixture(scope="module")
def wheel(kernel_wheel: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(kernel_wheel)


def _metadata(wheel: zipfile.ZipFile) -> str:
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    return wheel.read(f"{info}/METADATA").decode()


def test_wheel_ships_types_contracts_and_facade(wheel: zipfile.ZipFile) -> None:
    """The wheel has everything that the source tree has, and no leftovers."""
    names = set(wheel.namelist())
    for package in ("kfm", "updater"):
        folder = ROOT / "src" / package
        files = {path.relative_to(ROOT / "src").as_posix() for path in folder.rglob("*") if path.is_file()}
        expected = {name for name in files if "__pycache__" not in name}
        assert expected <= names
    assert "kfm/py.typed" in names
    assert any(name.startswith("kfm/contracts/") for name in names)
    assert not any(name.startswith("kfm_lint/") for name in names)
    assert not any(name.endswith((".pyc", ".db")) or "/.kfm/" in name for name in names)


def test_wheel_metadata_names_command_and_licence(wheel: zipfile.ZipFile) -> None:
    """The command and the licence are in the metadata."""
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert "kfm = kfm.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert "License-Expression: MIT" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert "Requires-Dist: psycopg[binary]" in metadata


def test_the_distribution_has_a_name_of_its_own(kernel_wheel: Path, wheel: zipfile.ZipFile) -> None:
    """`kfm` on the public index is another project: ours is kfm-kernel, and its page says so."""
    assert kernel_wheel.name.startswith("kfm_kernel-")
    metadata = _metadata(wheel)
    assert "\nName: kfm-kernel\n" in metadata
    described = " ".join(metadata.partition("\n\n")[2].split())
    for sentence in (
        "The distribution is called `kfm-kernel`",
        "`kfm` on the public package index is another project",
        "`updater` there is another project, too",
    ):
        assert sentence in described


def test_the_linter_is_a_wheel_of_its_own(lint_wheel: Path, wheel: zipfile.ZipFile) -> None:
    """kfm-lint has its package, a licence, its command and the flake8 plugin, and needs nothing."""
    archive = zipfile.ZipFile(lint_wheel)
    assert lint_wheel.name.startswith("kfm_lint-")
    names = archive.namelist()
    (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    folder = ROOT / "src" / "kfm_lint"
    modules = {f"kfm_lint/{path.name}" for path in [*folder.glob("*.py"), folder / "py.typed"]}
    assert {name for name in names if not name.startswith(info)} == modules
    metadata = _metadata(archive)
    assert "Requires-Dist" not in metadata
    assert "License-Expression: MIT" in metadata
    points = archive.read(f"{info}/entry_points.txt").decode()
    assert "kfm-lint = kfm_lint.command:main" in points
    assert "KFM = kfm_lint.flake8:Plugin" in points
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert "flake8" not in wheel.read(f"{_info(wheel)}/entry_points.txt").decode()


def _info(wheel: zipfile.ZipFile) -> str:
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    return info


def test_both_wheels_have_one_version(lint_wheel: Path, wheel: zipfile.ZipFile) -> None:
    """They are built together, and kfm-kernel asks for exactly its own kfm-lint."""
    import kfm
    import kfm_lint

    assert kfm.__version__ == kfm_lint.__version__
    assert f"\nRequires-Dist: kfm-lint=={kfm_lint.__version__}\n" in _metadata(wheel)
    assert lint_wheel.name.split("-")[1] == kfm.__version__


FOREIGN = re.compile(
    r"pip install [^\n`|&;]*?(?<![\w./-])kfm(?=[\s'\"\[=<>`,.)]|$)"
    r"|(?<![\w-])kfm\\?\[(?:aws|dask|delta|dev|lakefs|lineage|objects|otel|parquet|postgres|progress|serve|\{)"
    r"|metadata\.version\(.kfm.\)",
    re.MULTILINE,
)


def _texts() -> Iterator[Path]:
    for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"):
        yield ROOT / name
    for folder in (
        "src",
        "docs",
        "deploy",
        "examples",
        "requirements",
        "tools",
        "tests",
        "bench",
        "node",
        ".ci",
    ):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and not {"node_modules", "__pycache__"} & set(path.parts):
                yield path


def test_no_install_line_names_another_project() -> None:
    """Whatever is printed, exported or documented installs kfm-kernel or kfm-lint, never a stranger's kfm."""
    found = {}
    seen = 0
    for path in _texts():
        text = path.read_bytes().decode("utf-8", "replace")
        seen += "pip install" in text
        if path != Path(__file__) and (match := FOREIGN.search(text)):
            found[str(path.relative_to(ROOT))] = match.group()
    assert found == {}
    assert seen > 20


@pytest.mark.parametrize(
    ("line", "is_foreign"),
    [
        ("      - run: pip install kfm", True),
        ("remedy=\"pip install 'kfm[serve]'\"", True),
        ("needs boto3: install kfm[aws].", True),
        ("pip install --upgrade kfm==1.0", True),
        ("importlib.metadata.version('kfm')", True),
        ("      - run: pip install kfm-kernel", False),
        ("pip install 'kfm-kernel[serve]', or leave it", False),
        ("pip uninstall kfm, then pip install --force-reinstall --no-deps kfm-kernel", False),
        ("sudo /opt/kfm/bin/pip install --no-index --no-deps dist/kfm_*.whl", False),
    ],
)
def test_foreign_install_lines_are_recognised(line: str, is_foreign: bool) -> None:
    """The search above finds what it should, and nothing else."""
    assert bool(FOREIGN.search(line)) is is_foreign


def _environment(folder: Path, *wheels: Path) -> Path:
    """A clean environment with these wheels and nothing else; its folder of commands."""
    venv.create(folder, with_pip=False)
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "install", "--quiet", "--offline", "--no-index", "--no-deps"]
    command += ["--python", str(folder / "bin" / "python"), *map(str, wheels)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return folder / "bin"


def _run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_linter_runs_alone(tmp_path: Path, lint_wheel: Path) -> None:
    """In an environment that has nothing else, the command finds what it should."""
    commands = _environment(tmp_path / "venv", lint_wheel)
    (tmp_path / "bad.py").write_text(
        "while True:\n    try:\n        save()\n        break\n    except Exception:\n        pass\n"
    )
    ran = _run(commands / "kfm-lint", "--format", "concise", "--all", "bad.py", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (1, f"{ran.stdout.count(chr(10))} findings in 1 file\n")
    assert "bad.py:1:7: KFM101 " in ran.stdout
    assert not (commands / "kfm").exists()


def test_both_wheels_run_together(tmp_path: Path, kernel_wheel: Path, lint_wheel: Path) -> None:
    """Installed side by side, `kfm` runs and `kfm lint` finds the linter."""
    commands = _environment(tmp_path / "venv", kernel_wheel, lint_wheel)
    (packages,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    # What kfm needs is taken from here; files of paths in that folder are not read, so kfm itself is not.
    (packages / "needed.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n"
    )
    ran = _run(
        commands / "python",
        "-c",
        "import kfm, kfm_lint; print(kfm.__file__, kfm_lint.__file__)",
        cwd=tmp_path,
    )
    assert ran.stdout.split() == [str(packages / name / "__init__.py") for name in ("kfm", "kfm_lint")]
    (tmp_path / "good.py").write_text("x = 1\n")
    ran = _run(commands / "kfm", "lint", "good.py", cwd=tmp_path, HOME=str(tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "0 findings in 1 file\n")


@pytest.mark.req("CLI-1")
def test_module_and_command_are_the_same() -> None:
    """`python -m kfm` answers as `kfm` does."""
    by_module = subprocess.run(
        [sys.executable, "-m", "kfm", "--version"], capture_output=True, text=True, timeout=30
    )
    by_command = subprocess.run(
        [str(Path(sys.executable).with_name("kfm")), "--version"], capture_output=True, text=True, timeout=30
    )
    assert by_module.stdout == by_command.stdout == f"kfm {importlib.metadata.version('kfm-kernel')}\n"


def test_asking_for_the_version_imports_nothing_heavy() -> None:
    """Start-up stays quick because what is heavy is imported where it is used."""
    heavy = "apsw cedarpy click httpx jsonschema_rs msgspec orjson rich ruamel psycopg whenever asyncio"
    code = f"import sys, kfm.cli; print(sorted(set({heavy.split()!r}) & sys.modules.keys()))"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "COVERAGE"))}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, env=clean)
    assert ran.stdout.strip() == "[]", ran.stderr
