"""Keys and names: trigger keys, work keys, the ids that follow from them, URNs of evidence."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha1, sha256
from typing import Any

from kfm.model.canonical import canonical_bytes, utf16_order
from kfm.model.errors import UsageError
from kfm.model.input_hash import sha256_text
from kfm.model.records import Trigger, TriggerType, Work
from kfm.model.settings import SourceSettings
from kfm.model.times import rfc3339

TRIGGER_TAG = "trigger/1"
WEBHOOK_TAG = "trigger/2"
WORK_TAG = "work/1"
SCHEDULE_TAG = "schedule/1"
RUN_TAG = "run/1"
REQUEST_TAG = "request/1"
UNITS = "2c1f5a55-7c52-5a0b-9a38-3c7f4a0e6a11"  # ours alone: a unit's id is no UUID, so it gets one in here
NAMESPACE = "urn:kfm:"
TERMS = "urn:kfm:terms#"  # kfm's own words in linked data


def key_of(document: dict[str, Any]) -> str:
    """The key that a document stands for."""
    return sha256_text(canonical_bytes(document))


# --- the work ------------------------------------------------------------------------


def work_document(work: Work, revision: int | None = None) -> dict[str, Any]:
    """What is done, whatever triggered it. The window counts by its instants, never by how it was written."""
    document = {
        "kfm": WORK_TAG,
        "source_id": work.source_id,
        "window_start": rfc3339(work.window.start_ms),
        "window_end": rfc3339(work.window.end_ms),
        "partition": work.partition,
        "output_version": work.output_version,
    }
    return document if revision is None else {**document, "revision": _whole(revision, "revision")}


def work_base(work: Work) -> str:
    """The key that all revisions of one work share."""
    return key_of(work_document(work))


def work_key(work: Work, revision: int = 0) -> str:
    return key_of(work_document(work, revision))


def run_id(environment: str, work_key: str) -> str:
    """The same work has the same id everywhere: a UUIDv8 of its key and environment."""
    document = {"kfm": RUN_TAG, "environment": environment, "work_key": work_key}
    return _uuid_text(sha256(canonical_bytes(document)).digest(), version=8)


# --- the triggers --------------------------------------------------------------------


def manual_document(trigger: Trigger, work: Work) -> dict[str, Any]:
    return {
        "kfm": TRIGGER_TAG,
        "trigger_type": "manual",
        "source_id": work.source_id,
        "window": _window(work),
        "pipeline_version": work.output_version,
        **_partition(work),
        **_overrides(trigger),
    }


def cron_document(trigger: Trigger, work: Work) -> dict[str, Any]:
    """The source is named beside the dataset: two sources may feed one dataset in one period."""
    return {
        "kfm": TRIGGER_TAG,
        "trigger_type": "cron",
        "dataset_id": trigger.dataset_id,
        "source_id": work.source_id,
        "period": _window(work),
        "partition": work.partition,
        "code_sha": work.output_version,
        **_overrides(trigger),
    }


def webhook_document(trigger: Trigger) -> dict[str, Any]:
    """The source and the request alone: its id is good for one use there, whatever it asks for."""
    former = former_webhook_document(trigger)
    return {**former, "kfm": WEBHOOK_TAG, "source_id": trigger.source_id}


def former_webhook_document(trigger: Trigger) -> dict[str, Any]:
    """As earlier versions made it, without the source: their requests are still found by it."""
    return {
        "kfm": TRIGGER_TAG,
        "trigger_type": "webhook",
        "request_uuid": _required(trigger.request_uuid, "request_uuid", "webhook"),
        **_overrides(trigger),
    }


def upstream_event_document(trigger: Trigger, code_sha: str | None = None) -> dict[str, Any]:
    """One event by its message, or by the object and its content; several by their sorted keys."""
    document: dict[str, Any] = {
        "kfm": TRIGGER_TAG,
        "trigger_type": "upstream-event",
        "source_id": trigger.source_id,
    }
    if trigger.member_keys:
        document["member_keys"] = coalesced(trigger.member_keys)
    elif trigger.message_id:
        document["message_id"] = trigger.message_id
    else:
        document["source_uri"] = _required(trigger.source_uri, "source_uri or message_id", "upstream-event")
        document["content_tag"] = _required(trigger.content_tag, "content_tag", "upstream-event")
    if code_sha is not None:
        document["code_sha"] = code_sha
    return {**document, **_overrides(trigger)}


def coalesced(member_keys: Iterable[str]) -> list[str]:
    """The keys of coalesced events: sorted, each once, so that arrival order does not matter."""
    return sorted(set(member_keys), key=utf16_order)


def schedule_instant_document(schedule_id: str, utc_instant_ms: int) -> dict[str, Any]:
    return {"kfm": SCHEDULE_TAG, "schedule_id": schedule_id, "utc_instant": rfc3339(utc_instant_ms)}


def webhook_key(trigger: Trigger) -> str:
    return key_of(webhook_document(trigger))


def former_webhook_key(trigger: Trigger) -> str:
    return key_of(former_webhook_document(trigger))


def schedule_instant_key(schedule_id: str, utc_instant_ms: int) -> str:
    """One firing of one schedule: stored as unique, so that an instant fires once in a fleet."""
    return key_of(schedule_instant_document(schedule_id, utc_instant_ms))


def trigger_document(trigger: Trigger, work: Work, revision: int = 0) -> dict[str, Any]:
    """The document behind `trigger_key`.

    A schedule or a person may ask for one work again once upstream has
    changed, so the revision is part of those keys. A webhook request or an
    upstream event is one fact: its key never changes with the revision, or a
    second delivery would pass as new.
    """
    if trigger.type == "webhook":
        return webhook_document(trigger)
    if trigger.type == "upstream-event":
        return upstream_event_document(trigger)
    if trigger.type == "cron":
        document = cron_document(trigger, work)
    elif trigger.type == "manual":
        document = manual_document(trigger, work)
    else:
        raise UsageError(f"A {trigger.type} has no key of its own: it keeps the key of its run.")
    return {**document, "revision": _whole(revision, "revision")} if revision else document


def names_itself(trigger: Trigger) -> bool:
    """Does it say what its key is made of? An attempt at the run of a request or an event, made again, does
    not: the run has the key, and its first attempt the document."""
    if trigger.type == "webhook":
        return trigger.request_uuid is not None
    if trigger.type == "upstream-event":
        return bool(trigger.member_keys or trigger.message_id or trigger.source_uri)
    return trigger.type != "retry"


def trigger_key(trigger: Trigger, work: Work, revision: int = 0) -> str:
    """The documented idempotency key: the same request acts once."""
    return key_of(trigger_document(trigger, work, revision))


def request_id(key: str) -> str:
    """The id of a request follows from its key, so that the same request can't be accepted twice."""
    return _uuid_text(sha256(canonical_bytes({"kfm": REQUEST_TAG, "key": key})).digest(), version=8)


