"""Pods of deploy/kubernetes, what is around them, and what is tried with them."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import math
import re
import secrets
import signal
import subprocess
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kfm.model.times import rfc3339
from kfm.model.webhook_signatures import sign_kfm
from tests import services
from tests.container.containerfile import Image
from tests.container.network import Host, Network
from tests.container.pods import Files, Pod, manifests
from tests.container.stores import DATASET, Stores, stores

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "run-on-kubernetes.md"
NAME = "data.example.org"  # in `serve.hosts`
PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.1
SCRAPE_SECONDS = 1
UNITS = 400
MEBIBYTE = 1 << 20


@dataclass
class Told:
    """What was seen."""

    facts: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def expect(self, what: str, is_so: object, seen: object = None) -> None:
        """`what` is a promise; `seen`, if given, what is shown for it."""
        self.facts[what] = bool(is_so) if seen is None else seen
        if not is_so:
            self.problems.append(f"{what}: not so ({seen})")


def until(what: str, condition: Callable[[], Any], every: float = POLL_SECONDS) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"never: {what}")
        time.sleep(every)
    return found


def asked(
    client: Host,
    address: str,
    port: int,
    path: str,
    *,
    timeout: float = 5,
    body: bytes | None = None,
    **headers: str,
) -> tuple[int, str]:
    """One request from a host; without a name of its own under the address, as a kubelet asks. 0: no
    answer."""
    with client.entered():
        link = http.client.HTTPConnection(address, port, timeout=timeout)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            link.request("GET" if body is None else "POST", path, body, named)
            answer = link.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            link.close()


class Cluster:
    """Pods, and what is around them."""

    def __init__(self, image: Image, network: Network, kept: Stores, scratch: Path) -> None:
        self.documents = manifests(ROOT / "deploy" / "kubernetes")
        self.network, self.stores = network, kept
        self.webhook_secret = secrets.token_hex(32)
        self.tokens = {name: f"kfm_{name}_{secrets.token_hex(16)}" for name in ("ann", "prometheus")}
        hashes = {
            name: f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"
            for name, token in self.tokens.items()
        }
        texts = dict(self.documents["ConfigMap/kfm"]["data"])
        texts["kfm.yml"] = kept.config(texts["kfm.yml"], hashes)
        self._files = Files({"kfm": texts}, {"kfm": kept.secrets(self.webhook_secret)})
        self._image, self._scratch = image, scratch
        self._pods: list[Pod] = []

    def pod(self, deployment: str, name: str, number: int) -> Pod:
        host = self.network.host(name, number)
        pod = Pod(self.documents[f"Deployment/{deployment}"], self._image, host, self._files, self._scratch)
        self._pods.append(pod)
        pod.start()
        return pod

    def probed(self, pod: Pod, kind: str) -> int:
        """The status that a kubelet sees."""
        path, port, probe = pod.probe(kind)
        status, _ = asked(
            self.network.machine, pod.host.address, port, path, timeout=probe.get("timeoutSeconds", 1)
        )
        return status

    def started(self, pod: Pod) -> int:
        """How many probes its start took; TimeoutError where a kubelet would start it again."""
        _, _, probe = pod.probe("startupProbe")
        for tries in range(1, probe["failureThreshold"] + 1):
            if self.probed(pod, "startupProbe") == 200:
                return tries
            if pod.process is not None and pod.process.poll() is not None:
                break
            time.sleep(probe["periodSeconds"])
        raise TimeoutError(f"it did not start: {pod.log[-3000:]}")

    def api(self, pod: Pod, path: str) -> Any:
        token = f"Bearer {self.tokens['ann']}"
        _, text = asked(self.stores.host, pod.host.address, 8377, path, Host=NAME, Authorization=token)
        return json.loads(text)

    def hook(self, pod: Pod, window: str) -> str:
        """Ask for a window by a webhook; returns the request's id."""
        document = {
            "source_id": "usgs-daily",
            "trigger": "webhook",
            "event_type": "test",
            "sent_at": rfc3339(int(time.time() * 1000)),
            "metadata": {"window": window},
        }
        body = json.dumps(document).encode()
        signed = sign_kfm(self.webhook_secret.encode(), body)
        status, text = asked(
            self.stores.host, pod.host.address, 8377, "/hooks/usgs-daily", body=body, Host=NAME,
            X_KFM_Signature=signed, Content_Type="application/json",
        )  # fmt: skip
        if status != 202:
            raise AssertionError(f"a webhook was answered with {status}: {text}")
        return str(json.loads(text)["request_id"])

    def settled(self, pod: Pod, request: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            found: dict[str, Any] = self.api(pod, f"/api/v1/requests/{request}")["request"]
            return found if found["state"] in ("done", "cancelled") else None

        settled: dict[str, Any] = until(f"the request {request} ends", ended)
        return settled

    def close(self) -> None:
        for pod in self._pods:
            pod.close()


# --- what is tried -------------------------------------------------------------------------


def confinement(pod: Pod, told: Told) -> None:
    status = pod.status()
    told.expect(
        "runs as 10001", status["Uid"].split() == ["10001"] * 4 and status["Gid"].split()[0] == "10001"
    )
    told.expect(
        "has no capabilities", {int(status[f"Cap{kind}"], 16) for kind in ("Prm", "Eff", "Bnd")} == {0}
    )
    told.expect("gets no new privileges", status["NoNewPrivs"] == "1")
    for place in ("/", "/opt/kfm", "/etc/kfm", "/run/secrets/kfm", "/srv/kfm"):
        written = pod.kubectl_exec("touch", f"{place}/tried")
        told.expect(f"{place} is read-only", written.returncode != 0)
    doctor = pod.kubectl_exec("kfm", "doctor", "--json")
    checks = json.loads(doctor.stdout)["checks"]
    wrong = [f"{one['name']}: {one['message']}" for one in checks if one["state"] != "ok"]
    told.expect("kfm doctor ends with 0 in it", doctor.returncode == 0, doctor.returncode)
    told.facts["what doctor warns of"] = wrong
    told.expect("doctor takes its secrets for safe", not [one for one in wrong if one.startswith("secrets")])


def web(cluster: Cluster, pod: Pod, told: Told) -> None:
    machine, address = cluster.network.machine, pod.host.address
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        seen = cluster.probed(pod, kind)
        told.expect(f"{kind}, asked by address", seen == 200, seen)
    reader = f"Bearer {cluster.tokens['prometheus']}"
    seen = [
        asked(machine, address, 8377, "/metrics")[0],
        asked(machine, address, 8377, "/metrics", Authorization=reader)[0],
        asked(machine, address, 8377, "/api/v1/runs", Authorization=reader)[0],
        asked(machine, address, 8377, "/api/v1/runs", Authorization=reader, Host=NAME)[0],
    ]
    told.expect("/metrics, with a token, the API by address and by name", seen == [401, 200, 421, 200], seen)


def sized(pod: Pod, name: str, told: Told) -> None:
    usage = pod.usage()
    told.memory[name] = (
        f"{usage.rss_bytes // MEBIBYTE} MiB now, {usage.peak_bytes // MEBIBYTE} at its peak, "
        f"{usage.cpu_seconds:.1f} s of a core; kept {pod.written_bytes()}"
    )


class Prometheus:
    """A real one, on a host of its own, that scrapes pods as the page says."""

    def __init__(self, host: Host, cluster: Cluster, scraped: list[Pod], scratch: Path) -> None:
        self._host = host
        (scratch / "token").write_text(cluster.tokens["prometheus"])
        job = {
            "job_name": "kfm",
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "authorization": {"credentials_file": str(scratch / "token")},
            # What discovery and relabelling would make of two pods.
            "static_configs": [
                {
                    "targets": [f"{pod.host.address}:8377"],
                    "labels": {"namespace": "kfm", "pod": pod.host.namespace},
                }
                for pod in scraped
            ],
        }
        (scratch / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}))
        command = [
            "prometheus", f"--config.file={scratch}/prometheus.yml", f"--storage.tsdb.path={scratch}/tsdb",
            f"--web.listen-address={host.address}:9090", "--log.level=error",
        ]  # fmt: skip
        with host.entered():
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=services.die_with_parent
            )

    def value(self, query: str) -> float | None:
        path = "/api/v1/query?" + urllib.parse.urlencode({"query": query})
        status, text = asked(self._host, self._host.address, 9090, path)
        found = json.loads(text)["data"]["result"] if status == 200 else []
        return float(found[0]["value"][1]) if found else None

    def close(self) -> None:
        services.stop(self._process, signal.SIGTERM)


