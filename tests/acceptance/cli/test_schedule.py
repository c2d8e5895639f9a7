"""`kfm schedule`: when sources are brought up to date."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.acceptance.cli.conftest import Called

CRON = """\
version: 1
schedules:
  - {id: morning, source: daily, cron: "30 2 * * *", time_zone: America/Chicago}
  - {id: often, source: hourly, every: PT90M, jitter: PT5M, overlap: cancel-older}
  - {id: resting, source: hourly, cron: "*/10 * * * *", enabled: false}
"""
Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]


@pytest.fixture(autouse=True)
def cron(project: Path) -> Path:
    path = project / "cron.yml"
    path.write_text(CRON)
    return path


@pytest.mark.req("UPD-13")
def test_list(kfm: Kfm, valid: Valid) -> None:
    """Each schedule with its next instant; what is not enabled has none."""
    called = kfm("schedule", "list", "--json")
    valid("schedule-list", called.document)
    listed = {each["schedule_id"]: each for each in called.document["schedules"]}
    assert [listed[name]["goes_by"] for name in ("morning", "often", "resting")] == [
        "local-time",
        "interval",
        "real-time",
    ]
    assert listed["resting"]["next"] is None
    assert listed["morning"]["next_local"][10:16] in ("T02:30", "T03:00")
    assert "every 1 h 30 min" in kfm("schedule", "list").out
    assert len(kfm("schedule", "list", "-o", "jsonl").out.splitlines()) == 3


@pytest.mark.req("UPD-13")
def test_next_over_a_change_of_the_clocks(kfm: Kfm, valid: Valid) -> None:
    """The instant in UTC and on the local clock, and the window that it covers."""
    called = kfm("schedule", "next", "morning", "--from", "2027-03-13", "--count", "3", "--json")
    valid("schedule-next", called.document)
    assert [(each["instant"][:16], each["local"]) for each in called.document["instants"]] == [
        ("2027-03-13T08:30", "2027-03-13T02:30:00-06:00"),
        ("2027-03-14T08:00", "2027-03-14T03:00:00-05:00"),
        ("2027-03-15T07:30", "2027-03-15T02:30:00-05:00"),
    ]
    assert called.document["instants"][0]["window_end"] == "2027-03-13T00:00:00.000Z"


@pytest.mark.req("UPD-13")
def test_next_of_all(kfm: Kfm) -> None:
    """In the order of time, with jitter, and without what rests unless it is named."""
    found = kfm("schedule", "next", "--from", "2027-01-01", "--count", "8", "--json").document["instants"]
    assert {each["schedule_id"] for each in found} == {"morning", "often"}
    assert [each["instant"] for each in found] == sorted(each["instant"] for each in found)
    assert all(each["due"] >= each["instant"] for each in found)
    assert any(each["due"] != each["instant"] for each in found)
    named = kfm("schedule", "next", "resting", "--count", "1")
    assert named.code == 0
    assert "resting is not enabled" in named.err
    text = kfm("schedule", "next", "--from", "2027-01-01").out.splitlines()
    assert text[0].split()[0] == "UTC"
    assert len(text) == 6


@pytest.mark.req("CLI-2")
def test_wrong_words(kfm: Kfm, cron: Path) -> None:
    """A name that is not there, a time that is none, a file that is wrong: exit code 2 and the way out."""
    unknown = kfm("schedule", "next", "mornin")
    assert (unknown.code, "did you mean `morning`?" in unknown.err) == (2, True)
    assert kfm("schedule", "next", "--from", "soon").code == 2
    cron.write_text(CRON.replace("America/Chicago", "America/Chicag"))
    for command in (("schedule", "list"), ("config", "check")):
        wrong = kfm(*command)
        assert wrong.code == 2
        assert "cron.yml:3: there is no time zone `America/Chicag`; did you mean" in wrong.err


def test_without_schedules(kfm: Kfm, cron: Path) -> None:
    """No file is no mistake, and where to write one is said."""
    cron.unlink()
    called = kfm("schedule", "list")
    assert (called.code, called.out) == (0, "no schedules\n")
    assert "write them into cron.yml" in called.err
    assert kfm("schedule", "next").out == "nothing is scheduled\n"
    assert kfm("schedule", "export", "github").code == 2


# --- exports -----------------------------------------------------------------------------


@pytest.mark.req("UPD-13", "UPD-8")
def test_github_workflow(kfm: Kfm) -> None:
    """One job for each schedule, started by its own lines, that may only read and knows its group."""
    called = kfm("schedule", "export", "github")
    workflow = YAML(typ="safe").load(called.out)
    assert workflow["on"]["schedule"] == [
        {"cron": "30 2 * * *", "timezone": "America/Chicago"},
        {"cron": "0 0,3,6,9,12,15,18,21 * * *"},
        {"cron": "30 1,4,7,10,13,16,19,22 * * *"},
    ]
    assert workflow["permissions"] == {"contents": "read"}
    assert set(workflow["jobs"]) == {"s-morning", "s-often"}
    often = workflow["jobs"]["s-often"]
    assert often["concurrency"] == {"group": "kfm-hourly", "cancel-in-progress": True}
    assert '"30 1,4,7,10,13,16,19,22 * * *"' in often["if"]
    assert "kfm run --no-input --source hourly --output json" in str(often["steps"])
    assert "note: without jitter: often" in called.err


@pytest.mark.req("UPD-13")
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('cron: "*/2 * * * *"', "oftener than every 5 minutes"),
        ('cron: "58,2 * * * *"', "oftener than every 5 minutes"),
        ('cron: "0 0 L * *"', "uses `#`, `L` or `W`"),
        ('cron: "0 0 * * FRI#2"', "uses `#`, `L` or `W`"),
        ('cron: "0 0 * * 5-7"', "Sunday is written as 7"),
        ('cron: "0 0 */2 * MON"', "read in two ways"),
        ("every: PT7H", "do not divide a day"),
        ('cron: "30 2 * * *", time_zone: Europe/Berlin', "same pattern in another time zone"),
    ],
)
def test_what_github_cannot_keep(kfm: Kfm, cron: Path, entry: str, said: str) -> None:
    """It is refused by name, with the way out, rather than exported as something else."""
    cron.write_text(f"{CRON}  - {{id: odd, source: daily, {entry}}}\n")
    called = kfm("schedule", "export", "github")
    assert (called.code, called.out) == (2, "")
    assert "GitHub can't keep the schedule odd" in called.err
    assert said in called.err


@pytest.mark.req("UPD-13")
def test_days_with_names_are_no_trouble(kfm: Kfm, cron: Path) -> None:
    """JUL and WED hold characters that mean something else alone."""
    cron.write_text(f'{CRON}  - {{id: summer, source: daily, cron: "5 4 * JUL WED"}}\n')
    assert '- cron: "5 4 * JUL WED"  # summer' in kfm("schedule", "export", "github").out


@pytest.mark.req("UPD-13")
@pytest.mark.parametrize("target", ["airflow", "langgraph"])
def test_exports_for_python(kfm: Kfm, target: str) -> None:
    """The file is Python that names each enabled schedule with its lines, zone and command."""
    text = kfm("schedule", "export", target).out
    strings = {
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {"30 2 * * *", "America/Chicago", "30 1,4,7,10,13,16,19,22 * * *", "UTC"} <= strings
    runs = {"kfm run --no-input --source daily", "kfm run --no-input --source hourly"}
    assert (runs if target == "langgraph" else {"daily", "hourly", "kfm.morning", "kfm.often"}) <= strings
    assert "resting" not in text


@pytest.mark.req("UPD-13")
def test_airflow_of_a_service(kfm: Kfm) -> None:
    """With a connection its DAGs ask the service, and need no configuration on the workers."""
    text = kfm("schedule", "export", "airflow", "--connection", "kfm_prod").out
    assert 'PLACE = "kfm_prod"' in text
    assert "KFM_CONFIG" not in text
    assert kfm("schedule", "export", "airflow", "--connection", 'x"y').code == 2
    assert kfm("schedule", "export", "github", "--connection", "kfm_prod").code == 2


@pytest.mark.req("UPD-13")
def test_airflow_of_derived_datasets(kfm: Kfm, project: Path) -> None:
    """A dataset that is made from scheduled ones has a DAG that their promotions start."""
    config = project / "kfm.yml"
    rights = "rights: {license: CC0-1.0, care: {label: Public}}"
    text = config.read_text().replace("datasets:", f"datasets:\n  - {{id: means, {rights}}}", 1)
    made = "{id: means, dataset: means, kind: dataset, datasets: {%s: window}}"
    dataset = YAML(typ="safe").load(text)["sources"][0]["dataset"]
    config.write_text(text.replace("sources:", f"sources:\n  - {made % dataset}", 1))
    called = kfm("schedule", "export", "airflow")
    assert called.code == 0, called.err
    assert (
        f'    "kfm.from.means",\n    "means",\n    "means",\n    kfm_asset("{dataset}", PLACE),' in called.out
    )


@pytest.mark.req("UPD-13")
def test_github_installs_what_is_pinned(kfm: Kfm, project: Path, tmp_path: Path) -> None:
    """The step of the workflow installs the wheel whose hash the file has, and no other."""
    wheel = tmp_path / "wheels" / "pinned_levels-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        info = "pinned_levels-1.0.dist-info"
        archive.writestr("pinned_levels.py", "LEVEL = 3\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pinned-levels\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    digest = sha256(wheel.read_bytes()).hexdigest()
    pins = project / "requirements.txt"
    pins.write_text(f"pinned-levels==1.0 --hash=sha256:{digest}\n")
    called = kfm("schedule", "export", "github", "--requirements", "requirements.txt")
    install = YAML(typ="safe").load(called.out)["jobs"]["s-morning"]["steps"][2]["run"]
    assert "--require-hashes" in install
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "fresh"], check=True, timeout=100)
    path = f"{tmp_path / 'fresh' / 'bin'}:/usr/bin:/bin"
    env = {"PATH": path, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "HOME": str(tmp_path)}

    def shell(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-ec", command], cwd=project, env=env, capture_output=True, text=True, timeout=100
        )

    pins.write_text(f"pinned-levels==1.0 --hash=sha256:{'0' * 64}\n")
    assert "DO NOT MATCH THE HASHES" in shell(install).stderr
    pins.write_text(f"pinned-levels==1.0 --hash=sha256:{digest}\n")
    done = shell(f"{install}\npython -c 'import pinned_levels; print(pinned_levels.LEVEL)'")
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["3"]), done.stderr


@pytest.mark.req("UPD-13")
def test_github_passes_secrets_on(kfm: Kfm, project: Path) -> None:
    """A job has each variable that the configuration refers to, and the address of a store that lasts."""
    plain = YAML(typ="safe").load(kfm("schedule", "export", "github").out)["jobs"]["s-morning"]
    run = next(step for step in plain["steps"] if "kfm run" in step.get("run", ""))
    assert run["env"] == {"KFM_CONFIG": "kfm.yml", "KFM_STORE": "${{ secrets.KFM_STORE }}"}
    assert plain["environment"] == "kfm"
    config = project / "kfm.yml"
    config.write_text("store: env:LEVELS_STORE\nlineage: {token: env:LINEAGE_TOKEN}\n" + config.read_text())
    called = kfm("schedule", "export", "github")
    assert called.code == 0, called.err
    jobs = YAML(typ="safe").load(called.out)["jobs"]
    run = next(step for step in jobs["s-morning"]["steps"] if "kfm run" in step.get("run", ""))
    assert run["env"] == {
        "KFM_CONFIG": "kfm.yml",
        "LEVELS_STORE": "${{ secrets.LEVELS_STORE }}",
        "LINEAGE_TOKEN": "${{ secrets.LINEAGE_TOKEN }}",
    }
    assert kfm("schedule", "export", "github", "--requirements", "../x.txt").code == 2
    assert kfm("schedule", "export", "airflow", "--requirements", "kfm.yml").code == 2


@pytest.mark.req("UPD-13")
@pytest.mark.parametrize("target", ["github", "airflow", "langgraph"])
def test_check(kfm: Kfm, valid: Valid, project: Path, cron: Path, target: str) -> None:
    """--check is green as long as the file is what would be written, and shows what is not."""
    made = project / "made"
    made.write_text(kfm("schedule", "export", target).out)
    assert kfm("schedule", "export", target, "--check", "made").code == 0
    cron.write_text(CRON.replace("30 2", "31 2"))
    drifted = kfm("schedule", "export", target, "--check", "made")
    assert drifted.code == 1
    assert "31 2 * * *" in drifted.out
    assert f"fix: kfm schedule export {target} > made" in drifted.err
    document = kfm("schedule", "export", target, "--check", "made", "--json").document
    valid("schedule-export", document)
    assert "+" in document["drift"]
    assert kfm("schedule", "export", target, "--check", "nowhere").code == 2
