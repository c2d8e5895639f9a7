"""Notifications of incidents: what hooks may get of them, and the delivery to each hook."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from kfm.config.loader import Loaded
from kfm.lineage.delivery import Delivered, deliver_messages
from kfm.model.breaker import providers_of
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import BackendUnavailable, ConfigError, KfmError, PluginConflict, UsageError
from kfm.model.feeds import feed_names
from kfm.model.incidents import (
    TOPIC,
    About,
    HookRule,
    Incident,
    IncidentEscalation,
    IncidentOwner,
    IncidentRenderer,
    Silence,
    escalates_at_ms,
    hook_wants,
)
from kfm.model.quantities import did_you_mean
from kfm.model.records import GovernanceEntry, Justification, Record, governance_entry, justified
from kfm.model.redaction import is_masked, redact_url
from kfm.model.runs import Backlog, OutboxMessage
from kfm.model.settings import Hook, Settings
from kfm.model.times import rfc3339
from kfm.ports import Clock, Collector, Notifier

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.sinks.incident_messages import EmailNotifier

GROUP = "kfm.notifiers"
FILE_BEGINS = b'{"data":{"about":'  # every line: its canonical form sorts the members by name
BATCH = 20
ON_REQUEST_MS = 60_000
ESCALATED_MAX = 10_000  # open incidents that one look goes through
SILENCE_MS_MAX = 90 * 86_400_000


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


def hook_rule(hook: Hook) -> HookRule:
    return HookRule(
        name=hook_name(hook),
        datasets=hook.datasets,
        kinds=hook.kinds,
        severity=hook.severity,
        escalation=hook.escalation,
    )


# --- what may be shown -------------------------------------------------------------------


def make_incident_renderer(loaded: Loaded, mask: Callable[[str], str]) -> IncidentRenderer:
    settings = loaded.settings
    return IncidentRenderer(
        environment=settings.environment,
        masked=partial(_is_masked, settings),
        mask=mask,
        hide=lambda text: loaded.discretion.hide(text),
        responsible=partial(_responsible, settings),
    )


def _responsible(
    settings: Settings, dataset_id: str
) -> tuple[IncidentOwner | None, IncidentEscalation | None]:
    declared = settings.declared(dataset_id)
    if declared is None:
        return None, None
    owner, escalate = declared.owner, declared.escalate
    return (
        IncidentOwner(name=owner.name, contact=owner.contact) if owner is not None else None,
        IncidentEscalation(after=escalate.after, to=escalate.to, at=None) if escalate is not None else None,
    )


def _is_masked(settings: Settings, about: About, name: str) -> bool:
    """A dataset that is not to be seen; a provider that is called for one, or that is not configured."""
    hidden = {name for dataset in settings.datasets if is_masked(dataset) for name in dataset.names}
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
    if hook.kind == "email":
        return _mailer(app, hook, timeout_ms)
    if hook.kind == "chat":
        from kfm.objects.http_client import HttpxClient
        from kfm.sinks.incident_messages import ChatNotifier

        return ChatNotifier(app.loaded.secret(hook.url or ""), HttpxClient(), timeout_ms=timeout_ms)
    made: Notifier = _plugin(hook.kind)(hook, app.loaded.secret)
    return made


def _mailer(app: IncidentContext, hook: Hook, timeout_ms: int) -> EmailNotifier:
    from kfm.sinks.incident_messages import EmailNotifier

    return EmailNotifier(
        app.loaded.secret(hook.host or ""),
        port=hook.port,
        security=hook.security,
        user=app.loaded.secret(hook.user) if hook.user else None,
        password=app.loaded.secret(hook.password) if hook.password else None,
        sender=hook.sender or "",
        to=hook.to,
        timeout_ms=timeout_ms,
        ca_file=app.loaded.resolve(hook.ca_file) if hook.ca_file else None,
    )


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

    def __init__(self, store: Ledger, rule: HookRule) -> None:
        self._store = store
        self._hook = rule.name
        self._wants = partial(hook_wants, rule)

    def now_ms(self) -> int:
        return self._store.now_ms()

    def backlog(self, topic: str) -> Backlog:
        assert topic == TOPIC
        return self._store.hook_backlog(self._hook)

    def claim_messages(self, topic: str, limit: int, claim_ms: int) -> list[OutboxMessage]:
        assert topic == TOPIC
        return self._store.claim_for_hook(self._hook, limit, claim_ms, self._wants)

    def messages_delivered(self, numbers: Sequence[int]) -> None:
        self._store.hook_delivered(self._hook, numbers)

    def messages_put_back(self, numbers: Sequence[int], not_before_ms: int) -> None:
        self._store.hook_put_back(self._hook, numbers, not_before_ms)


def deliver_incidents(app: IncidentContext, *, on_request: bool = False) -> list[HookPass]:
    """Deliver to each hook, for a bounded time. A hook's error is part of the result.

    After a run a hook has the time of one call; on request it has longer, and what rests is tried at once.
    """
    store = app.store
    if store is None:
        return []
    store.end_lapsed_silences()
    escalate_due(app.settings, store)
    if not store.backlog(TOPIC).waiting:
        return []
    passes = []
    for hook in app.settings.incidents:
        name = hook_name(hook)
        if on_request:
            store.hasten_hook(name)
        delivered = deliver_messages(
            _Mail(store, hook_rule(hook)),
            partial(make_collector, app, hook),
            app.clock,
            topic=TOPIC,
            batch=BATCH,
            deadline_ms=ON_REQUEST_MS if on_request else int(hook.timeout_seconds * 1000),
        )
        passes.append(HookPass(hook=name, delivered=delivered))
    store.settle_hooks([hook_name(hook) for hook in app.settings.incidents])
    return passes


def escalate_due(settings: Settings, store: Ledger) -> list[Incident]:
    """Escalate what stayed unacknowledged for as long as its dataset says, by the ledger's clock."""
    after = {one.id: one.escalate.after for one in settings.datasets if one.escalate is not None}
    if not after:
        return []
    now_ms, done = store.now_ms(), []
    for incident in store.incidents(state="open", limit=ESCALATED_MAX):
        at_ms = escalates_at_ms(incident, after.get(incident.name) if incident.about == "dataset" else None)
        if at_ms is not None and at_ms <= now_ms and store.escalate_incident(incident):
            done.append(incident)
    return done


