"""Checks of `webhook` and `serve`, and their secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kfm.config.secrets import WAY_OUT, is_reference
from kfm.model.errors import ConfigError
from kfm.model.settings import Settings, SourceSettings

if TYPE_CHECKING:
    from kfm.config.shape import Problem

SECRETS_MAX = 8  # each costs every request a comparison
SECRET_CHARS_MIN = 16
TOLERANCE_MIN_S, TOLERANCE_MAX_S = 1.0, 86_400.0
BODY_BYTES_MIN, BODY_BYTES_MAX = 1024, 16 * 1024 * 1024
RUNNERS_MAX = 64
LATE_MAX_S = 86_400.0


def webhook_problems(settings: Settings) -> Iterator[Problem]:
    for index, source in enumerate(settings.sources):
        if source.webhook is not None:
            yield from _webhook(source, f"sources[{index}].webhook")


def serve_problems(settings: Settings) -> Iterator[Problem]:
    serve = settings.serve
    if not 0 <= serve.port <= 65_535:
        yield "serve.port", "`port` must be from 0 to 65535"
    if not serve.host.strip():
        yield "serve.host", "`host` must not be empty"
    if not 1 <= serve.runners <= RUNNERS_MAX:
        yield "serve.runners", f"`runners` must be from 1 to {RUNNERS_MAX}"
    if not 1 <= serve.late_seconds <= LATE_MAX_S:
        yield "serve.late_seconds", f"`late_seconds` must be from 1 to {LATE_MAX_S:g}"
    if not BODY_BYTES_MIN <= serve.body_bytes_max <= BODY_BYTES_MAX:
        yield (
            "serve.body_bytes_max",
            f"`body_bytes_max` must be from {BODY_BYTES_MIN} to {BODY_BYTES_MAX}",
        )


def _webhook(source: SourceSettings, path: str) -> Iterator[Problem]:
    webhook = source.webhook
    assert webhook is not None
    if not webhook.secrets:
        yield f"{path}.secrets", f"`secrets` of `{source.id}` is empty: name at least one; {WAY_OUT}"
    if len(webhook.secrets) > SECRETS_MAX:
        yield f"{path}.secrets", f"`secrets` has at most {SECRETS_MAX} of them"
    for position, text in enumerate(webhook.secrets):
        here = f"{path}.secrets[{position}]"
        if not is_reference(text):
            yield here, f"`secrets` holds a secret; {WAY_OUT}"
        elif text in webhook.secrets[:position]:
            yield here, "`secrets` names this one twice"
    if not TOLERANCE_MIN_S <= webhook.tolerance_seconds <= TOLERANCE_MAX_S:  # NaN compares with nothing
        yield (
            f"{path}.tolerance_seconds",
            f"`tolerance_seconds` must be from {TOLERANCE_MIN_S:g} to {TOLERANCE_MAX_S:g}",
        )


def webhook_secrets(source: SourceSettings, resolve: Callable[[str], str]) -> tuple[str, ...]:
    """The secrets behind the references. A missing or short one keeps the service from starting."""
    assert source.webhook is not None
    found: list[str] = []
    for reference in source.webhook.secrets:
        secret = resolve(reference).strip()
        if len(secret) < SECRET_CHARS_MIN:
            raise ConfigError(
                f"`{reference}`, a webhook secret of `{source.id}`, has fewer than {SECRET_CHARS_MIN} "
                "characters: it can be guessed.",
                remedy="Make one of 32 random bytes: `kfm webhook secret` prints it.",
            )
        if secret in found:
            raise ConfigError(f"`{reference}` of `{source.id}` holds the same secret as another one.")
        found.append(secret)
    return tuple(found)


def webhook_warnings(settings: Settings) -> list[str]:
    """Warnings at the start of the service."""
    return [
        f"warning: source {source.id} accepts sha256(secret + body) as a signature (legacy-concat): a reader "
        "of one message can lengthen it; have its sender use HMAC, then remove `signature`"
        for source in settings.sources
        if source.webhook is not None and source.webhook.signature == "legacy-concat"
    ]