# --- lineage ids ---------------------------------------------------------------------


@lru_cache(256)  # every event of a node names it
def attempt_id(run_id: str, attempt: int) -> str:
    """The lineage run of one attempt: UUIDv5 of the attempt's number in the run's namespace."""
    return uuid5(run_id, str(_whole(attempt, "attempt")))


def node_attempt_id(run_id: str, attempt: int, node: str) -> str:
    """The lineage run of one attempt at a node, in the namespace of its run's attempt."""
    return uuid5(attempt_id(run_id, attempt), node)


def refused_call_id(invocation_id: str) -> str:
    """The lineage run of an invocation that never became an attempt."""
    return uuid5(invocation_id, "0")


def unit_attempt_id(wal_id: str, attempt: int) -> str:
    """The lineage run of one attempt at a unit."""
    return uuid5(uuid5(UNITS, wal_id), str(_whole(attempt, "attempt")))


def held_unit_id(wal_id: str, version: int) -> str:
    """What is held of a unit, since it reached this version."""
    return uuid5(uuid5(UNITS, wal_id), f"held/{version}")


def uuid5(namespace: str, name: str) -> str:
    """RFC 9562 UUIDv5, text in and text out."""
    digest = sha1(uuid_bytes(namespace) + name.encode("utf-8"), usedforsecurity=False).digest()
    return _uuid_text(digest, version=5)


def uuid_bytes(text: str) -> bytes:
    digits = text.replace("-", "")
    if len(text) == 36 and len(digits) == 32:
        try:
            found = bytes.fromhex(digits)
        except ValueError:
            found = b""
        if len(found) == 16:  # it passes over blanks
            return found
    raise UsageError(f"{text[:64]!r} is not a UUID.")


def _uuid_text(digest: bytes, version: int) -> str:
    raw = bytearray(digest[:16])
    raw[6] = (raw[6] & 0x0F) | (version << 4)
    raw[8] = (raw[8] & 0x3F) | 0x80
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


# --- parts of documents --------------------------------------------------------------


def _window(work: Work) -> dict[str, str]:
    return {"start": rfc3339(work.window.start_ms), "end": rfc3339(work.window.end_ms)}


def _partition(work: Work) -> dict[str, Any]:
    return {} if work.partition is None else {"partition": work.partition}


