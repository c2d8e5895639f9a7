"""What a service reads anew while it runs: schedules, people, webhooks and secrets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kfm.config.schedules import load_schedules
from kfm.config.secrets import resolved_secrets
from kfm.config.section_checks import known_people, webhook_secrets
from kfm.model.errors import ConfigError, KfmError
from kfm.system import SystemClock

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.model.roles import KnownPerson
    from kfm.model.schedules import Schedule
    from kfm.model.settings import Settings, SourceSettings

INTERVAL_MS = 1_000
_CLOCK = SystemClock()
logger = logging.getLogger(__name__)

WebhookSecrets = Mapping[str, tuple["SourceSettings", tuple[str, ...]]]  # by source


class LiveConfig:
    """The files of one configuration, looked at once a second at most, by any thread.

    A file that can't be used changes nothing: what was read last stays in force. That is logged when it
    begins and when it has passed. Sources, targets and everything else are those of the start.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        monotonic_ms: Callable[[], int] = _CLOCK.monotonic_ms,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        self._loaded = loaded
        self._settings = loaded.settings
        self._monotonic_ms = monotonic_ms
        self._interval_ms = interval_ms
        self._next_ms = monotonic_ms() + interval_ms
        self._lock = threading.Lock()
        self._problems: dict[str, str] = {}
        self._secrets_version = 0
        self._parts: dict[str, Callable[[Settings], Any]] = {
            "schedules": self._read_schedules,
            "people": self._read_people,
            "webhooks": self._read_webhooks,
            "secrets": self._read_secrets,
        }
        self._values: dict[str, Any] = {}  # of the parts that were asked for

    def check(self) -> None:
        """Raise what is wrong at the start: a service does not begin with it."""
        for name in self._parts:
            self._value(name)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return self._value("schedules")  # type: ignore[no-any-return]

    @property
    def people(self) -> tuple[KnownPerson, ...]:
        return self._value("people")  # type: ignore[no-any-return]

    @property
    def webhooks(self) -> WebhookSecrets:
        """The sources of the start that have a webhook now, with its secrets: another object if changed."""
        return self._value("webhooks")  # type: ignore[no-any-return]

    @property
    def secrets_version(self) -> int:
        """Grows when the value behind some reference is another one: what holds secrets is made anew."""
        self._value("secrets")
        return self._secrets_version

    @property
    def problems(self) -> dict[str, str]:
        """What the files say now and is not in force, by part, and why: for operators only."""
        self._value("secrets")
        return dict(self._problems)

    def _value(self, name: str) -> Any:
        with self._lock:
            now_ms = self._monotonic_ms()
            if now_ms >= self._next_ms:
                self._next_ms = now_ms + self._interval_ms
                self._look()
            if name not in self._values:
                self._values[name] = self._parts[name](self._settings)
                if name == "secrets":
                    self._loaded.learn(self._values[name])
            return self._values[name]

    def _look(self) -> None:
        try:
            self._settings = self._loaded.current()
            self._note("configuration", None)
        except KfmError as error:
            self._note("configuration", error)
        for name, last in list(self._values.items()):
            try:
                found = self._parts[name](self._settings)
            except KfmError as error:
                self._note(name, error)
                continue
            self._note(name, None)
            if found != last:
                self._values[name] = found
                if name == "secrets":
                    self._secrets_version += 1
                    self._loaded.learn(found)

    def _note(self, name: str, error: KfmError | None) -> None:
        last = self._problems.pop(name, None)
        if error is not None:
            self._problems[name] = f"{error.message} What was read last stays in force."
            if self._problems[name] != last:
                logger.warning("%s: %s", name, self._problems[name], extra={"part": name, "code": error.code})
        elif last is not None:
            logger.info("%s: read again", name, extra={"part": name})

    def _read_schedules(self, settings: Settings) -> tuple[Schedule, ...]:
        return load_schedules(self._loaded, named=settings.schedules)

    def _read_people(self, settings: Settings) -> tuple[KnownPerson, ...]:
        found = known_people(settings, self._loaded.secret)
        began = any(person.tokens for person in self._loaded.settings.people)
        if began and not any(person.token_hashes for person in found):
            # Without people this machine may read; a service that others reach began with some.
            raise ConfigError("No person has a token any more.", remedy="To serve without people, restart.")
        return found

    def _read_webhooks(self, settings: Settings) -> WebhookSecrets:
        now = {source.id: source.webhook for source in settings.sources}
        found = {
            source.id: replace(source, webhook=now[source.id])
            for source in self._loaded.settings.sources
            if now.get(source.id) is not None
        }
        secret = self._loaded.secret
        return {name: (source, webhook_secrets(source, secret)) for name, source in found.items()}

    def _read_secrets(self, settings: Settings) -> tuple[str, ...]:
        return tuple(resolved_secrets(settings, self._loaded.secret))
