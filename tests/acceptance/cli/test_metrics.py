"""`kfm metrics` on the real kernel, read by Prometheus' own client."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kfm.telemetry.metric_catalogue import metrics
from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
SECONDS_MAX = 30


@pytest.fixture
def begun(kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as `kfm init` makes it."""
    for name in ("KFM_TOKEN", "KFM_LOG_FORMAT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    folder = project / "new"
    assert kfm("init", str(folder)).code == 0
    monkeypatch.chdir(folder)
    return folder


def values(text: str) -> dict[str, float]:
    """Name of a sample → the sum over its series."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


@pytest.mark.req("UPD-15", "RS-11")
def test_counts_survive_processes(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """Each run is a process of its own, and the next one goes on counting where it ended."""
    assert values(kfm("metrics").out)["kfm_build_info"] == 1
    assert kfm("run").code == 0
    assert kfm("run").code == 0
    found = values(kfm("metrics").out)
    assert found["kfm_updater_runs_total"] == 1
    assert found["kfm_updater_invocations_total"] == 2
    assert found["kfm_pattern_node_writes_total"] >= 3
    assert found["kfm_dataset_head_sequence"] == 1
    assert found["kfm_audit_chain_broken"] == 0
    document = kfm("metrics", "--json").document
    valid("metrics", document)
    assert [row["name"] for row in document["metrics"]] == [
        metric.name for metric in metrics().values() if "ledger" in metric.origins
    ]


def test_metrics_leave_no_trace(kfm: Kfm, begun: Path) -> None:
    """Looking at the metrics of a project in which nothing ran makes nothing."""
    before = sorted(begun.rglob("*"))
    assert kfm("metrics").code == 0
    assert sorted(begun.rglob("*")) == before


@pytest.mark.req("RS-13")
def test_a_restricted_dataset_is_masked(kfm: Kfm, begun: Path) -> None:
    """A dataset whose people have not agreed is counted under its mask."""
    assert kfm("run").code == 0
    text = (begun / "kfm.yml").read_text()
    assert "example-readings" in kfm("metrics").out
    assert "level: public" in text
    (begun / "kfm.yml").write_text(text.replace("level: public", "level: restricted"))
    called = kfm("metrics")
    assert called.code == 0
    assert 'dataset="masked' in called.out
    assert "example-readings" not in called.out


def test_catalogue_lists_every_name(kfm: Kfm, project: Path, valid: Valid) -> None:
    """Every metric is listed with its meaning, for people and for programs."""
    document = kfm("metrics", "catalogue", "--json").document
    valid("metrics-catalogue", document)
    assert {row["name"] for row in document["metrics"]} == set(metrics())
    assert "nodd_sns_wal_records_total" in kfm("metrics", "catalogue").out


def test_shipped_files_are_printed(kfm: Kfm, project: Path) -> None:
    """The dashboard and the rules are printed as they are shipped, ready to be piped."""
    assert json.loads(kfm("metrics", "dashboard").out)["title"].startswith("kfm")
    rules = kfm("metrics", "rules").out
    assert rules.startswith("# Alert rules")
    assert "KfmMetricsAbsent" in rules


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("0.0.0.0:9464", "no token is set"),
        ("[::]:9464", "no token is set"),
        ("192.0.2.1:9464", "no token is set"),
        ("example.org:9464", "is no address"),
        ("127.0.0.1:http", "is no address"),
        ("127.0.0.1:65536", "is no address"),
    ],
)
def test_addresses_that_are_refused(kfm: Kfm, begun: Path, address: str, said: str) -> None:
    """Only this machine may read without a token; an address that is none is told at once."""
    called = kfm("metrics", "--listen", address)
    assert called.code == 2
    assert said in called.err


@contextmanager
def served(folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server on a free port, and the port."""
    server = subprocess.Popen(
        [sys.executable, "-m", "kfm", "metrics", "--listen", "127.0.0.1:0", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        ready, _, _ = select.select([server.stderr], [], [], SECONDS_MAX)
        line = server.stderr.readline() if ready else ""
        assert "serving http://127.0.0.1:" in line, line
        yield server, int(line.partition("127.0.0.1:")[2].partition("/")[0])
    finally:
        server.kill()
        server.communicate()


def get(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, answer.headers


@pytest.mark.req("UPD-15")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_server_answers_and_stops(kfm: Kfm, begun: Path, sign: signal.Signals) -> None:
    """Each scrape tells what has happened by then; asked to stop, it stops without a fuss."""
    with served(begun) as (server, port):
        status, text, headers = get(port)
        assert status == 200
        assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "kfm_updater_runs_total" not in values(text)
        assert kfm("run").code == 0
        assert values(get(port)[1])["kfm_updater_runs_total"] == 1
        assert get(port)[1] == get(port)[1]
        assert get(port, method="HEAD")[:2] == (200, "")
        assert get(port, "/livez")[0] == 200
        assert get(port, "/")[0] == 404
        assert get(port, method="POST")[0] == 405
        server.send_signal(sign)
        assert server.wait(SECONDS_MAX) == 0


def test_a_client_that_says_nothing_does_not_stop_it(begun: Path) -> None:
    """A connection that hangs up half-way costs the next one nothing."""
    import socket

    with served(begun) as (_, port):
        with socket.create_connection(("127.0.0.1", port)) as rude:
            rude.sendall(b"GET /metr")
        assert get(port)[0] == 200


def test_token_is_asked_for(begun: Path) -> None:
    """With a token only those who show it are answered."""
    with served(begun, KFM_TOKEN="sesame") as (_, port):
        assert get(port)[0] == 401
        assert get(port, authorization="Bearer wrong")[0] == 401
        assert get(port, authorization="Basic sesame")[0] == 401
        assert get(port, authorization="Bearer sesame")[0] == 200


@pytest.mark.req("GOV-3")
def test_where_people_are_declared_one_who_may_read_is_asked_for(begun: Path) -> None:
    """The token of a person, on this machine as well; then under any name."""
    token = "kfm-cy-0123456789abcdef0123456789abcdef"
    hashed = sha256(token.encode()).hexdigest()
    with (begun / "kfm.yml").open("a") as file:
        file.write(f'people:\n  - {{subject: cy, roles: [read], tokens: ["sha256:{hashed}"]}}\n')
    with served(begun) as (_, port):
        assert get(port)[0] == 401
        assert get(port, authorization="Bearer sesame")[0] == 401
        assert get(port, authorization=f"Bearer {token}")[0] == 200
        assert get(port, authorization=f"Bearer {token}", host="10.0.0.7")[0] == 200
        assert get(port, host="rebound.example")[0] == 401
        assert get(port, "/livez")[0] == 200


def test_only_names_of_this_machine_are_answered_to(begun: Path) -> None:
    """Without a token a page of another origin could rebind its name to this machine."""
    with served(begun) as (_, port):
        assert get(port, host="rebound.example")[0] == 421
        assert get(port, "/livez", host="rebound.example")[0] == 200
        assert get(port, host=f"localhost:{port}")[0] == 200
    with served(begun, KFM_TOKEN="sesame") as (_, port):
        assert get(port, host="proxied.example", authorization="Bearer sesame")[0] == 200


def test_a_ledger_that_can_not_be_read_is_told(kfm: Kfm, begun: Path) -> None:
    """A scrape that fails says so with a code, and the next one works again."""
    assert kfm("run").code == 0
    with served(begun) as (_, port):
        good = (begun / "kfm.yml").read_text()
        (begun / "kfm.yml").write_text("version: 2\n")
        status, body, _ = get(port)
        assert (status, json.loads(body)["code"]) == (503, "KFM201")
        (begun / "kfm.yml").write_text(good)
        assert values(get(port)[1])["kfm_updater_runs_total"] == 1


def test_a_name_that_becomes_restricted_while_serving_is_masked(kfm: Kfm, begun: Path) -> None:
    """Once a dataset is restricted, what was counted before is not told under its name, either."""
    assert kfm("run").code == 0
    with served(begun) as (_, port):
        assert "example-readings" in get(port)[1]
        text = (begun / "kfm.yml").read_text()
        (begun / "kfm.yml").write_text(text.replace("level: public", "level: restricted"))
        assert "example-readings" not in get(port)[1]


def test_port_in_use_is_told(kfm: Kfm, begun: Path) -> None:
    """An address that another process has is an error with the way out."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        called = kfm("metrics", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert called.code == 4
    assert "can't be listened on" in called.err