def send_test(app: IncidentContext, wanted: str) -> tuple[str, str | None]:
    """Send a test notification to one hook: its id, and what went wrong, if anything did."""
    hooks = {hook_name(hook): hook for hook in app.settings.incidents}
    if wanted not in hooks:
        raise UsageError(
            f"There is no hook `{wanted[:60]}`{did_you_mean(wanted, sorted(hooks))}",
            remedy="`incidents` in the configuration names them.",
        )
    now_ms = app.clock.now_ms()
    renderer = make_incident_renderer(app.loaded, lambda name: name)
    change = renderer.test(wanted, now_ms)
    message = OutboxMessage(
        number=0,
        event_id=change.id,
        topic=TOPIC,
        subject=change.data.cause,
        body=canonical_bytes(msgspec.to_builtins(change)).decode(),
        recorded_at_ms=now_ms,
    )
    try:
        collector = make_collector(app, hooks[wanted])
        try:
            collector.deliver([message])
        finally:
            collector.close()
    except KfmError as error:
        return change.id, error.detail
    return change.id, None


# --- what people decide ------------------------------------------------------------------


def acknowledge_incident(app: IncidentContext, incident: Incident, by: Justification) -> Incident:
    """A person has seen it; the decision is kept in the audit log."""
    store = app.store
    assert store is not None
    entry = _entry(app, "incident-acknowledged", f"{incident.about}:{incident.name}", by, incident)
    if not store.acknowledge_incident(incident, by.actor, entry):
        seen = store.find_incidents(incident.cause)[0]
        was = f"acknowledged by {seen.acknowledged_by}" if seen.acknowledged_at_ms is not None else "resolved"
        raise UsageError(f"It is {was} already.", remedy="`kfm incident show` has the time.")
    return store.find_incidents(incident.cause)[0]


