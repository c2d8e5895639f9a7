"""Secrets of a configuration: references that name them, and secrets that were written into the file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from kfm.model.errors import SecretNotFound
from kfm.model.patterns import late
from kfm.model.settings import Settings

if TYPE_CHECKING:
    from kfm.config.document import Problem

WAY_OUT = "write `env:NAME` or `file:PATH` and keep the secret there"
_HARMLESS = {
    "code",
    "pass",
    "auth",
    "signatures",
}  # secrets in an address that was seen, ordinary words in one that is written
ENVIRONMENT_SECRET_CHARS_MIN = 8  # not declared as secrets: a short one may be an ordinary word
# Every name of a secret holds one of these: most variables need no closer look.
_WORDS = ("token", "secret", "pass", "pwd", "key", "cred", "auth", "sig", "sas")
_REFERENCE = late(r"(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)", re.DOTALL)


def is_reference(value: str) -> bool:
    return _REFERENCE.fullmatch(value) is not None


def is_address_name(name: str) -> bool:
    return name.casefold().endswith(("url", "endpoint"))


def names_secret(name: str) -> bool:
    from kfm.model.redaction import is_secret_name

    word = name.casefold()
    return word in ("cookie", "set-cookie") or (word not in _HARMLESS and is_secret_name(name))


def inline_secrets(settings: Settings) -> Iterator[Problem]:
    """Path and sentence of each secret that is written in the file; never its value."""
    for field in ("headers", "params", "bucket_options"):
        yield from _table(getattr(settings.source_defaults, field) or {}, f"source_defaults.{field}")
    for index, source in enumerate(settings.sources):
        path = f"sources[{index}]"
        for field in ("headers", "params", "bucket_options"):
            yield from _table(getattr(source, field), f"{path}.{field}")
        for field in ("url", "bucket"):
            yield from _address(getattr(source, field), f"{path}.{field}")
    for index, target in enumerate(settings.publish):
        yield from _table(target.options, f"publish[{index}].options")
        yield from _address(target.url, f"publish[{index}].url")
    for index, hook in enumerate(settings.incidents):
        yield from _table(hook.options, f"incidents[{index}].options")
        keys = {"secret": hook.secret or "", "password": hook.password or ""}
        yield from _table(keys, f"incidents[{index}]")
        if hook.kind == "chat" and hook.url and not is_reference(hook.url):
            yield f"incidents[{index}].url", f"`url` is a secret: who knows it can write there; {WAY_OUT}"
        else:
            yield from _address(hook.url, f"incidents[{index}].url")
    for index, queue in enumerate(settings.ingest.queues):
        yield from _table(queue.options, f"ingest.queues[{index}].options")
        yield from _address(queue.url, f"ingest.queues[{index}].url")
    for place, options in settings.ingest.object_options.items():
        yield from _table(options, f"ingest.object_options.{place}")
    for index, replica in enumerate(settings.ingest.replicas):
        yield from _table({"token": replica.token or ""}, f"ingest.replicas[{index}]")
        yield from _address(replica.url, f"ingest.replicas[{index}].url")
    yield from _address(settings.store, "store")
    yield from _table(settings.run_state.options, "run_state.options")
    yield from _address(settings.run_state.path, "run_state.path")
    if (server := settings.lakefs) is not None:
        yield from _address(server.endpoint, "lakefs.endpoint")
        for name in ("access_key", "secret_key"):
            if not is_reference(getattr(server, name)):
                yield f"lakefs.{name}", f"`{name}` holds a secret; {WAY_OUT}"
    yield from _table(settings.telemetry.headers, "telemetry.headers")
    yield from _address(settings.telemetry.otlp, "telemetry.otlp")
    yield from _address(settings.lineage.url, "lineage.url")
    if settings.lineage.token is not None:
        yield from _table({"token": settings.lineage.token}, "lineage")


def _table(values: Mapping[str, str], path: str) -> Iterator[Problem]:
    for name, value in values.items():
        if is_address_name(name):
            yield from _address(value, f"{path}.{name}")
        harmless = not value or value.casefold() in ("true", "false") or is_reference(value)
        if names_secret(name) and not harmless:
            yield f"{path}.{name}", f"`{name}` holds a secret; {WAY_OUT}"


def _address(address: str | None, path: str) -> Iterator[Problem]:
    if not address or is_reference(address):
        return
    from urllib.parse import parse_qsl, urlsplit

    field = path.rpartition(".")[2]
    database = path == "store"
    try:
        parts = urlsplit(address)
        credentials = parts.password is not None if database else "@" in parts.netloc
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        return  # not an address at all: another check says so
    if credentials:
        way_out = (
            "put the whole address into KFM_STORE, or " + WAY_OUT
            if database
            else "write the whole address as `env:NAME`, or give them where keys and tokens are asked for"
            if path.startswith("ingest.")
            else "give them in `headers`, as `Authorization: env:NAME`"
        )
        yield path, f"`{field}` holds credentials; {way_out}"
    for name in names:
        if names_secret(name):
            yield (
                path,
                f"`{field}` holds a secret in `{name}`; move it out, as `{name}: env:NAME`",
            )


def resolved_secrets(settings: Settings, resolve: Callable[[str], str]) -> list[str]:
    """The values behind the references. A missing one is an error when it is used."""
    found = []
    for reference in secret_references(settings):
        try:
            value = resolve(reference)
        except SecretNotFound:
            continue
        if not value.startswith("sqlite:"):
            found.append(value)
    return found


def environment_secrets(environ: Mapping[str, str]) -> list[str]:
    """Values of all environment variables whose name shows that they are secrets."""
    named = [
        value
        for name, value in environ.items()
        if any(word in name.lower() for word in _WORDS)
        and name not in ("PWD", "OLDPWD")  # the shell's working directories
        and _is_secret_variable(name)
        and not (value.startswith("/") and os.path.exists(value))  # it only says where one is kept
    ]
    headers = environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    sent = [pair.partition("=")[2].strip() for pair in headers.split(",")]
    return [value for value in (*named, *sent) if len(value) >= ENVIRONMENT_SECRET_CHARS_MIN]


def _is_secret_variable(name: str) -> bool:
    from kfm.model.redaction import is_secret_name  # late: most environments hold no such name

    return is_secret_name(name) or name.startswith("OPENLINEAGE__TRANSPORT__AUTH")


def secret_references(settings: Settings) -> Iterator[str]:
    """Every `env:NAME` and `file:PATH` whose value is redacted.

    Of the options of buckets and targets only those with a secret's name: a region is one of them, too,
    and is part of addresses that people need to read.
    """
    for source in settings.sources:
        yield from _all(source.headers)
        yield from _all(source.params)
        yield from _named(source.bucket_options)
        if source.webhook is not None:
            yield from filter(is_reference, source.webhook.secrets)
    for target in settings.publish:
        yield from _named(target.options)
    for hook in settings.incidents:
        yield from _all({"url": hook.url or "", "secret": hook.secret or ""})
        yield from _all({"user": hook.user or "", "password": hook.password or ""})
        yield from _named(hook.options)
    for queue in settings.ingest.queues:
        yield from _named(queue.options)
    for options in settings.ingest.object_options.values():
        yield from _named(options)
    for replica in settings.ingest.replicas:
        yield from _all({"url": replica.url, "token": replica.token or ""})
    yield from _named(settings.objects_options)
    yield from _named(settings.run_state.options)
    if settings.lakefs is not None:
        yield from _all({"access": settings.lakefs.access_key, "secret": settings.lakefs.secret_key})
    yield from _all(settings.telemetry.headers)
    yield from _all({"token": settings.lineage.token or "", "store": settings.store or ""})


def _all(values: Mapping[str, str]) -> Iterator[str]:
    return (value for value in values.values() if is_reference(value))


def _named(values: Mapping[str, str]) -> Iterator[str]:
    return (value for name, value in values.items() if is_reference(value) and names_secret(name))
