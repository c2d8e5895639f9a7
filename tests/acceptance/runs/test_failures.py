"""`kfm run` when something is in the way: another run, a target, a pipeline, an upstream with a secret."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.runs.conftest import Inside, http_source
from tests.crash.project import finish, table
from tests.crash.scenarios import RUN
from tests.crash.upstream import Upstream

SECRETS = ("S3cr3t-Header-0815", "S3cr3t-Param-4711", "S3cr3t-Pass-1337")
TWO_TARGETS = """\
publish:
  - {kind: local, name: broken, path: blocked}
  - {kind: local, name: good, path: published}
"""


@pytest.mark.req("UPD-5", "UPD-8", "CLI-1")
def test_the_second_of_two_is_busy(project: Inside, upstream: Upstream) -> None:
    """While a run is in flight the same command ends at once, and names who holds the lock."""
    project.configure(source=http_source(upstream))
    upstream.hold.clear()
    first = project.start(*RUN)
    try:
        assert upstream.began.wait(20)
        second = project.run()
    finally:
        upstream.hold.set()
    assert second.code == 5, second
    assert second.result["error"]["code"] == "KFM501"
    ended = finish(first)
    assert ended.code == 0, ended
    assert ended.result["run_id"] in second.result["reason"]
    assert project.rows("SELECT count(*) FROM runs") == [(1,)]
    assert project.rows("SELECT outcome FROM invocations ORDER BY requested_at_ms") == [
        ("success",),
        ("busy",),
    ]


@pytest.mark.req("UPD-8")
def test_two_at_the_same_instant(project: Inside) -> None:
    """Of two commands started together one does the work; the other is busy or finds it done."""
    both = [project.start(*RUN) for _ in range(2)]
    ended = [finish(one) for one in both]
    words = sorted(one.result["word"] for one in ended)
    assert words in (["busy", "published"], ["published", "unchanged"]), ended
    assert project.rows("SELECT status, attempts FROM runs") == [("success", 1)]
    assert project.rows("SELECT count(*) FROM promotions") == [(1,)]


@pytest.mark.req("UPD-8")
def test_a_shared_domain_lock(project: Inside, upstream: Upstream) -> None:
    """Datasets that share their domain's lock wait for each other; others do not."""
    text = f"""\
version: 1
datasets:
  - {{id: one, domain: rivers, lock: domain, rights: {{license: CC0-1.0, care: {{label: Public}}}}}}
  - {{id: two, domain: rivers, lock: domain, rights: {{license: CC0-1.0, care: {{label: Public}}}}}}
  - {{id: three, domain: rivers, rights: {{license: CC0-1.0, care: {{label: Public}}}}}}
sources:
  - {{id: slow, dataset: one, kind: http, url: "{upstream.url}/levels.csv"}}
  - {{id: fast, dataset: two, kind: files, folder: incoming}}
  - {{id: free, dataset: three, kind: files, folder: incoming}}
publish: [{{kind: local, path: published}}]
"""
    project.write("kfm.yml", text)
    upstream.hold.clear()
    first = project.start(*RUN, "--source", "slow")
    try:
        assert upstream.began.wait(20)
        waits, free = project.run("--source", "fast"), project.run("--source", "free")
    finally:
        upstream.hold.set()
    assert (waits.code, free.code) == (5, 0), (waits, free)
    assert finish(first).code == 0
    assert project.run("--source", "fast").code == 0


@pytest.mark.req("TRG-4", "UPD-6", "CLI-1")
def test_a_target_that_cannot_be_written(project: Inside) -> None:
    """The promotion stands, the other target is served, the exit code is 4, and `kfm project` repairs it."""
    text = (project.folder / "kfm.yml").read_text()
    project.write("kfm.yml", text[: text.index("publish:")] + TWO_TARGETS)
    project.write("blocked", "a file where a folder should be")
    ended = project.run()
    assert ended.code == 4, ended
    assert ended.result["word"] == "published"
    assert [bool(target["error"]) for target in ended.result["projections"]] == [True, False]
    assert "KFM406" in ended.err
    assert project.rows("SELECT count(*) FROM promotions") == [(1,)]
    shown = project.current()
    assert shown
    still = project.kfm("project", "--json")
    assert still.code == 4, still
    (project.folder / "blocked").unlink()
    repaired = project.kfm("project", "--json")
    assert repaired.code == 0, repaired
    project.published = project.folder / "blocked"
    assert project.current() == shown


