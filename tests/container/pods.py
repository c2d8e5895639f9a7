"""Pods of deploy/kubernetes, run by runc: what a manifest says becomes an OCI bundle, as a kubelet and its
runtime would make it, and what it does not say becomes what they take for granted."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from tests.container.containerfile import Image
from tests.container.network import Host
from tests.services import die_with_parent

RUNTIME = "runc"
RUNTIME_SECONDS_MAX = 60
# What runtimes leave to a container that drops nothing.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
HIDDEN = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware")
FIXED = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def manifests(folder: Path) -> dict[str, dict[str, Any]]:
    """All documents of a folder, as Kind/name."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for document in YAML(typ="safe", pure=True).load_all(path.read_text()):
            found[f"{document['kind']}/{document['metadata']['name']}"] = document
    return found


def size_of(text: str) -> int:
    """A quantity of bytes: 256Mi."""
    return int(text[:-2]) * UNITS[text[-2:]]


class Files(NamedTuple):
    """What config maps and secrets hold: of each, by its name, texts by their keys."""

    config: Mapping[str, Mapping[str, str]]
    secrets: Mapping[str, Mapping[str, str]]


class Usage(NamedTuple):
    """Of all processes of a pod."""

    rss_bytes: int
    peak_bytes: int
    cpu_seconds: float


