"""Which of a configuration's references stand for secrets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from kfm.core.errors import SecretNotFound
from kfm.core.settings import Settings

ENVIRONMENT_SECRET_CHARS_MIN = 8  # nobody said that they are secrets: a short one may be an ordinary word
# Every name that tells of a secret holds one of these: most variables need no closer look.
_WORDS = ("token", "secret", "pass", "pwd", "key", "cred", "auth", "sig", "sas")


def resolved_secrets(settings: Settings, resolve: Callable[[str], str]) -> list[str]:
    """What the references stand for. One that leads nowhere is told when it is used."""
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
    """Values of variables whose name tells that they are secrets, whoever set them and for whom."""
    named = [
        value
        for name, value in environ.items()
        if any(word in name.lower() for word in _WORDS)
        and _tells(name)
        and name not in ("PWD", "OLDPWD")  # the shell's working directories
        and not (value.startswith("/") and os.path.exists(value))  # it only says where one is kept
    ]
    headers = environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    sent = [pair.partition("=")[2].strip() for pair in headers.split(",")]
    return [value for value in (*named, *sent) if len(value) >= ENVIRONMENT_SECRET_CHARS_MIN]


def _tells(name: str) -> bool:
    from kfm.core.secret_names import is_secret_name

    return is_secret_name(name) or name.startswith("OPENLINEAGE__TRANSPORT__AUTH")


def secret_references(settings: Settings) -> Iterator[str]:
    """Every `env:NAME` and `file:PATH` whose value must not be told.

    Of the options of buckets and targets only those with a secret's name: a region is one of them, too,
    and stands in addresses that people need to read.
    """
    for source in settings.sources:
        yield from _all(source.headers)
        yield from _all(source.params)
        yield from _named(source.bucket_options)
        if source.webhook is not None:
            yield from filter(_is_reference, source.webhook.secrets)
    for target in settings.publish:
        yield from _named(target.options)
    for hook in settings.incidents:
        yield from _all({"url": hook.url or "", "secret": hook.secret or ""})
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
    return (value for value in values.values() if _is_reference(value))


def _named(values: Mapping[str, str]) -> Iterator[str]:
    return (value for name, value in values.items() if _is_reference(value) and _names_secret(name))


def _is_reference(value: str) -> bool:
    if not value.startswith(("env:", "file:")):
        return False
    from kfm.configuration.inline_secrets import is_reference

    return is_reference(value)


def _names_secret(name: str) -> bool:
    from kfm.configuration.inline_secrets import names_secret

    return names_secret(name)
