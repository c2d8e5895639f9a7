"""Where a server listens, and who may be let in there."""

from __future__ import annotations

import ipaddress
import socket

from kfm.core.errors import BackendUnavailable, UsageError


def address_of(text: str) -> str:
    """The address that was meant; UsageError if it is none."""
    host = "127.0.0.1" if text == "localhost" else text.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise UsageError(
            f"`{text[:80]}` is no address to listen on.", remedy="Write an address such as 127.0.0.1."
        ) from None
    return host


def is_private(host: str) -> bool:
    """Is it reached from this machine only?"""
    return ipaddress.ip_address(host).is_loopback


def shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=1024)
        # Handed down to each connection: otherwise a short answer waits 40 ms for its own acknowledgement.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except OSError as error:
        raise BackendUnavailable(
            f"Port {port} of {host} can't be listened on: {(error.strerror or str(error)).lower()}.",
            remedy="Name another one with --port, or 0 for any that is free.",
        ) from None