class Pod:
    """The one container of a deployment's template, in a network namespace of its own."""

    def __init__(
        self, deployment: Mapping[str, Any], image: Image, host: Host, files: Files, scratch: Path
    ) -> None:
        self.spec: Mapping[str, Any] = deployment["spec"]["template"]["spec"]
        (self.container,) = self.spec["containers"]
        self.host = host
        self._name = host.namespace
        self._bundle = scratch / host.namespace
        self._files = files
        self._bundle.mkdir()
        (self._bundle / "config.json").write_text(json.dumps(self._config(image), indent=1))
        self._log = (self._bundle / "log").open("wb")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def grace_seconds(self) -> int:
        return int(self.spec["terminationGracePeriodSeconds"])

    @property
    def log(self) -> str:
        return (self._bundle / "log").read_text()

    def probe(self, kind: str) -> tuple[str, int, Mapping[str, Any]]:
        """Path, port and timing of one of its probes."""
        probe = self.container[kind]
        named = {each["name"]: each["containerPort"] for each in self.container["ports"]}
        return probe["httpGet"]["path"], named[probe["httpGet"]["port"]], probe

    def start(self) -> None:
        command = [RUNTIME, "run", "--bundle", str(self._bundle), self._name]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, signal.SIGTERM),  # which the runtime hands on
        )

    def kubectl_exec(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command beside it, as `kubectl exec` runs one."""
        command = [RUNTIME, "exec", self._name, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=RUNTIME_SECONDS_MAX)

    def terminate(self) -> None:
        subprocess.run([RUNTIME, "kill", self._name, "TERM"], check=True, timeout=RUNTIME_SECONDS_MAX)

    def ended(self) -> tuple[int | None, float]:
        """Its status, and after how many seconds; None: it has outlasted its grace period, and was killed."""
        assert self.process is not None
        began = time.monotonic()
        try:
            code: int | None = self.process.wait(self.grace_seconds)
        except subprocess.TimeoutExpired:
            code = None
        took = time.monotonic() - began
        self.close()
        return code, took

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            subprocess.run(
                [RUNTIME, "delete", "--force", self._name], check=False, timeout=RUNTIME_SECONDS_MAX
            )
            self.process.wait(RUNTIME_SECONDS_MAX)
        self._log.close()

    def usage(self) -> Usage:
        rss = peak = 0
        cpu = 0.0
        for pid in self._processes():
            status = dict(
                line.split(":", 1)
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if ":" in line
            )
            rss += int(status["VmRSS"].split()[0]) * 1024
            peak += int(status["VmHWM"].split()[0]) * 1024
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return Usage(rss, peak, cpu)

    def written_bytes(self) -> dict[str, int]:
        """What it keeps in its empty folders."""
        names = [each["name"] for each in self.spec["volumes"] if "emptyDir" in each]
        files = {
            name: [path for path in (self._bundle / name).rglob("*") if path.is_file()] for name in names
        }
        return {name: sum(path.stat().st_size for path in found) for name, found in files.items()}

    def status(self) -> dict[str, str]:
        """What the kernel says of its first process: who it is, and what it may."""
        lines = Path(f"/proc/{next(self._processes())}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def _processes(self) -> Iterator[int]:
        state = subprocess.run(
            [RUNTIME, "state", self._name],
            check=True,
            capture_output=True,
            text=True,
            timeout=RUNTIME_SECONDS_MAX,
        )
        waiting = [int(json.loads(state.stdout)["pid"])]
        while waiting:
            pid = waiting.pop()
            yield pid
            children = Path(f"/proc/{pid}/task").glob("*/children")
            waiting += [int(each) for path in children for each in path.read_text().split()]

    # --- the bundle ------------------------------------------------------------------------

    def _config(self, image: Image) -> dict[str, Any]:
        one, whole = self.container, self.spec["securityContext"]
        own = one["securityContext"]
        assert whole["runAsNonRoot"] is False or int(whole["runAsUser"]) != 0
        dropped = own.get("capabilities", {}).get("drop", ())
        left = [] if "ALL" in dropped else [f"CAP_{each}" for each in CAPABILITIES if each not in dropped]
        env = {**image.env, "HOSTNAME": self._name, "HOME": "/"}
        env |= {each["name"]: each["value"] for each in one.get("env", ())}
        limit = size_of(one["resources"]["limits"]["memory"])
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {
                    "uid": whole["runAsUser"],
                    "gid": whole["runAsGroup"],
                    "additionalGids": [whole["fsGroup"]],
                },
                "args": [*one.get("command", image.entrypoint), *one.get("args", image.command)],
                "env": [f"{name}={value}" for name, value in env.items()],
                "cwd": image.folder,
                "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), left),
                "noNewPrivileges": own.get("allowPrivilegeEscalation") is False,
                "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1024, "hard": min(65536, hard)}],
            },
            "root": {"path": str(image.root), "readonly": bool(own.get("readOnlyRootFilesystem"))},
            "hostname": self._name,
            "mounts": [*_SYSTEM, *self._own_files(), *self._volumes(int(whole["fsGroup"]))],
            "linux": {
                "namespaces": [
                    *({"type": kind} for kind in ("pid", "ipc", "uts", "mount")),
                    {"type": "network", "path": f"/run/netns/{self.host.namespace}"},
                ],
                "resources": {"memory": {"limit": limit}, "devices": [{"allow": False, "access": "rwm"}]},
                "maskedPaths": list(HIDDEN),
                "readonlyPaths": list(FIXED),
            },
        }

    def _own_files(self) -> Iterator[dict[str, Any]]:
        """What a kubelet writes for each pod."""
        texts = {
            "hosts": f"127.0.0.1 localhost\n{self.host.address} {self._name}\n",
            "hostname": f"{self._name}\n",
            "resolv.conf": "options ndots:5\n",
        }
        for name, text in texts.items():
            path = self._bundle / name
            path.write_text(text)
            yield _bound(path, f"/etc/{name}", read_only=True)

    def _volumes(self, group: int) -> Iterator[dict[str, Any]]:
        mounts = {each["name"]: each for each in self.container["volumeMounts"]}
        for volume in self.spec["volumes"]:
            mount = mounts[volume["name"]]
            path = self._bundle / volume["name"]
            if "emptyDir" in volume:
                path.mkdir()
                os.chown(path, 0, group)
                path.chmod(0o2777)
                yield _bound(path, mount["mountPath"], read_only=False)
                continue
            if "configMap" in volume:
                texts, mode = self._files.config[volume["configMap"]["name"]], 0o644
            else:
                texts = self._files.secrets[volume["secret"]["secretName"]]
                mode = volume["secret"].get("defaultMode", 0o644)
            _written(path, texts, mode, group)
            yield _bound(path, mount["mountPath"], read_only=mount.get("readOnly", False))


def _written(folder: Path, texts: Mapping[str, str], mode: int, group: int) -> None:
    """As a kubelet does, so that all files change at once: links to links to a folder named after a time."""
    actual = folder / "..2026_01_01"
    actual.mkdir(parents=True)
    (folder / "..data").symlink_to(actual.name)
    for name, text in texts.items():
        (actual / name).write_text(text)
        (actual / name).chmod(mode | 0o440)
        os.chown(actual / name, 0, group)
        (folder / name).symlink_to(f"..data/{name}")
    for each in (folder, actual):
        shutil.chown(each, 0, group)
        each.chmod(0o3777)


def _bound(path: Path, target: str, *, read_only: bool) -> dict[str, Any]:
    options = ["rbind", "nosuid", "nodev", *(["ro"] if read_only else [])]
    return {"destination": target, "type": "bind", "source": str(path), "options": options}


def _mount(target: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": kind, "options": ["nosuid", *options]}


_SYSTEM = (
    {"destination": "/proc", "type": "proc", "source": "proc"},
    _mount("/dev", "tmpfs", "strictatime", "mode=755", "size=65536k"),
    _mount("/dev/pts", "devpts", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
    _mount("/dev/shm", "tmpfs", "noexec", "nodev", "mode=1777", "size=65536k"),
    _mount("/dev/mqueue", "mqueue", "noexec", "nodev"),
    _mount("/sys", "sysfs", "noexec", "nodev", "ro"),
)