@pytest.mark.req("TRG-4")
def test_the_next_run_repairs_a_target_too(project: Inside) -> None:
    """A run that finds its work done still brings the targets up to date."""
    project.write("published", "a file where a folder should be")
    assert project.run().code == 4
    (project.folder / "published").unlink()
    again = project.run()
    assert (again.code, again.result["word"]) == (0, "unchanged"), again
    assert project.current()


@pytest.mark.req("UPD-11", "CLI-1")
def test_a_pipeline_that_raises(project: Inside) -> None:
    """The error is named, in the report and in the event log; nothing is published, the lock is free."""
    project.write("pipeline.py", "def publish(context):\n    return 1 / len(context.inputs[:0])\n")
    project.configure(extra='pipeline: "pipeline.py:publish"')
    ended = project.run()
    assert ended.code == 1, ended
    assert (ended.result["word"], ended.result["error"]["code"]) == ("failed", "KFM607")
    assert "ZeroDivisionError" in ended.result["reason"]
    assert not project.published.exists()
    assert project.rows("SELECT * FROM locks WHERE worker_id IS NOT NULL") == []
    (log,) = project.state.glob("runs/*/attempt-*/event_log.jsonl")
    messages = "\n".join(json.loads(line)["message"] for line in log.read_text().splitlines())
    assert "ZeroDivisionError" in messages


@pytest.mark.req("UPD-11")
def test_the_traceback_of_a_pipeline_is_in_the_event_log(project: Inside) -> None:
    """The event log of a failed pipeline says where it failed."""
    project.write("pipeline.py", "def publish(context):\n    return 1 / len(context.inputs[:0])\n")
    project.configure(extra='pipeline: "pipeline.py:publish"')
    project.run()
    (log,) = project.state.glob("runs/*/attempt-*/event_log.jsonl")
    messages = "\n".join(json.loads(line)["message"] for line in log.read_text().splitlines())
    assert "Traceback" in messages
    assert 'pipeline.py", line 2' in messages


@pytest.mark.req("UPD-6", "UPD-9")
@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ("context.publisher.write_file('../outside.csv', b'x')", {1, 2}),
        ("context.publisher.write_file('a.csv', b'x'); context.publisher.write_file('a.csv', b'y')", {1}),
        ("raise KeyboardInterrupt", {130}),
        ("raise SystemExit(0)", {1}),
    ],
)
def test_a_pipeline_that_misbehaves(project: Inside, body: str, codes: set[int]) -> None:
    """Whatever a pipeline does, the run ends with a code, its lock is free and nothing is published."""
    project.write("pipeline.py", f"def publish(context):\n    {body}\n")
    project.configure(extra='pipeline: "pipeline.py:publish"')
    ended = project.run()
    assert ended.code in codes, ended
    assert not project.published.exists()
    assert project.rows("SELECT status FROM runs") == [("failed",)]
    assert project.rows("SELECT * FROM locks WHERE worker_id IS NOT NULL") == []


@pytest.mark.req("CLI-1")
def test_a_cancelled_run(project: Inside, upstream: Upstream) -> None:
    """SIGTERM ends a run with 130; nothing is published, the lock is free, the next run finishes it."""
    project.configure(source=http_source(upstream))
    upstream.hold.clear()
    running = project.start(*RUN)
    try:
        assert upstream.began.wait(20)
        running.send_signal(signal.SIGTERM)
        ended = finish(running, timeout=20)
    finally:
        upstream.hold.set()
    assert ended.code == 130, ended
    assert project.rows("SELECT status, error_code FROM runs") == [("failed", "CANCELLED")]
    assert not project.published.exists()
    assert project.run().result["word"] == "published"


@pytest.mark.req("UPD-5")
def test_a_failed_upstream_is_retried(project: Inside, upstream: Upstream) -> None:
    """An upstream that refuses is exit 4; the same command later is the same run's next attempt."""
    project.configure(source=http_source(upstream))
    body = upstream.bodies.pop("/levels.csv")
    failed = project.run()
    assert (failed.code, failed.result["error"]["code"]) == (4, "KFM404"), failed
    upstream.bodies["/levels.csv"] = body
    assert project.run().result["word"] == "published"
    assert project.rows("SELECT status, attempts, revision FROM runs") == [("success", 2, 0)]


