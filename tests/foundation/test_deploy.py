"""What a service is installed with: each file passes its own checker, and is true of kfm."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

from kfm.cli.command_line import kfm
from kfm.config.loader import OTHER_VARIABLES, VARIABLES
from kfm.model.settings import Serve

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "kfm.service"
CONTAINERFILE = DEPLOY / "Containerfile"
WORKFLOW = DEPLOY / "github-workflow.yml"
BIN = Path(sys.executable).parent
EXPOSURE_MAX = 15  # tenths, as `systemd-analyze security` counts them: 100 is a service without any limits


def _ran(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    )


# --- systemd -------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with the command of this environment: its checker looks whether that can be executed."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/kfm/bin/kfm", str(BIN / "kfm")))
    return copy


def test_systemd_knows_every_line_of_the_unit(unit: Path, systemd_analyze: str) -> None:
    """The unit has no directive, value or command that systemd would ignore with a warning."""
    ran = _ran(systemd_analyze, "verify", "--man=no", unit)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_the_checker_would_notice(unit: Path, systemd_analyze: str) -> None:
    """A directive that systemd does not know is told, so that silence means something."""
    unit.write_text(unit.read_text().replace("NoNewPrivileges=", "NoNewPrivilege="))
    ran = _ran(systemd_analyze, "verify", "--man=no", unit)
    assert "NoNewPrivilege" in ran.stdout + ran.stderr


def test_the_unit_may_do_little(unit: Path, systemd_analyze: str) -> None:
    """By systemd's own measure the service is exposed as little as one that talks to networks can be."""
    threshold = f"--threshold={EXPOSURE_MAX}"
    ran = _ran(systemd_analyze, "security", "--offline=true", "--no-pager", threshold, unit)
    assert ran.returncode == 0, ran.stdout[-200:] + ran.stderr


def _directives() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_restarts_what_a_restart_can_mend() -> None:
    """A wrong configuration and a refusal stay as they are; SIGTERM reaches kfm alone."""
    directives = _directives()
    assert directives["Restart"] == ["on-failure"]
    assert directives["RestartPreventExitStatus"] == ["2 3"]
    assert directives["KillMode"] == ["mixed"]
    assert directives["Type"] == ["exec"]  # kfm does not tell systemd when it is ready


def test_both_ways_to_run_it_are_bounded() -> None:
    """Open files, memory and tasks have the same limits in the unit and in the documented container."""
    directives = _directives()
    limits = (directives["LimitNOFILE"], directives["MemoryMax"], directives["TasksMax"])
    assert limits == (["65536"], ["4G"], ["512"])
    flags = "--ulimit nofile=65536:65536 --memory 4g --pids-limit 512"
    assert flags in (ROOT / "docs" / "how-to" / "run-in-a-container.md").read_text()
    assert flags in CONTAINERFILE.read_text()


def test_the_account_of_the_unit_can_be_made(tmp_path: Path, systemd_analyze: str) -> None:
    """sysusers.d makes the user that the unit names, without a shell, and tmpfiles.d the folders it needs."""
    (tmp_path / "etc").mkdir()
    users = _ran("systemd-sysusers", f"--root={tmp_path}", DEPLOY / "kfm.sysusers")
    assert users.returncode == 0, users.stderr
    fields = (tmp_path / "etc" / "passwd").read_text().strip().split(":")
    assert [fields[0]] == _directives()["User"]
    assert fields[5:] == ["/var/lib/kfm", "/usr/sbin/nologin"]
    made = {line.split()[1] for line in (DEPLOY / "kfm.tmpfiles").read_text().splitlines() if line[0] == "d"}
    wanted = {path.lstrip("-") for path in _directives()["ReadWritePaths"]}
    wanted |= {value.partition(":")[2] for value in _directives()["LoadCredential"]}
    assert wanted <= made


# --- the container -------------------------------------------------------------------