def _overrides(trigger: Trigger) -> dict[str, Any]:
    members: dict[str, Any] = {}
    if trigger.force:
        members["force"] = _whole(trigger.force, "force")
    if trigger.correction is not None:
        members["correction"] = trigger.correction
    return members


def _required(value: str | None, field: str, kind: str) -> str:
    if not value:
        raise UsageError(f"A {kind} trigger needs its {field}.")
    return value


def _whole(value: int, field: str) -> int:
    if type(value) is not int or value < 0:
        raise UsageError(f"{field} is {value!r}; it counts from 0 upwards.")
    return value


def make_trigger(
    source: SourceSettings,
    *,
    kind: TriggerType = "manual",
    actor: str,
    claimed_actor: str | None = None,
    rationale: str | None = None,
    ticket: str | None = None,
    correction: str | None = None,
    message_id: str | None = None,
    request_uuid: str | None = None,
    envelope: dict[str, str] | None = None,
) -> Trigger:
    return Trigger(
        type=kind,
        source_id=source.id,
        dataset_id=source.dataset,
        correction=correction,
        message_id=message_id,
        request_uuid=request_uuid,
        envelope=envelope or {},
        actor=actor,
        claimed_actor=claimed_actor,
        rationale=rationale,
        ticket=ticket,
    )


def _urn(kind: str, *parts: str) -> str:
    from urllib.parse import quote  # late: most commands name nothing

    return NAMESPACE + ":".join(
        (kind, *(quote(part, safe="@+=,;!~*'()/", errors="replace") for part in parts))
    )


def run_urn(run_id: str) -> str:
    return _urn("run", run_id)


def attempt_urn(lineage_id: str) -> str:
    """An attempt of a run or of a node, by its OpenLineage run."""
    return _urn("attempt", lineage_id)


def invocation_urn(invocation_id: str) -> str:
    return _urn("invocation", invocation_id)


def dataset_urn(dataset_id: str) -> str:
    return _urn("dataset", dataset_id)


def version_urn(version_id: str) -> str:
    return _urn("version", bare_hex(version_id))


def publication_urn(dataset_id: str, sequence: int) -> str:
    """A dataset as readers saw it under one number: the same content may be published twice."""
    return _urn("publication", dataset_id, str(sequence))


def change_urn(change_id: str) -> str:
    """A person's change of a dataset."""
    return _urn("change", change_id)


def tombstone_urn(change_id: str) -> str:
    """What stands in the place of withdrawn data, by the change that withdrew it."""
    return _urn("tombstone", change_id)


def file_urn(dataset_id: str, path: str, sha256: str) -> str:
    """A published file: the same bytes in the same place are the same thing, in every version."""
    return _urn("file", dataset_id, bare_hex(sha256), path)


def file_of_urn(urn: str) -> tuple[str, str, str] | None:
    """Dataset, path and SHA-256 of a published file by its name; None: it is the name of something else."""
    from urllib.parse import unquote

    parts = urn.removeprefix(f"{NAMESPACE}file:").split(":", 2) if urn.startswith(f"{NAMESPACE}file:") else []
    return (parts[0], unquote(parts[2]), parts[1]) if len(parts) == 3 else None


def input_urn(sign: str) -> str:
    """An upstream object that has no address of its own that may be told."""
    return _urn("input", sign)


def inputs_urn(fingerprint: str) -> str:
    return _urn("inputs", bare_hex(fingerprint))


def policies_urn(bundle_id: str) -> str:
    return _urn("policies", bare_hex(bundle_id))


def policy_urn(bundle_id: str, policy_id: str) -> str:
    return _urn("policy", bare_hex(bundle_id), policy_id)


def software_urn(version: str | None) -> str:
    return _urn("software", "kfm", version or "unknown")


def agent_urn(name: str) -> str:
    return _urn("agent", name)


def object_urn(wal_id: str, content_version: int) -> str:
    """The bytes that were announced under a unit's key, by the number of their content version."""
    return _urn("object", wal_id, str(content_version))


def item_urn(collection_id: str, item_id: str) -> str:
    """An item of the catalogue."""
    return _urn("item", collection_id, item_id)


def node_urn(run_id: str, node: str) -> str:
    """A node of a pipeline at work in a run."""
    return _urn("node", run_id, node)


def result_urn(run_id: str, node: str) -> str:
    """What a node made in a run."""
    return _urn("result", run_id, node)


def graph_urn(digest: str) -> str:
    """A pipeline's graph, by its hash."""
    return _urn("graph", bare_hex(digest))


def bare_hex(checksum: str) -> str:
    """`sha256:<hex>` without its prefix."""
    return checksum.removeprefix("sha256:")