@pytest.mark.req("CLI-2", "CLI-1", "TRG-9")
@pytest.mark.parametrize("works", [True, False])
def test_secrets_are_nowhere(project: Inside, upstream: Upstream, works: bool) -> None:
    """Secrets reach upstream and nothing else: no stream, no artifact, no row, no published file."""
    header, param, password = SECRETS
    project.env |= {"LEVELS_TOKEN": f"Bearer {header}", "LEVELS_KEY": param}
    project.write("secret.txt", password + "\n")
    headers = 'headers: {authorization: "env:LEVELS_TOKEN", x-pass: "file:secret.txt"}'
    more = headers + ', params: {api_key: "env:LEVELS_KEY"}'
    project.configure(source=http_source(upstream, more))
    if not works:
        del upstream.bodies["/levels.csv"]
    said = []
    for command in (
        ("run", "--verbose"),
        ("run", "--json"),
        ("diff",),
        ("status",),
        ("config", "show", "--origin"),
    ):
        ended = project.kfm(*command)
        said.append(ended.out + ended.err)
    assert f"Bearer {header}" in [headers.get("authorization") for headers in upstream.headers]
    assert password in [headers.get("x-pass") for headers in upstream.headers]
    assert any(param in path for _, path in upstream.asked)
    assert bool(project.current()) == works
    for secret in SECRETS:
        assert not [text for text in said if secret in text]
        assert files_with(project.folder, secret) == ["secret.txt"] * (secret == password)


def files_with(folder: Path, secret: str) -> list[str]:
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if secret.encode() in path.read_bytes():
                found.append(str(path.relative_to(folder)))
    return found


@pytest.mark.req("UPD-9", "UPD-11")
def test_restricted_values_are_not_told(project: Inside) -> None:
    """A broken contract on data that is not public names the check, not the values."""
    project.configure(rights='{license: CC0-1.0, care: {label: "By review", level: review}}')
    project.write("incoming/b.csv", "station,level_m\nburial-site-9,1000\n")
    ended = project.run("--rationale", "asked for", "--ticket", "OPS-1", "--verbose")
    assert ended.code == 3, ended
    assert "burial-site-9" not in ended.out + ended.err
    assert "1000" not in json.dumps([gate["reason"] for gate in ended.result["gates"]])


@pytest.mark.req("UPD-5")
def test_one_source_of_several_fails(project: Inside) -> None:
    """The others run all the same; the exit code is that of the worst."""
    good = '{id: good, dataset: levels, kind: files, folder: incoming, pattern: "*.csv"}'
    project.configure(source=f"{{id: bad, dataset: levels, kind: files, folder: nowhere}}\n  - {good}")
    ended = project.run()
    assert ended.code == 4, ended
    assert [one["word"] for one in ended.document["results"]] == ["failed", "published"]
    project.write("incoming/c.csv", table("c", 2))
    assert [one["word"] for one in project.run().document["results"]] == ["failed", "published"]


@pytest.mark.req("UPD-11", "CLI-1")
def test_a_folder_of_artifacts_is_used_again(project: Inside) -> None:
    """A second run with the same --artifacts works or says why not; it never leaves its lock behind."""
    assert project.run("--artifacts", "out").code == 0
    project.write("incoming/c.csv", table("c", 2))
    again = project.run("--artifacts", "out")
    assert again.code in (0, 2), again
    assert project.rows("SELECT * FROM locks WHERE worker_id IS NOT NULL") == []
    assert project.rows("SELECT * FROM runs WHERE status = 'running'") == []


@pytest.mark.req("UPD-7", "CLI-1")
def test_a_folder_of_artifacts_is_used_again_by_a_dry_run(project: Inside) -> None:
    """A second dry-run with the same --artifacts works or says why not."""
    for _ in range(2):
        assert project.run("--dry-run", "--artifacts", "out").code in (0, 2)


@pytest.mark.req("UPD-5", "UPD-8")
@pytest.mark.parametrize("problem", [KeyboardInterrupt, OSError])
def test_trouble_right_after_admission(
    project: Inside, monkeypatch: pytest.MonkeyPatch, problem: type[BaseException]
) -> None:
    """A run that can't even begin is ended: its lock is free, and the next command need not wait."""
    from kfm.runs import executor

    real = executor.RunLog

    def broken(files: Any, folder: str | None, *rest: Any, **more: Any) -> Any:
        if folder is not None:
            raise problem
        return real(files, folder, *rest, **more)

    text = (project.folder / "kfm.yml").read_text()
    project.write("kfm.yml", text.replace("lease: {seconds: 1}", "lease: {seconds: 60}"))
    with monkeypatch.context() as patched:
        patched.setattr(executor, "RunLog", broken)
        assert project.run().code in (4, 130)
    assert project.rows("SELECT * FROM locks WHERE worker_id IS NOT NULL") == []
    assert project.run().result["word"] == "published"