def _instructions() -> list[tuple[str, str]]:
    """(instruction, the rest of its line), with continued lines joined."""
    text = "\n".join(line for line in CONTAINERFILE.read_text().splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", text).splitlines()
    parts = [line.split(maxsplit=1) for line in joined if line.strip()]
    return [(verb, rest) for verb, rest in parts]


def _all(verb: str) -> list[str]:
    return [rest for name, rest in _instructions() if name == verb]


def test_hadolint_finds_nothing(tmp_path: Path) -> None:
    """The linter of such files, with its checks of shell commands, is content; a bad line it would name."""
    ran = _ran(BIN / "hadolint", "--failure-threshold", "style", CONTAINERFILE)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout + ran.stderr
    bad = tmp_path / "Containerfile"
    bad.write_text(CONTAINERFILE.read_text().replace("python:3.11-slim-bookworm", "python:latest"))
    assert "DL3007" in _ran(BIN / "hadolint", bad).stdout


def test_images_have_short_names_and_a_version() -> None:
    """Where an image comes from is the builder's choice: no registry is named, and no `latest`."""
    images = [rest.split()[0] for rest in _all("FROM")]
    assert len(images) == 2
    assert all(re.fullmatch(r"python:3\.\d+-slim-[a-z]+", image) for image in images)


def test_what_is_copied_is_there_and_let_in() -> None:
    """Every file that is copied exists, is in version control's reach, and passes .dockerignore."""
    copied = [name for rest in _all("COPY") if not rest.startswith("--from") for name in rest.split()[:-1]]
    assert "src" in copied
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in copied:
        assert (ROOT / name).exists(), name
        assert name.split("/")[0] in let_in


def test_commands_of_the_image_are_shell() -> None:
    """Each RUN is a command that a shell understands."""
    assert len(_all("RUN")) == 3
    for command in _all("RUN"):
        ran = _ran("sh", "-n", "-c", command)
        assert ran.returncode == 0, ran.stderr


def test_the_image_installs_pinned_wheels_only() -> None:
    """Whatever is fetched while the image is built has its hash in this repository; none of it is built."""
    installs = [part for command in _all("RUN") for part in command.split("&&") if " pip" in part]
    assert len(installs) == 4
    for install in installs:
        pinned = "--require-hashes" in install and "--only-binary :all:" in install
        assert pinned or "--no-index --no-deps" in install, install


def test_the_image_has_both_distributions() -> None:
    """kfm-kernel needs kfm-lint of the same commit: both are built, and all that was built is installed."""
    parts = [part.strip() for command in _all("RUN") for part in command.split("&&")]
    (build,) = [part for part in parts if " pip wheel " in part]
    assert build.split()[-2:] == ["./src/kfm_lint", "."]
    assert "--no-build-isolation --wheel-dir dist " in build
    assert any(part.endswith("--no-index --no-deps dist/*.whl") for part in parts)


def test_the_service_is_pinned_with_what_it_may_need() -> None:
    """The pins have every extra that the service comes with; the wheel's builder stays outside."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "requirements" / "service.txt").read_text()
    pinned = {Requirement(line.rstrip("\\ ")).name for line in text.splitlines() if re.match(r"[a-z]", line)}
    for extra in ("serve", "postgres", "objects", "aws", "parquet", "lineage", "otel"):
        wanted = {Requirement(one).name for one in project["optional-dependencies"][extra]}
        assert wanted <= pinned, extra
    assert "hatchling" not in pinned


def test_the_container_is_not_root() -> None:
    """The process runs as a number that is not 0, and nothing after USER is done as root."""
    names = [verb for verb, _ in _instructions()]
    last = len(names) - 1 - names[::-1].index("USER")
    assert _all("USER")[-1] == "10001:10001"
    assert "RUN" not in names[last:]


def test_the_health_check_is_an_expression_of_this_python() -> None:
    """The check asks /livez on the port that the service listens on, with Python alone."""
    (check,) = _all("HEALTHCHECK")
    command = json.loads(check.partition("CMD ")[2])
    assert command[:3] == ["python", "-I", "-c"]
    compile(command[3], "HEALTHCHECK", "exec")
    assert "'/livez'" in command[3]
    (exposed,) = _all("EXPOSE")
    assert f"'127.0.0.1', {exposed}," in command[3]
    served = json.loads(_all("CMD")[-1])
    assert served[served.index("--port") + 1] == exposed == str(Serve().port)


# --- both ----------------------------------------------------------------------------


def _started() -> Iterator[tuple[str, list[str]]]:
    yield "kfm.service", _directives()["ExecStart"][0].split()[1:]
    yield "Containerfile", json.loads(_all("CMD")[-1])


@pytest.mark.parametrize("words", [pytest.param(words, id=name) for name, words in _started()])
def test_what_is_started_exists(words: list[str]) -> None:
    """The command that a service is started with is one of kfm's, with options that it has."""
    command = kfm.get_command(click.Context(kfm), words[0])
    assert command is not None
    known = {name for option in command.params for name in option.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_variables_that_are_set_mean_something() -> None:
    """No KFM_ variable is set that kfm would not read."""
    files = [path for path in DEPLOY.iterdir() if path.is_file()]
    named = {name for path in files for name in re.findall(r"\bKFM_[A-Z_]+", path.read_text())}
    assert len(named) > 3
    assert named <= {*VARIABLES, *OTHER_VARIABLES}


# --- GitHub --------------------------------------------------------------------------


def _zizmor(*files: Path) -> subprocess.CompletedProcess[str]:
    """Its strictest persona; it also holds the file against GitHub's own schema."""
    return _ran(BIN / "zizmor", "--offline", "--no-progress", "--persona", "auditor", *files)


def test_zizmor_finds_nothing_in_the_workflow(tmp_path: Path) -> None:
    """The example has no permission, action or expression that a reviewer of workflows would object to."""
    ran = _zizmor(WORKFLOW)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    bad = tmp_path / "workflow.yml"
    bad.write_text(re.sub(r"(actions/checkout@)\w+ #", r"\1main #", WORKFLOW.read_text()))
    assert _zizmor(bad).returncode >= 10


@pytest.mark.req("UPD-13")
def test_zizmor_finds_nothing_in_an_exported_workflow(tmp_path: Path) -> None:
    """A workflow that `kfm schedule export github` writes is held to the same."""
    (tmp_path / "in").mkdir()
    (tmp_path / "kfm.yml").write_text(
        "version: 1\ndatasets:\n  - id: rain\n"
        "    rights: {license: CC0-1.0, care: {label: Public, level: public}}\n"
        "sources: [{id: gauges, dataset: rain, kind: files, folder: in}]\n"
    )
    (tmp_path / "cron.yml").write_text(
        'version: 1\nschedules: [{id: daily, source: gauges, cron: "15 7 * * *", time_zone: UTC}]\n'
    )
    exported = _ran(BIN / "kfm", "schedule", "export", "github", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    (tmp_path / "workflow.yml").write_text(exported.stdout)
    ran = _ran(BIN / "zizmor", "--offline", "--no-progress", tmp_path / "workflow.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _steps() -> list[dict[str, Any]]:
    jobs = YAML(typ="safe", pure=True).load(WORKFLOW.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def test_the_workflow_may_only_read() -> None:
    """No job may write anything to GitHub, and every job has an end and a group of its own."""
    workflow = YAML(typ="safe", pure=True).load(WORKFLOW.read_text())
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        assert job["timeout-minutes"] <= 60
        assert job["concurrency"]["group"]


def test_commands_of_the_workflow_exist() -> None:
    """Every step is shell, and what it calls of kfm is there."""
    scripts = [step["run"] for step in _steps() if "run" in step]
    for script in scripts:
        assert _ran("sh", "-n", "-c", script).returncode == 0
        words = script.split()
        if words[0] != "kfm":
            continue
        command: click.Command = kfm
        while isinstance(command, click.Group) and len(words) > 1:
            words = words[1:]
            found = command.get_command(click.Context(command), words[0])
            assert found is not None, script
            command = found
        known = {name for option in command.params for name in option.opts}
        assert {word for word in words if word.startswith("--")} <= known
