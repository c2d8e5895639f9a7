"""The manifests for Kubernetes: each is one that its API takes, may do little, and is true of kfm."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
from ruamel.yaml import YAML
from starlette.routing import Route

import kfm
from kfm.cli.command_line import kfm as command_line
from kfm.cli.serve import CLOSING_SECONDS_MAX
from kfm.config.loader import OTHER_VARIABLES, VARIABLES, load
from kfm.telemetry.metric_catalogue import metrics
from kfm.web.request_context import WebContext
from kfm.web.web_app import WebApplication

pytestmark = pytest.mark.req("FLT-4")
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
PAGE = (ROOT / "docs" / "how-to" / "run-on-kubernetes.md").read_text()
VERSIONS = ("1.25.0", "1.37.0")  # the oldest and the newest that the checker has schemas of
SECRETS = "/run/secrets/kfm"


def _documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in YAML(typ="safe", pure=True).load_all(path.read_text()):
            yield f"{document['kind']}/{document['metadata']['name']}", document


DOCUMENTS = dict(_documents())
DEPLOYMENTS = [name for name in DOCUMENTS if name.startswith("Deployment/")]
SERVICE = DOCUMENTS["Deployment/kfm-service"]


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENTS[name]["spec"]["template"]["spec"]
    return found


def container(name: str) -> dict[str, Any]:
    (only,) = pod(name)["containers"]
    found: dict[str, Any] = only
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_api_takes_it(name: str, version: str) -> None:
    """Every field of it is one that this version of Kubernetes knows, with a value of its type."""
    kubernetes_validate.validate(DOCUMENTS[name], version, strict=True)


def test_the_checker_would_notice() -> None:
    """A field that there is not is refused, so that silence means something."""
    wrong = copy.deepcopy(SERVICE)
    wrong["spec"]["template"]["spec"]["containers"][0]["readOnlyRootFilesystem"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_may_do_little(name: str) -> None:
    """No root, no privilege, no file system but its volumes, no token of the cluster, bounded memory."""
    spec, one = pod(name), container(name)
    assert spec["automountServiceAccountToken"] is False
    inside = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
    assert inside.items() <= spec["securityContext"].items()
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"memory", "ephemeral-storage"} <= one["resources"]["limits"].keys()
    writable = {mount["mountPath"] for mount in one["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/kfm", "/tmp"}
    assert {mount["name"] for mount in one["volumeMounts"]} == {one["name"] for one in spec["volumes"]}
    assert "USER 10001:10001" in (ROOT / "deploy" / "Containerfile").read_text()


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_what_is_started_exists(name: str) -> None:
    """The command is one of kfm's, with options that it has, in the image of this version."""
    one = container(name)
    words = one["args"]
    command = command_line.get_command(click.Context(command_line), words[0])
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    assert one["image"] == f"kfm:{kfm.__version__}"
    named = {each["name"] for each in one.get("env", ())}
    assert {each for each in named if each.startswith("KFM_")} <= {*VARIABLES, *OTHER_VARIABLES}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of the manifests, and what they name, as a folder."""
    for name, text in DOCUMENTS["ConfigMap/kfm"]["data"].items():
        (tmp_path / name).write_text(text.replace(SECRETS, str(tmp_path / "secrets")))
    (tmp_path / "secrets").mkdir(mode=0o700)
    for name in _secrets():
        (tmp_path / "secrets" / name).write_text("postgresql://kfm@db.example.org/kfm")
        (tmp_path / "secrets" / name).chmod(0o440)
    return tmp_path / "kfm.yml"


def _secrets() -> set[str]:
    texts = "".join(path.read_text() for path in FOLDER.glob("*.yaml"))
    return set(re.findall(rf"{SECRETS}/([a-z-]+)", texts))


def test_the_configuration_is_one(config: Path) -> None:
    """kfm reads it, secrets are files of the secret that the page makes, and pods keep nothing."""
    loaded = load(str(config))
    assert loaded.store is not None
    assert loaded.store.startswith("postgresql:")
    assert (loaded.settings.objects or "").startswith("s3:")
    assert all(target.kind == "s3" for target in loaded.settings.publish)
    for name in _secrets():
        assert f"--from-file={name}=" in PAGE, name
    for name in DEPLOYMENTS:
        volumes = {one["name"]: one for one in pod(name)["volumes"]}
        assert volumes["secrets"]["secret"] == {"secretName": "kfm", "defaultMode": 0o440}
        assert "emptyDir" in volumes["state"]


def test_probes_ask_what_is_there(config: Path) -> None:
    """Without a Host header of their own, at paths that are answered under any name."""
    one = container("Deployment/kfm-service")
    web = WebApplication(WebContext(load(str(config))))
    paths = {route.path for route in web.asgi(()).routes if isinstance(route, Route)}
    asked = {}
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert one[kind]["httpGet"].keys() == {"path", "port"}
        asked[kind] = one[kind]["httpGet"]["path"]
        assert asked[kind] in paths
        assert web._is_open("", asked[kind])
    assert asked["livenessProbe"] == "/livez"  # which says nothing of the ledger: a restart would not mend it
    assert asked["readinessProbe"] == "/readyz"
    (port,) = one["ports"]
    assert one["args"][one["args"].index("--port") + 1] == str(port["containerPort"])


def test_a_stop_has_the_time_that_it_needs(config: Path) -> None:
    """What kfm allows itself after SIGTERM ends before the grace period does, with some seconds to spare."""
    serve = load(str(config)).settings.serve
    needed = max(serve.grace_seconds, serve.drain_seconds) + CLOSING_SECONDS_MAX
    assert needed + 10 <= pod("Deployment/kfm-service")["terminationGracePeriodSeconds"]
    probe = container("Deployment/kfm-service")["readinessProbe"]
    assert serve.drain_seconds >= probe["periodSeconds"] * probe["failureThreshold"]


def test_services_and_budgets_select_pods_that_there_are() -> None:
    """Whatever selects by labels finds the pods of a deployment."""
    labels = [DOCUMENTS[name]["spec"]["template"]["metadata"]["labels"] for name in DEPLOYMENTS]
    chosen = [DOCUMENTS["Service/kfm"]["spec"]["selector"]]
    for name, document in DOCUMENTS.items():
        if name.startswith(("PodDisruptionBudget/", "Deployment/")):
            chosen.append(document["spec"]["selector"]["matchLabels"])
        if name == "NetworkPolicy/kfm-service":
            chosen.append(document["spec"]["podSelector"]["matchLabels"])
    assert len(chosen) == 6
    for wanted in chosen:
        assert sum(wanted.items() <= each.items() for each in labels) == 1


def test_the_scaler_follows_what_waits() -> None:
    """Its metric is made by the page's rule of one that kfm has, and it scales the workers alone."""
    scaler = DOCUMENTS["HorizontalPodAutoscaler/kfm-workers"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == "kfm-workers"
    assert "replicas" not in DOCUMENTS["Deployment/kfm-workers"]["spec"]
    (metric,) = scaler["metrics"]
    assert f"as: {metric['external']['metric']['name']}" in PAGE
    names = {name.replace(".", "_") for name in metrics()}
    (series,) = re.findall(r"seriesQuery: '([a-z_]+)\{status=\"pending\"", PAGE)
    assert series in names


def test_all_of_it_is_in_one_namespace() -> None:
    """Which holds pods to the strictest of Kubernetes' own standards."""
    namespace = DOCUMENTS["Namespace/kfm"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    others = [one for name, one in DOCUMENTS.items() if not name.startswith("Namespace/")]
    assert {one["metadata"]["namespace"] for one in others} == {"kfm"}
