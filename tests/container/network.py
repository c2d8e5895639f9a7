"""Hosts of a private network, each a network namespace of its own; as root. Nothing of it is reachable from
this machine's own network, nor the other way round."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

CLONE_NEWNET = 0x40000000
PREFIX = "10.77.0"


class Host(NamedTuple):
    """A namespace, and its address."""

    namespace: str
    address: str

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """What this thread opens and starts meanwhile belongs to the host."""
        libc = ctypes.CDLL(None, use_errno=True)
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            there = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY)
            try:
                if libc.setns(there, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"can't enter {self.namespace}")
            finally:
                os.close(there)
            try:
                yield
            finally:
                libc.setns(before, CLONE_NEWNET)
        finally:
            os.close(before)


class Network:
    """A machine with a bridge, and hosts on it."""

    def __init__(self) -> None:
        self._name = f"kfm-{secrets.token_hex(3)}"
        self._hosts: list[Host] = []
        self.machine = self._add("machine", 1)
        _ip("-n", self.machine.namespace, "link", "add", "pods", "type", "bridge")
        _ip("-n", self.machine.namespace, "addr", "add", f"{self.machine.address}/24", "dev", "pods")
        _ip("-n", self.machine.namespace, "link", "set", "pods", "up")

    def host(self, name: str, number: int) -> Host:
        host, machine = self._add(name, number), self.machine.namespace
        _ip(
            "-n",
            machine,
            "link",
            "add",
            f"to{number}",
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            host.namespace,
        )
        _ip("-n", machine, "link", "set", f"to{number}", "master", "pods", "up")
        _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        _ip("-n", host.namespace, "link", "set", "eth0", "up")
        return host

    def close(self) -> None:
        for host in reversed(self._hosts):
            subprocess.run(["ip", "netns", "delete", host.namespace], check=False, timeout=30)

    def _add(self, name: str, number: int) -> Host:
        host = Host(f"{self._name}-{name}", f"{PREFIX}.{number}")
        _ip("netns", "add", host.namespace)
        self._hosts.append(host)
        _ip("-n", host.namespace, "link", "set", "lo", "up")
        return host


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)
