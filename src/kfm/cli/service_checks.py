"""What `kfm doctor` says of the service: may it listen where it is told to, and is the place free?"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

from kfm.cli.health import Finding
from kfm.core.wording import counted

ANSWER_SECONDS_MAX = 2.0


def examine_service(loaded: Any) -> Iterator[Finding]:
    from kfm.configuration.schedules import load_schedules
    from kfm.serving.listening import address_of, is_private

    serve = loaded.settings.serve
    schedules = len(load_schedules(loaded))
    hooked = sum(source.webhook is not None for source in loaded.settings.sources)
    if not (schedules or hooked or serve != type(serve)()):
        return  # nobody means to start one
    yield Finding("service", "ok", f"{counted(schedules, 'schedule')}, {counted(hooked, 'webhook')}")
    address = address_of(serve.host)
    if not is_private(address) and not any(person.token_hashes for person in loaded.people()):
        told = f"other machines could reach {address}, and nobody has a token to be known by"
        fix = "Give people tokens under `people`, or let `serve.host` be 127.0.0.1."
        yield Finding("service", "fail", told, fix)
    yield from _webhooks(loaded)
    if serve.port:
        yield _port(address, serve.port)


def _webhooks(loaded: Any) -> Iterator[Finding]:
    """A secret that is missing stops the service; an older form of signature is only a pity."""
    from kfm.configuration.webhooks import webhook_secrets
    from kfm.core.errors import ConfigError

    for source in loaded.settings.sources:
        if source.webhook is None:
            continue
        try:
            webhook_secrets(source, loaded.secret)
        except ConfigError as error:
            yield Finding("webhook", "fail", f"{source.id}: {error.detail}", error.way_out)
            continue
        if source.webhook.signature == "legacy-concat":
            told = f"{source.id}: sha256(secret + body) passes as a signature; a message can be lengthened"
            yield Finding("webhook", "warn", told, "Have its sender use HMAC, then remove `signature`.")


def _port(host: str, port: int) -> Finding:
    """Bound for a moment, never listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if _is_ours(host, port):
                return Finding("service", "ok", f"one answers on port {port} of {host}")
            why = (error.strerror or str(error)).lower()
            told = f"port {port} of {host} can't be had ({why}), and no service of kfm answers there"
            return Finding("service", "warn", told, "Set `serve.port`, unless it is one with a --prefix.")
    return Finding("service", "ok", f"port {port} of {host} is free")


def _is_ours(host: str, port: int) -> bool:
    import httpx

    asked = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - asked, not listened on
    shown = f"[{asked}]" if ":" in asked else asked
    try:
        answer = httpx.get(f"http://{shown}:{port}/livez", timeout=ANSWER_SECONDS_MAX, trust_env=False)
        return answer.status_code == 200 and bool(answer.json() == {"status": "ok"})
    except (httpx.HTTPError, ValueError):
        return False
