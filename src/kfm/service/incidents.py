"""Notifications of incidents: what hooks may get of them, and the delivery to each hook."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kfm.config.loader import Loaded
from kfm.lineage.delivery import Delivered, deliver_messages
from kfm.model.breaker import providers_of
from kfm.model.errors import BackendUnavailable, ConfigError, PluginConflict, UsageError
from kfm.model.incidents import TOPIC, About, Incident, IncidentRenderer
from kfm.model.records import Record, governance_entry, justified
from kfm.model.redaction import is_masked, redact_url
from kfm.model.runs import Backlog, OutboxMessage
from kfm.model.settings import Hook, Settings
from kfm.ports import Clock, Collector, Notifier

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger

GROUP = "kfm.notifiers"
FILE_BEGINS = b'{"data":{"about":'  # every line: its canonical form sorts the members by name
BATCH = 20
ON_REQUEST_MS = 60_000


class IncidentContext(Protocol):
    """As much of the application as this needs."""

    loaded: Loaded
    settings: Settings
    clock: Clock
    store: Ledger | None


class HookPass(Record, frozen=True):
    """How the delivery to one hook went."""

    hook: str
    delivered: Delivered


def hook_name(hook: Hook) -> str:
    return hook.name or hook.kind


# --- what may be shown -------------------------------------------------------------------


def make_incident_renderer(loaded: Loaded, mask: Callable[[str], str]) -> IncidentRenderer:
    settings = loaded.settings
    return IncidentRenderer(
        environment=settings.environment,
        masked=partial(_is_masked, settings),
        mask=mask,
        hide=lambda text: loaded.discretion.hide(text),
    )


def _is_masked(settings: Settings, about: About, name: str) -> bool:
    """A dataset that is not to be seen; a provider that is called for one, or that is not configured."""
    hidden = {dataset.id for dataset in settings.datasets if is_masked(dataset)}
    if about == "dataset":
        return name in hidden or all(dataset.id != name for dataset in settings.datasets)
    if not hidden:
        return False
    of = {source.dataset: set[str]() for source in settings.sources}
    for source in settings.sources:
        of[source.dataset].update(providers_of(source, settings.source))
    named = [dataset_id in hidden for dataset_id, providers in of.items() if name in providers]
    return any(named) or not named


# --- the hooks ---------------------------------------------------------------------------


def make_collector(app: IncidentContext, hook: Hook) -> Collector:
    timeout_ms = int(hook.timeout_seconds * 1000)
    if hook.kind == "file":
        from kfm.sinks.event_file import FileCollector

        path = app.loaded.resolve(hook.path or "")
        return FileCollector(path, app.clock, what="file", setting="`path`", first_bytes=FILE_BEGINS)
    from kfm.sinks.incident_hooks import NotifierCollector

    return NotifierCollector(_notifier(app, hook, timeout_ms), timeout_ms=timeout_ms)


def _notifier(app: IncidentContext, hook: Hook, timeout_ms: int) -> Notifier:
    if hook.kind == "command":
        from kfm.sinks.incident_hooks import CommandNotifier

        return CommandNotifier(hook.command, app.loaded.folder, timeout_ms=timeout_ms)
    if hook.kind == "webhook":
        from kfm.objects.http_client import HttpxClient
        from kfm.sinks.incident_hooks import WebhookNotifier

        url, secret = app.loaded.secret(hook.url or ""), app.loaded.secret(hook.secret or "")
        shown = redact_url(url) if url == hook.url else "the webhook"
        return WebhookNotifier(url, secret, app.clock, HttpxClient(), shown=shown, timeout_ms=timeout_ms)
    made: Notifier = _plugin(hook.kind)(hook, app.loaded.secret)
    return made


def _plugin(kind: str) -> Any:
    from importlib.metadata import entry_points

    points = [point for point in entry_points(group=GROUP) if point.name == kind]
    found = {f"{point.dist.name if point.dist else '?'} ({point.value})": point for point in points}
    if not found:
        raise ConfigError(f"There is no kind of hook `{kind[:60]}`.")
    if len(found) > 1:
        raise PluginConflict(f"The kind of hook `{kind}` is offered by {' and '.join(sorted(found))}.")
    return next(iter(found.values())).load()


# --- delivery ----------------------------------------------------------------------------


class _Mail:
    """The part of the outbox that one hook has not had, as `deliver_messages` wants it."""

    def __init__(self, store: Ledger, hook: str) -> None:
        self._store = store
        self._hook = hook

    def now_ms(self) -> int:
        return self._store.now_ms()

    def backlog(self, topic: str) -> Backlog:
        assert topic == TOPIC
        return self._store.hook_backlog(self._hook)

    def claim_messages(self, topic: str, limit: int, claim_ms: int) -> list[OutboxMessage]:
        assert topic == TOPIC
        return self._store.claim_for_hook(self._hook, limit, claim_ms)

    def messages_delivered(self, numbers: Sequence[int]) -> None:
        self._store.hook_delivered(self._hook, numbers)

    def messages_put_back(self, numbers: Sequence[int], not_before_ms: int) -> None:
        self._store.hook_put_back(self._hook, numbers, not_before_ms)


def deliver_incidents(app: IncidentContext, *, on_request: bool = False) -> list[HookPass]:
    """Deliver to each hook, for a bounded time. A hook's error is part of the result.

    After a run a hook has the time of one call; on request it has longer, and what rests is tried at once.
    """
    store = app.store
    if store is None or not store.backlog(TOPIC).waiting:
        return []
    passes = []
    for hook in app.settings.incidents:
        name = hook_name(hook)
        if on_request:
            store.hasten_hook(name)
        delivered = deliver_messages(
            _Mail(store, name),
            partial(make_collector, app, hook),
            app.clock,
            topic=TOPIC,
            batch=BATCH,
            deadline_ms=ON_REQUEST_MS if on_request else int(hook.timeout_seconds * 1000),
        )
        passes.append(HookPass(hook=name, delivered=delivered))
    store.settle_hooks([hook_name(hook) for hook in app.settings.incidents])
    return passes


def close_incident(
    app: IncidentContext,
    incident: Incident,
    *,
    actor: str,
    rationale: str,
    ticket: str | None = None,
    claimed_actor: str | None = None,
) -> Incident:
    """Resolve it by a person's decision; the decision is kept in the audit log."""
    store = app.store
    assert store is not None
    entry = governance_entry(
        "incident-closed",
        f"{incident.about}:{incident.name}",
        store.now_ms(),
        justified(app.loaded.discretion.said, actor, rationale, ticket, claimed_actor),
        incident_id=incident.incident_id,
        error_class=incident.error_class,
        code=incident.error_code,
        affected=incident.affected,
    )
    if incident.about == "provider" and incident.state != "resolved":
        raise UsageError(
            "A provider's incident ends with its circuit.",
            remedy=f"kfm breaker reset {incident.name} --rationale TEXT",
        )
    if not store.close_incident(incident.cause, entry):
        raise UsageError("It is resolved already.", remedy="`kfm incident show` has the time.")
    return store.find_incidents(incident.cause)[0]


def probe(app: IncidentContext, hook: Hook) -> None:
    """Raises what would keep this hook from being used, as far as that can be checked without using it."""
    if hook.kind == "command":
        import shutil

        program = hook.command[0]
        found = shutil.which(app.loaded.resolve(program) if "/" in program else program)
        if found is None:
            raise BackendUnavailable(f"There is no program {program} that can be run.")
        return
    if hook.kind == "file":
        place = app.loaded.resolve(hook.path or "")
        while not os.path.exists(place) and place not in ("", "/"):
            place = os.path.dirname(place)
        if not os.access(place or "/", os.W_OK):
            raise BackendUnavailable(f"{place} is not writable.")
        return
    if hook.kind == "webhook":
        from kfm.model.webhook_signatures import standard_secret

        for secret in app.loaded.secret(hook.secret or "").split():
            standard_secret(secret)
    make_collector(app, hook).close()