def scaler_query() -> str:
    """The page's rule, as the adapter fills it in."""
    page = PAGE.read_text()
    (series,) = re.findall(r"seriesQuery: '(\w+)\{", page)
    (query,) = re.findall(r"metricsQuery: '(.+)'", page)
    return str(query).replace("<<.Series>>", series).replace("<<.LabelMatchers>>", 'namespace="kfm"')


def work(cluster: Cluster, pods: list[Pod], prometheus: Prometheus, told: Told) -> None:
    """Units wait, the scaler's metric says how many; a busy worker is stopped, and another ends the rest."""
    query, kept = scaler_query(), cluster.stores
    paused = pods[0].kubectl_exec(
        "kfm",
        "switch",
        "set",
        "paused",
        "--dataset",
        DATASET,
        "--rationale",
        "to let them wait",
        "--no-input",
    )
    told.expect("a switch is set in the pod", paused.returncode == 0, paused.stderr or "set")
    kept.announce(UNITS)
    worker = cluster.pod("kfm-workers", "worker-1", 21)
    until("all units wait", lambda: prometheus.value(query) == UNITS, SCRAPE_SECONDS)
    added = query.replace("max(", "sum(")
    until("a sum over pods says twice as many", lambda: prometheus.value(added) == 2 * UNITS, SCRAPE_SECONDS)
    told.expect("the scaler's query says how many wait, where a sum over pods says twice as many", True)
    scaler = cluster.documents["HorizontalPodAutoscaler/kfm-workers"]["spec"]
    average = int(scaler["metrics"][0]["external"]["target"]["averageValue"])
    told.facts["workers that it asks for"] = {
        waiting: min(scaler["maxReplicas"], max(scaler["minReplicas"], math.ceil(waiting / average)))
        for waiting in (UNITS, 12_000, 1_000_000)
    }
    sized(worker, "worker, nothing to do", told)
    resumed = pods[0].kubectl_exec(
        "kfm", "switch", "set", "running", "--dataset", DATASET, "--rationale", "enough", "--no-input"
    )
    told.expect("the switch is lifted", resumed.returncode == 0)
    ended = "SELECT count(*) FROM units WHERE status = 'succeeded'"
    until("some have ended", lambda: kept.rows(ended)[0][0] > 0)
    sized(worker, "worker, reading objects", told)
    worker.terminate()
    code, took = worker.ended()
    told.expect("a busy worker ends within its grace period", code == 0, f"{code} after {took:.1f} s")
    ((done, held),) = kept.rows(
        "SELECT count(*) FILTER (WHERE status = 'succeeded'), "
        "count(*) FILTER (WHERE status = 'in_progress') FROM units"
    )
    told.expect("it holds nothing when it is gone, and was in the middle", held == 0 and done < UNITS, done)
    other = cluster.pod("kfm-workers", "worker-2", 22)
    until("the scaler's metric falls to none", lambda: prometheus.value(query) == 0, SCRAPE_SECONDS)
    sized(other, "worker, after the rest", told)
    told.expect("each object was ended once", kept.rows(ended)[0][0] == UNITS)
    retried = kept.rows("SELECT count(*) FROM units WHERE last_error_code IS NOT NULL")[0][0]
    told.expect("none has failed", retried == 0, retried)
    other.terminate()
    code, took = other.ended()
    told.expect("an idle worker ends", code == 0, f"{code} after {took:.1f} s")


