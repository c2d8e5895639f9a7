"""Where a server listens, for which names it answers, and the token of a caller; without a web framework."""

from __future__ import annotations

import ipaddress
import resource
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress

from kfm.model.errors import BackendUnavailable, UsageError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
DESCRIPTORS_WANTED = 65_536


def is_named(values: Sequence[str], hosts: Collection[str]) -> bool:
    """Does the Host header, all values of it, name one of these hosts? (DNS rebinding)"""
    if len(values) != 1:
        return False
    host, colon, port = values[0].rpartition(":")
    if not colon or port.endswith("]"):
        host = values[0]
    elif not port.isascii() or not port.isdigit():
        return False
    return host.lower() in hosts


def bearer_token(values: Sequence[str]) -> str | None:
    """The token of the Authorization header, all values of it; None if it has no such token."""
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


def address_of(text: str) -> str:
    """The IP address of a host name or address; UsageError for anything else."""
    host = "127.0.0.1" if text == "localhost" else text.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise UsageError(
            f"`{text[:80]}` is no address to listen on.", remedy="Write an address such as 127.0.0.1."
        ) from None
    return host


def is_private(host: str) -> bool:
    """Can only this machine reach it?"""
    return ipaddress.ip_address(host).is_loopback


def shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files towards the hard one; how many this process may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return DESCRIPTORS_WANTED
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(DESCRIPTORS_WANTED, hard)
    if soft < wanted:
        with suppress(OSError, ValueError):  # a unit may forbid it, and then sets the limit itself
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft


def connections_within(descriptors: int, connections_max: int) -> int:
    """Half of the descriptors at most: the other half is for the ledger, its files and runs."""
    return max(1, min(connections_max, descriptors // 2))


def listener(
    host: str, port: int, remedy: str = "Name another one with --port, or 0 for any that is free."
) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=1024)
        # Inherited by each connection: otherwise a short answer waits 40 ms for its own acknowledgement.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except OSError as error:
        raise BackendUnavailable(
            f"Port {port} of {host} can't be listened on: {(error.strerror or str(error)).lower()}.",
            remedy=remedy,
        ) from None
