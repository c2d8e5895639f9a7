"""Which of a configuration's references stand for secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kfm.configuration.inline_secrets import is_reference, names_secret
from kfm.core.settings import Settings


def secret_references(settings: Settings) -> Iterator[str]:
    """Every `env:NAME` and `file:PATH` whose value must not be told.

    Of the options of buckets and targets only those with a secret's name: a region is one of them, too,
    and stands in addresses that people need to read.
    """
    for source in settings.sources:
        yield from _all(source.headers)
        yield from _all(source.params)
        yield from _named(source.bucket_options)
    for target in settings.publish:
        yield from _named(target.options)
    yield from _named(settings.objects_options)
    yield from _all(settings.telemetry.headers)
    yield from _all({"token": settings.lineage.token or "", "store": settings.store or ""})


def _all(values: Mapping[str, str]) -> Iterator[str]:
    return (value for value in values.values() if is_reference(value))


def _named(values: Mapping[str, str]) -> Iterator[str]:
    return (value for name, value in values.items() if is_reference(value) and names_secret(name))