def drain(cluster: Cluster, pods: list[Pod], told: Told) -> None:
    """SIGTERM during a run: not ready, alive, and what is under way comes to its end."""
    first, second = pods
    upstream = cluster.stores.upstream
    request = cluster.hook(first, "2026-01-30/P1D")
    until("the run reads", upstream.asked.is_set)
    runner = max(pods, key=lambda pod: "2026-01-30" in pod.log)
    other = second if runner is first else first
    sized(runner, "service, a run under way", told)
    began = time.monotonic()
    runner.terminate()
    until("it says that it is not ready", lambda: cluster.probed(runner, "readinessProbe") != 200)
    _, _, probe = runner.probe("readinessProbe")
    statuses = []
    for _ in range(probe["failureThreshold"]):
        statuses.append(cluster.probed(runner, "readinessProbe"))
        statuses.append(cluster.probed(runner, "livenessProbe"))
        time.sleep(probe["periodSeconds"])
    told.expect("readiness and liveness after SIGTERM", set(statuses) == {503, 200}, statuses)
    late = cluster.hook(runner, "2026-01-29/P1D")
    upstream.let_go.set()
    code, _ = runner.ended()
    took = time.monotonic() - began
    told.expect("it ends within its grace period", code == 0, f"{code} after {took:.1f} s")
    ran = cluster.settled(other, request)
    told.expect("the run under way came to its end", ran["outcome"] == "success", ran["outcome"])
    ran = cluster.settled(other, late)
    told.expect("another service runs what came meanwhile", ran["outcome"] == "success", ran["outcome"])
    attempts = cluster.stores.rows("SELECT max(attempts) FROM runs")[0][0]
    told.expect("nothing was tried twice", attempts == 1, attempts)
    told.expect("it is published", any("current" in key for key in cluster.stores.published()))
    for pod in pods:
        told.expect(f"{pod.host.namespace[-1]} logs no traceback", "Traceback" not in pod.log)


def run(image: Image, scratch: Path, told: Told, *, is_short: bool = False) -> None:
    """`is_short`: without workers, the scaler's query and Prometheus."""
    with contextlib.ExitStack() as stack:
        network = Network()
        stack.callback(network.close)
        kept = stack.enter_context(stores(network.host("stores", 2), scratch))
        cluster = Cluster(image, network, kept, scratch)
        stack.callback(cluster.close)
        pods = [cluster.pod("kfm-service", f"service-{number}", 10 + number) for number in (1, 2)]
        told.facts["probes that a start takes"] = [cluster.started(pod) for pod in pods]
        for pod in pods:
            until("it is ready", lambda pod=pod: cluster.probed(pod, "readinessProbe") == 200)
        confinement(pods[0], told)
        web(cluster, pods[0], told)
        sized(pods[0], "service, nothing to do", told)
        if is_short:
            drain(cluster, pods, told)
            return
        prometheus = Prometheus(network.host("monitoring", 3), cluster, pods, scratch)
        stack.callback(prometheus.close)
        work(cluster, pods, prometheus, told)
        drain(cluster, pods, told)