def assign_incident(app: IncidentContext, incident: Incident, person: str, by: Justification) -> Incident:
    """A person looks after it from now on; the decision is kept in the audit log."""
    store = app.store
    assert store is not None
    known = [one.subject for one in app.settings.people]
    if known and person not in known:
        raise UsageError(
            f"There is no person `{person[:60]}`{did_you_mean(person[:60], known)}",
            remedy="`people` in the configuration names them.",
        )
    subject = f"{incident.about}:{incident.name}"
    entry = _entry(app, "incident-assigned", subject, by, incident, person=person)
    if not store.assign_incident(incident, person, entry):
        raise UsageError("It is resolved already.", remedy="`kfm incident show` has the time.")
    return store.find_incidents(incident.cause)[0]


def silence(app: IncidentContext, scope: str, until_ms: int, by: Justification) -> Silence:
    """Send nothing of a dataset or an incident until then; the decision is kept in the audit log."""
    store = app.store
    assert store is not None
    now_ms = store.now_ms()
    if not now_ms < until_ms <= now_ms + SILENCE_MS_MAX:
        raise UsageError(
            "A silence ends in the future, at most 90 days ahead.",
            remedy="Name such an end, with --until or --for.",
        )
    made = Silence(
        scope=scope, set_at_ms=now_ms, until_ms=until_ms, set_by=by.actor, rationale=by.rationale or ""
    )
    store.silence(made, _entry(app, "incident-silenced", scope, by, until=rfc3339(until_ms)))
    return made


def end_silence(app: IncidentContext, scope: str, by: Justification) -> None:
    """End a silence before its time; the decision is kept in the audit log."""
    store = app.store
    assert store is not None
    if not store.end_silence(scope, _entry(app, "incident-silence-ended", scope, by)):
        raise UsageError("It is not silenced.", remedy="`kfm incident list` shows what is.")


def _entry(
    app: IncidentContext,
    kind: str,
    subject: str,
    by: Justification,
    incident: Incident | None = None,
    **facts: Any,
) -> GovernanceEntry:
    assert app.store is not None
    if incident is not None:
        facts |= {
            "incident_id": incident.incident_id,
            "error_class": incident.error_class,
            "code": incident.error_code,
            "affected": incident.affected,
        }
    return governance_entry(kind, subject, app.store.now_ms(), by, **facts)


def is_silenceable(app: IncidentContext, dataset_id: str) -> bool:
    """A dataset that is declared, a feed, or one that had an incident: those of announced objects need no
    declaration."""
    store = app.store
    assert store is not None
    if app.settings.declared(dataset_id) is not None or dataset_id in feed_names(app.settings):
        return True
    found = store.incidents(limit=ESCALATED_MAX)
    return any(one.about == "dataset" and one.name == dataset_id for one in found)


def silence_scope(app: IncidentContext, wanted: str) -> str:
    """What a person means: a dataset by its name, or an incident by its id."""
    store = app.store
    assert store is not None
    named = app.settings.dataset_id(wanted) or wanted
    if is_silenceable(app, named):
        return f"dataset:{named}"
    from kfm.reports.incidents import find_incident

    return f"incident:{find_incident(store, wanted).incident_id}"


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
    by = justified(app.loaded.discretion.said, actor, rationale, ticket, claimed_actor)
    entry = _entry(app, "incident-closed", f"{incident.about}:{incident.name}", by, incident)
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
    if hook.kind == "email":
        _mailer(app, hook, int(hook.timeout_seconds * 1000)).probe()
        return
    if hook.kind == "webhook":
        from kfm.model.webhook_signatures import standard_secret

        for secret in app.loaded.secret(hook.secret or "").split():
            standard_secret(secret)
    make_collector(app, hook).close()
