"""The Node.js twin: the same keys, the same ledger, the same bytes."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from kfm import __version__
from kfm.cli import main
from kfm.model.webhook_signatures import sign_kfm, sign_standard
from kfm.system import FlockLiveness
from tests import moving
from tests.twin.differential import compare
from tests.twin.drawing import NOW_MS, draw_case
from tests.twin.fleet import campaign
from tests.twin.runtime import ROOT, TWIN
from tests.twin.upstream import upstream
from tools import make_tables
from updater.scheduler.webhook_validator import validate

CASES = 16  # `make differential` plays 500
KILLS = 6  # `make fleet` kills 200
MEMORY_MAX_BYTES = 150 * 1024 * 1024
RIGHTS = {"license": "CC0-1.0", "care": {"label": "Public", "level": "public"}}
DOUBLE = """export async function double({ inputs, publisher, log }) {
  for (const input of inputs) {
    const twice = Buffer.concat([input.read(), input.read()]);
    await publisher.writeFile(`twice/${input.path}`, twice);
  }
  publisher.updateState("share", 0.5 * 2);
  log("doubled");
}
"""
HOLDING = """
import time
from kfm.system import FlockLiveness
liveness = FlockLiveness("{folder}")
liveness.claim("from-python")
print("held", flush=True)
time.sleep(600)
"""
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.req("UPD-14")


@pytest.fixture
def node(node_path: str) -> str:
    return node_path


@pytest.fixture
def run(node: str, tmp_path: Path) -> Run:
    """The twin's command line, in a project."""

    def call(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return subprocess.run(
            [node, str(TWIN / "runner.mjs"), *words],
            cwd=tmp_path,
            env={**kept, **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def project(folder: Path, **source: Any) -> dict[str, Any]:
    """A configuration with one source, written down."""
    document: dict[str, Any] = {
        "version": 1,
        "environment": "t",
        "datasets": [{"id": "d1", "rights": RIGHTS}],
        "sources": [{"id": "s1", "dataset": "d1", "kind": "files", "folder": "in", **source}],
        "publish": [{"kind": "local", "path": "pub"}],
    }
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "a.csv").write_text("id,v\n1,2\n", "utf-8")
    (folder / "kfm.yml").write_text(json.dumps(document), "utf-8")
    return document


def _linked_out(folder: Path) -> None:
    (folder / "secret").write_text("secret")
    (folder / "in/b.csv").symlink_to("../secret")


def _linked_hard(folder: Path) -> None:
    (folder / "secret").write_text("secret")
    os.link(folder / "secret", folder / "in/b.csv")
    (folder / "in").chmod(0o777)


def _linked_tree(folder: Path) -> None:
    (folder / "pub/d1").mkdir(parents=True)
    (folder / "elsewhere").mkdir()
    (folder / "pub/d1/.versions").symlink_to("../../elsewhere")


def _directive(folder: Path) -> None:
    text = (folder / "kfm.yml").read_text()
    (folder / "kfm.yml").write_text(f"%YAML 1.1\n---\n{text}")


TROUBLES = {
    "in/b.csv leads out of": (_linked_out, "b.csv leads out of the folder in."),
    "a hard link": (_linked_hard, "b.csv is also a file outside of in."),
    "a link in the tree": (_linked_tree, ".versions is a link, and is not followed"),
    "zero width": (lambda folder: (folder / "in/a\u200b.csv").write_text("x"), "character U+200B"),
    "a directive": (_directive, "kfm.yml:1: not YAML: a directive other than `%YAML 1.2` is not supported"),
    "brackets": (lambda folder: (folder / "kfm.yml").write_text("a: " + "[" * 9_000), "nested more than 64"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_hostile_files_are_refused_by_both(run: Run, tmp_path: Path, name: str) -> None:
    """Links, unseen characters, YAML of another kind: one refusal, and nothing is written behind a link."""
    project(tmp_path)
    harm, sentence = TROUBLES[name]
    harm(tmp_path)
    words = ("run", "--source", "s1", "--window", "2026-01-01/P1D", "--json")
    theirs = run(*words)
    ours = subprocess.run(
        [sys.executable, "-m", "kfm", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert sentence in theirs.stdout + theirs.stderr, theirs.stdout + theirs.stderr
    assert sentence in ours.stdout + ours.stderr, ours.stdout + ours.stderr
    assert (theirs.returncode == 0) == (ours.returncode == 0)
    assert "\u200b" not in theirs.stdout + ours.stdout
    assert not (tmp_path / "elsewhere").exists() or not list((tmp_path / "elsewhere").iterdir())


def test_a_ledger_of_its_making_is_its_owners_alone(run: Run, tmp_path: Path) -> None:
    """Where no folder closes it off, too."""
    document = project(tmp_path)
    (tmp_path / "kfm.yml").write_text(json.dumps({**document, "store": "sqlite:ledger.db"}))
    assert run("run", "--window", "2026-01-01/P1D").returncode == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("ledger.db*")}
    assert {"ledger.db", "ledger.db-gate"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_all_vectors_and_its_own_tests_pass(node: str) -> None:
    """Every shared vector is answered as Python answers it, and the twin's own promises hold."""
    files = sorted(str(path) for path in (TWIN / "test").glob("*.test.mjs"))
    done = subprocess.run([node, "--test", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    families = re.findall(r"the vectors of (\w+)", done.stdout)
    assert {path.stem for path in (ROOT / "vectors").glob("*.json")} <= set(families)


def test_types_are_checked(node: str) -> None:
    """tsc --strict finds nothing in any module."""
    compiler = TWIN / "node_modules" / "typescript" / "bin" / "tsc"
    done = subprocess.run(
        [node, str(compiler), "--project", str(TWIN)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]


def test_what_it_reads_instead_of_saying_it_again_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors, flags and words in contracts/tables are those of the Python code."""
    monkeypatch.setattr(sys, "argv", ["make_tables.py", "--check"])
    assert make_tables.main() == 0


def test_its_packages_are_pinned_without_addresses() -> None:
    """Every package has one version and a hash, and no committed file names a registry."""
    text = (TWIN / "package-lock.json").read_text("utf-8")
    lock = json.loads(text)
    packages = {name: told for name, told in lock["packages"].items() if name}
    assert all(told["integrity"].startswith("sha512-") for told in packages.values())
    assert "://" not in text
    manifest = json.loads((TWIN / "package.json").read_text("utf-8"))
    wanted = {**manifest["dependencies"], **manifest["devDependencies"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())


def test_it_says_the_same_version(run: Run) -> None:
    """`--version` is that of kfm."""
    assert run("--version").stdout == f"kfm {__version__}\n"


def test_help_is_the_same(run: Run) -> None:
    """`run --help` teaches what Python's does."""
    told = run("run", "--help")
    wanted = subprocess.run(
        [sys.executable, "-m", "updater.runner", "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "102"},
    ).stdout
    assert told.returncode == 0
    assert re.sub(r"\s+", " ", told.stdout).replace("runner.mjs", "P") == re.sub(r"\s+", " ", wanted).replace(
        "python -m updater.runner", "P"
    ).replace("updater.runner", "P")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"store": "postgresql://localhost/kfm"}, "PostgreSQL"),
        ({"objects": "s3://bucket"}, "bucket"),
        ({"telemetry": {"otlp": "http://127.0.0.1:4318"}}, "OpenTelemetry"),
        ({"publish": [{"kind": "s3", "url": "s3://b/p"}]}, "bucket"),
        ({"people": [{"subject": "ada", "roles": ["operate"], "accounts": ["ada"]}]}, "roles"),
        (
            {"sources": [{"id": "s1", "formerly": ["s0"], "dataset": "d1", "kind": "files", "folder": "in"}]},
            "was renamed",
        ),
        (
            {"datasets": [{"id": "d1", "formerly": ["d0"], "rights": RIGHTS}]},
            "was renamed",
        ),
        ({"licences": {"LicenseRef-city": {"name": "City", "terms": "open"}}}, "declares licences"),
    ],
)
def test_what_it_does_not_do_is_refused_with_the_command_that_does(
    run: Run, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    """Exit 2 before anything happens, naming the Python command."""
    (tmp_path / "kfm.yml").write_text(json.dumps({**project(tmp_path), **change}), "utf-8")
    told = run("run", "--window", "P1D")
    assert told.returncode == 2, told.stderr
    assert said in told.stderr
    assert "fix: Run it with Python: `kfm run --window P1D`." in told.stderr


@pytest.mark.req("DAT-2")
@pytest.mark.parametrize(
    ("change", "said"),
    [({"not_yet": ["empty"]}, "waits for data (`not_yet`)"), ({"expect": {"rows_min": 3}}, "expects rows")],
)
def test_a_source_that_waits_or_counts_is_refused(
    run: Run, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    """The twin would take for data what is not yet there, or publish too few rows: it says so instead."""
    document = project(tmp_path)
    document["sources"] = [{**one, **change} for one in document["sources"]]
    (tmp_path / "kfm.yml").write_text(json.dumps(document), "utf-8")
    told = run("run", "--window", "P1D")
    assert told.returncode == 2, told.stderr
    assert said in told.stderr
    assert not (tmp_path / ".kfm").exists()


@pytest.mark.req("DAT-9")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"approval": "required"}, "needs an approval of each preview"),
        ({"approvals": {"standing": {"until": "2027-01-31"}}}, "has rules for standing approvals"),
    ],
)
def test_a_source_that_needs_approvals_is_left_to_python(
    run: Run, tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    """The twin never publishes what a second person has to see first."""
    made = project(tmp_path)
    made["sources"] = [{**one, **more} for one in made["sources"]]
    (tmp_path / "kfm.yml").write_text(json.dumps(made), "utf-8")
    told = run("run", "--window", "P1D")
    assert told.returncode == 2, told.stderr
    assert said in told.stderr
    assert not (tmp_path / ".kfm").exists()


def test_random_work_leaves_the_same_bytes_in_both_languages(node: str, tmp_path: Path) -> None:
    """Artifacts, plans, rows, outbox, published trees, messages and exit codes are equal, byte by byte."""
    cases = [draw_case(seed, str(tmp_path / "work" / str(seed))) for seed in range(CASES)]
    assert compare(cases, node, tmp_path) == {}


def test_work_over_http_leaves_the_same_bytes_in_both_languages(node: str, tmp_path: Path) -> None:
    """Validators, bodies without one, encodings, redirects, pages, secrets and refusals are met alike."""
    with upstream() as address:
        cases = [
            _http_case(tmp_path, number, address, **source)
            for number, source in enumerate(
                (
                    {"url": "/etag.csv"},
                    {"url": "/plain", "params": {"day": "{window.start:date}"}},
                    {"url": "/zipped.csv"},
                    {"url": "/moved"},
                    {"url": "/inward"},
                    {"url": "/named"},
                    {"url": "/named", "allow": ["localhost"]},
                    {"url": "/etag.csv", "allow": ["10.0.0.0/33"]},
                    {"url": "/gone"},
                    {"url": "/missing.csv"},
                    {"url": "/secret.csv", "headers": {"Authorization": "env:SECRET_HEADER"}},
                    {"url": "/secret.csv"},
                    {"url": "/pages", "pagination": {"style": "page-number"}},
                    {"url": "/linked", "pagination": {"style": "link-header"}},
                    {"url": "/busy"},
                    {"url": "/pages", "pagination": {"style": "offset", "items_pointer": "/x"}},
                )
            )
        ]
        assert compare(cases, node, tmp_path) == {}


def _http_case(folder: Path, number: int, address: str, **source: Any) -> dict[str, Any]:
    document = {
        "version": 1,
        "datasets": [{"id": "d1", "rights": RIGHTS}],
        "sources": [{"id": "s1", "dataset": "d1", "kind": "http", **source, "url": address + source["url"]}],
        "publish": [{"kind": "local", "path": "pub"}],
    }
    environ = {"SECRET_HEADER": "Bearer abcdefghijkl"}
    steps = [
        {"args": ["run", "--artifacts", "art"], "now_ms": NOW_MS + at, "environ": environ}
        for at in (0, 10, 20)
    ]
    steps.insert(1, {"args": ["run", "--dry-run", "--json"], "now_ms": NOW_MS + 5, "environ": environ})
    return {
        "folder": str(folder / "work" / f"h{number}"),
        "steps": [{"write": {"kfm.yml": json.dumps(document)}}, *steps],
    }


def test_both_validators_answer_alike(node: str) -> None:
    """A webhook is accepted or refused by both, for the same reason."""
    now_ms, secret = 1_790_000_000_000, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    good = {"source_id": "s", "trigger": "webhook", "event_type": "e", "sent_at": "2026-09-21T14:13:20Z"}
    bodies = [
        json.dumps(body).encode()
        for body in (
            good,
            {**good, "dry_run": 1},
            {**good, "sent_at": "yesterday"},
            {**good, "sent_at": "2026-09-21T13:13:20Z"},
            {**good, "source_id": ""},
            {**good, "metadata": []},
            [good],
        )
    ]
    cases: list[tuple[dict[str, str], bytes]] = [
        ({"X-KFM-Signature": sign_kfm(secret.encode(), body)}, body) for body in bodies
    ]
    marked = b"\xef\xbb\xbf" + bodies[0]  # a byte-order mark
    signed = {"webhook-id": "m", "webhook-timestamp": str(now_ms // 1000)}
    cases.append(
        ({**signed, "webhook-signature": sign_standard(secret, "m", now_ms // 1000, bodies[0])}, bodies[0])
    )
    cases += [
        ({"X-KFM-Signature": "sha256=" + "0" * 64}, bodies[0]),
        ({}, bodies[0]),
        (cases[0][0], b"x" * (1024 * 1024 + 1)),
        ({"X-KFM-Signature": sign_kfm(secret.encode(), marked)}, marked),
    ]
    given = "\n".join(json.dumps([headers, body.hex(), ["other", secret], now_ms]) for headers, body in cases)
    command = [node, str(TWIN / "testing" / "webhook_answers.mjs")]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    mine = [validate(headers, body, ["other", secret], now_ms) for headers, body in cases]
    assert json.loads(done.stdout) == [[one.ok, one.status, one.reason, one.secret_index] for one in mine]
    assert {one.status for one in mine} == {202, 400, 403, 413}


def test_an_es_module_is_a_pipeline_and_python_names_its_command(run: Run, tmp_path: Path) -> None:
    """A function that a module exports transforms what was fetched; Python names the command for it."""
    project(tmp_path, pipeline="double.mjs:double")
    (tmp_path / "double.mjs").write_text(DOUBLE, "utf-8")
    told = run("run", "--window", "2026-01-01/P1D")
    assert told.returncode == 0, told.stderr
    written = next((tmp_path / "pub" / "d1" / "current" / "data").rglob("a.csv"))
    assert written.read_text("utf-8") == "id,v\n1,2\n" * 2
    python = subprocess.run(
        [sys.executable, "-m", "updater.runner", "run", "--window", "2026-01-02/P1D"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert python.returncode == 2
    assert "node node/runner.mjs run" in python.stderr


def test_a_level_of_a_message_is_given_and_never_read_from_it(run: Run, tmp_path: Path) -> None:
    """Whatever a message begins with, its level is the one that its author named, as in Python."""
    project(tmp_path, pipeline="double.mjs:double")
    (tmp_path / "double.mjs").write_text(DOUBLE.replace('"doubled"', '"error: doubled"'), "utf-8")
    told = run("run", "--window", "2026-01-01/P1D", "--verbose", "--log-format", "json")
    assert told.returncode == 0, told.stderr
    lines = [json.loads(line) for line in told.stderr.splitlines()]
    assert any("error: doubled" in line["message"] for line in lines), told.stderr
    assert {line["level"] for line in lines} == {"info"}
    lines = [
        json.loads(line)
        for line in run("run", "--source", "none", "--log-format", "json").stderr.splitlines()
    ]
    assert [line["level"] for line in lines] == ["error", "info"]


def test_a_large_source_is_streamed(node: str, tmp_path: Path) -> None:
    """Memory does not grow with the source: 192 MB pass through less than 150 MB (1 GB does, too)."""
    project(tmp_path)
    with (tmp_path / "in" / "large.bin").open("wb") as file:
        file.truncate(192 * 1024 * 1024)
    command = [node, str(TWIN / "testing" / "peak_memory.mjs"), "run", "--window", "2026-01-01/P1D"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (tmp_path / "pub" / "d1" / "current").exists(), done.stderr
    assert int(done.stderr.strip().splitlines()[-1]) * 1024 < MEMORY_MAX_BYTES


def test_a_dead_process_is_seen_by_both_languages(node: str, tmp_path: Path) -> None:
    """A worker's liveness is seen by both languages, and so is its death, at once."""
    module = TWIN / "system.mjs"
    asking = f"import {{ FlockLiveness }} from '{module}'; const all = new FlockLiveness('{tmp_path}');"
    mine = FlockLiveness(str(tmp_path))
    script = f"{asking} all.claim('from-node'); console.log(all.isDead('from-python'));"
    script += "setInterval(() => {}, 1000);"
    python = subprocess.Popen(
        [sys.executable, "-c", HOLDING.format(folder=tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert python.stdout is not None
    assert python.stdout.readline() == "held\n"
    other = subprocess.Popen([node, "--input-type=module", "-e", script], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "false\n"
        assert not mine.is_dead("from-node")
    finally:
        for process in (other, python):
            process.kill()
            process.wait()
            process.stdout.close()
    assert mine.is_dead("from-node")
    script = f"{asking} console.log(all.isDead('from-python'), all.isDead('from-nowhere'));"
    told = subprocess.run(
        [node, "--input-type=module", "-e", script], capture_output=True, text=True, check=True
    )
    assert told.stdout == "true false\n"


def test_python_reads_and_carries_on_what_node_has_done(run: Run, tmp_path: Path) -> None:
    """The chain is sound, the run is explained, its events leave, and the work is not done again."""
    project(tmp_path)
    told = json.loads(run("run", "--json", "--window", "2026-01-01/P1D").stdout)
    run_id = told["results"][0]["run_id"]

    def kfm(*words: str) -> str:
        command = [sys.executable, "-m", "kfm", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert kfm("audit", "verify").startswith("sound")
    assert run_id[:13] in kfm("explain", run_id)
    kfm("lineage", "deliver")
    events = (tmp_path / ".kfm" / "lineage" / "openlineage.jsonl").read_text("utf-8").splitlines()
    kinds = [json.loads(line)["eventType"] for line in events]
    assert kinds.count("START") == kinds.count("COMPLETE") == 5
    assert "unchanged" in kfm("run", "--window", "2026-01-01/P1D")
    assert "all clear" in kfm("status")


def test_a_time_means_the_same_window_in_both_languages(run: Run, tmp_path: Path) -> None:
    """The last complete one at that time, in the zone of the source; what is no time is refused alike."""
    project(tmp_path, window="P1D", time_zone="America/Chicago")

    def kfm(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kfm", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    words = ("run", "--json", "--at", "2026-03-09T05:00:00Z")
    ours, theirs = (json.loads(made(*words).stdout)["results"][0] for made in (run, kfm))
    assert (ours["word"], theirs["word"]) == ("published", "unchanged")
    assert ours["window_start"] == theirs["window_start"] == "2026-03-08T06:00:00.000Z"
    for wrong in (("run", "--at", "noon"), ("run", "--at", "2999-01-01"), ("run", "--missing", "--at", "x")):
        ours, theirs = run(*wrong), kfm(*wrong)
        assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr) == (2, ours.stderr)


@pytest.mark.req("GRO-4")
def test_a_ledger_that_moves_is_refused_by_both(run: Run, tmp_path: Path) -> None:
    """Behind the fence by its triggers, afterwards by its mark, while it is being filled by that: KFM412."""
    project(tmp_path)
    words = ("run", "--window", "2026-01-01/P1D")
    assert run(*words).returncode == 0
    ledger, fenced = str(tmp_path / ".kfm" / "kfm.db"), []

    def act(_: int, name: str) -> None:
        if name.startswith("checking"):
            fenced.append(run("run", "--window", "2026-01-02/P1D"))

    moving.copy(ledger, str(tmp_path / "other.db"), moving.Steps(act))
    for refused in (*fenced, run(*words)):
        assert refused.returncode == 4
        assert "KFM412" in refused.stderr
        assert "other.db" in refused.stderr
    moving.killed_copy(str(tmp_path / "other.db"), str(tmp_path / "third.db"), "copying units")
    document = json.loads((tmp_path / "kfm.yml").read_text())
    (tmp_path / "kfm.yml").write_text(json.dumps({**document, "store": "sqlite:third.db"}))
    filling = run(*words)
    assert filling.returncode == 4
    assert "is being filled" in filling.stderr


@pytest.mark.req("DAT-6")
@pytest.mark.parametrize("level", ["public", "review", "restricted"])
def test_it_shows_a_dataset_where_python_would(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Targets that take it show it, no other does; Python's approval counts, and Python finds no more."""
    document = project(tmp_path)
    document["datasets"][0]["rights"] = {"license": "CC0-1.0", "care": {"label": "L", "level": level}}
    chosen = {
        "open": {},
        "named": {"datasets": ["d1"]},
        "pattern": {"datasets": ["d*"]},
        "vault": {"care": ["restricted"]},
        "other": {"datasets": ["e*"]},
    }
    document["publish"] = [
        {"kind": "local", "name": name, "path": name, **more} for name, more in chosen.items()
    ]
    (tmp_path / "kfm.yml").write_text(json.dumps(document), "utf-8")

    def kfm(who: str, *words: str) -> Any:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("kfm.config.loader.actor", lambda: who)
        with redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit):
            main([*words, "--json"])
        return json.loads(out.getvalue())

    window = ("--source", "s1", "--window", "2026-01-01/P1D")
    if level == "restricted":
        asked = kfm("ann", "approvals", "request", *window, "--rationale", "r")
        kfm("bob", "approvals", "approve", asked["request"]["request_id"], "--rationale", "r")
    done = run("run", *window, "--rationale", "r", "--ticket", "T-1", "--json")
    result = json.loads(done.stdout)["results"][0]
    assert result["word"] == "published", done
    shown = {"restricted": ["named", "vault"]}.get(level, ["named", "open", "pattern"])
    assert sorted(one["target"] for one in result["projections"]) == shown
    assert sorted(name for name in chosen if (tmp_path / name).exists()) == shown
    projected = kfm("ann", "project")["projections"]
    assert sorted(one["target"] for one in projected) == shown
    assert sorted(name for name in chosen if (tmp_path / name).exists()) == shown


NOISY = """import { spawnSync } from "node:child_process";
import { writeSync } from "node:fs";
console.log("NOISE at import");
export async function copy({ inputs, publisher }) {
  console.log("NOISE");
  process.stdout.write("NOISE of the stream\\n");
  writeSync(1, "NOISE of a descriptor\\n");
  spawnSync("echo", ["NOISE of a child"], { stdio: "inherit" });
  for (const input of inputs) await publisher.writeFile(input.path, input.read());
}
"""


@pytest.mark.req("CLI-1")
def test_standard_output_is_for_results(run: Run, tmp_path: Path) -> None:
    """What a pipeline's function, or a program that it starts, prints goes to standard error."""
    project(tmp_path, pipeline="noisy.mjs:copy")
    (tmp_path / "noisy.mjs").write_text(NOISY)
    done = run("run", "--json", "--window", "2026-01-01/P1D")
    assert json.loads(done.stdout)["results"][0]["word"] == "published"
    assert done.stderr.count("NOISE") == 5


def test_sigterm_ends_a_run_as_cancelled(node: str, tmp_path: Path) -> None:
    """SIGTERM ends a run as cancelled, with exit 130, and nothing is published."""
    project(tmp_path)
    with (tmp_path / "in" / "large.bin").open("wb") as file:
        file.truncate(400 * 1024 * 1024)
    command = [node, str(TWIN / "runner.mjs"), "run", "-v", "--window", "2026-01-01/P1D"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("fetch: 2 objects"):
            break
    process.terminate()
    out, _err = process.communicate()
    assert process.returncode == 130, out
    assert out.startswith("failed")
    assert not (tmp_path / "pub").exists()


def test_it_starts_quickly(node: str) -> None:
    """`--version` takes less than twice as long as Node.js itself."""

    def best(*words: str) -> float:
        took = []
        for _ in range(9):
            begun = time.perf_counter()
            subprocess.run([node, *words], capture_output=True, check=True)
            took.append(time.perf_counter() - begun)
        return min(took)

    assert best(str(TWIN / "runner.mjs"), "--version") < 2 * best("-e", "0")


def test_a_mixed_fleet_survives_being_killed(node: str) -> None:
    """Python and Node.js on one ledger, killed at random: one run a key, one promotion a run, equal trees."""
    assert node
    figures = campaign(KILLS, each=1, count=6)
    # So few may all fall between two attempts; of the 200 of `make fleet` about half interrupt an attempt.
    assert sum(figures["killed"].values()) >= KILLS
    assert figures["runs"] == 6
