"""Hosts that are network namespaces, each with one cable to a switch in a namespace of its own.

Nothing of the machine's own network is touched: addresses, bridge and cables are inside. Names begin with the
process that made them, so that two runs never meet, and what a killed one has left is cleared by the next.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests import services

CLONE_NEWNET = 0x40000000
FOLDER = Path("/run/netns")
SWITCH = "switch"
NET = "10.77.0"
BRIDGE = "br0"
_OURS = re.compile(r"kfm(\d+)-[a-z]+")
_LIBC = ctypes.CDLL(None, use_errno=True)
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Weather:
    """What a cable does to frames; `peer`: only to those from and to this host."""

    delay_ms: int = 0
    jitter_ms: int = 0
    loss: float = 0.0
    closed: str = ""  # no frame passes `in`, `out` or `both`, as seen by the host
    peer: str = ""


class Network:
    """Namespaces by the names of hosts; each host has `eth0`, its end at the switch has the host's name."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._addresses = {name: f"{NET}.{number}" for number, name in enumerate(hosts, 11)}
        self._relays: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Network:
        clear_leftovers()
        try:
            self._lay_out()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _lay_out(self) -> None:
        for name in (SWITCH, *self._addresses):
            _ip("netns", "add", self.namespace(name))
            self._within(name, "link", "set", "lo", "up")
        self._within(SWITCH, "link", "add", "name", BRIDGE, "type", "bridge", "stp_state", "0")
        self._within(SWITCH, "link", "set", BRIDGE, "up")
        for name, address in self._addresses.items():
            far = ("peer", "name", "eth0", "netns", self.namespace(name))
            self._within(SWITCH, "link", "add", "name", name, "type", "veth", *far)
            self._within(name, "address", "add", f"{address}/24", "dev", "eth0")
            self._within(name, "link", "set", "eth0", "up")
            self._to_bridge(name)

    def __exit__(self, *_: object) -> None:
        for name in list(self._relays):
            services.stop(self._relays.pop(name), signal.SIGKILL)
        for name in (*self._addresses, SWITCH):
            remove(self.namespace(name))

    def namespace(self, name: str) -> str:
        return f"kfm{os.getpid()}-{name}"

    def address(self, name: str) -> str:
        return self._addresses[name]

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Whatever this thread opens and starts meanwhile belongs to that host."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            enter(self.namespace(name))
            try:
                yield
            finally:
                _set_namespace(before)
        finally:
            os.close(before)

    def processes(self, name: str) -> list[int]:
        return pids(self.namespace(name))

    # --- what goes wrong -----------------------------------------------------------------

    def silence(self, name: str) -> None:
        """Frames vanish at the switch; neither side is told."""
        self._bridge_state(name, "0")

    def hear(self, name: str) -> None:
        self._bridge_state(name, "3")

    def unplug(self, name: str) -> None:
        """The host sees that its link is down."""
        self._within(SWITCH, "link", "set", name, "down")

    def plug(self, name: str) -> None:
        self._within(SWITCH, "link", "set", name, "up")

    def replace_cable(self, name: str, weather: Weather, seed: int) -> None:
        """A process carries frames between the host and the switch: this kernel may have no netem."""
        self._within(SWITCH, "link", "set", name, "nomaster")
        near, far = f"{name}-near", f"{name}-far"
        self._within(SWITCH, "link", "add", "name", near, "type", "veth", "peer", "name", far)
        self._within(SWITCH, "link", "set", near, "up")
        self._to_bridge(far)
        options = [f"--{key.replace('_', '-')}={value}" for key, value in vars(weather).items()]
        with self.inside(SWITCH):
            self._relays[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.hosts.cable", name, near, f"--seed={seed}", *options],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                preexec_fn=services.die_with_parent,
            )

    def restore_cable(self, name: str) -> None:
        services.stop(self._relays.pop(name), signal.SIGKILL)
        self._within(SWITCH, "link", "del", f"{name}-near")
        self._to_bridge(name)

    def _bridge_state(self, name: str, state: str) -> None:
        _run("bridge", "-n", self.namespace(SWITCH), "link", "set", "dev", name, "state", state)

    def _to_bridge(self, port: str) -> None:
        self._within(SWITCH, "link", "set", port, "master", BRIDGE)
        self._within(SWITCH, "link", "set", port, "up")

    def _within(self, name: str, *arguments: str) -> None:
        _ip("-n", self.namespace(name), *arguments)


def require() -> str:
    """The path of `ip`, if namespaces can be made here."""
    path = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if sys.platform != "linux" or path is None:
        raise services.ServiceUnavailable("ip is not installed (Debian package `iproute2`)")
    if os.geteuid() != 0:
        raise services.ServiceUnavailable("only root may make network namespaces")
    try:
        with Network(["probe"]):
            return path
    except (subprocess.CalledProcessError, OSError) as error:
        told = getattr(error, "stderr", "") or str(error)
        raise services.ServiceUnavailable(f"network namespaces can't be made: {told.strip()[:300]}") from None


def clear_leftovers() -> None:
    """Namespaces whose maker is gone, with all that still runs in them."""
    for found in FOLDER.iterdir() if FOLDER.is_dir() else ():
        ours = _OURS.fullmatch(found.name)
        if ours and not Path("/proc", ours[1]).exists():
            remove(found.name)


def remove(namespace: str) -> None:
    if not (FOLDER / namespace).exists():
        return
    with suppress(subprocess.CalledProcessError):
        for pid in pids(namespace):
            with suppress(ProcessLookupError):
                if pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)
        _ip("netns", "del", namespace)


def pids(namespace: str) -> list[int]:
    return [int(line) for line in _ip("netns", "pids", namespace).split()]


def enter(namespace: str) -> None:
    """This thread, and those that it starts from now on, are on that host."""
    found = os.open(FOLDER / namespace, os.O_RDONLY)
    try:
        _set_namespace(found)
    finally:
        os.close(found)


def _set_namespace(descriptor: int) -> None:
    if _LIBC.setns(descriptor, CLONE_NEWNET) != 0:  # `os.setns` needs Python 3.12
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    # The answer of the kernel, not the machine's load, is what may take long.
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return ended.stdout
