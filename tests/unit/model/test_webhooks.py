"""Webhooks are believed by their signed bytes alone, and refused without a word too many."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.keys import request_id, webhook_key
from kfm.model.records import Trigger
from kfm.model.settings import SourceSettings, Webhook
from kfm.model.times import rfc3339
from kfm.model.webhooks import WebhookEnvelope, WebhookRefusal, as_request, read_webhook, receiver
from tests.webhook_samples import (
    NOW_MS,
    OLD_SECRET,
    SECRET,
    encoded,
    github,
    kfm,
    payload,
    source,
    standard,
    to,
)


def accepted(headers: dict[str, str], body: bytes, now_ms: int = NOW_MS, **more: Any) -> WebhookEnvelope:
    found = read_webhook(to(**more), headers, body, now_ms)
    assert isinstance(found, WebhookEnvelope), found
    return found


def refused(headers: dict[str, str], body: bytes, now_ms: int = NOW_MS, **more: Any) -> tuple[int, str]:
    found = read_webhook(to(**more), headers, body, now_ms)
    assert isinstance(found, WebhookRefusal), found
    return found.status, found.reason


@pytest.mark.req("UPD-12")
def test_a_signed_payload_becomes_a_request() -> None:
    """Window, actor, reason and the facts of the check are what the request says, and nothing else is."""
    body = encoded(
        payload(
            request_uuid="5f0c-1",
            metadata={
                "window": "2026-01-01/P1D",
                "rationale": "late gauges",
                "ticket": "OPS-7",
                "actor": "ana",
                "correction": "c1",
            },
            integrity={"sha256": "00ff", "size": 3},
        )
    )
    envelope = accepted(kfm(body), body)
    request = as_request(envelope, source(approval="required"), NOW_MS)
    assert (request.window_start_ms, request.window_end_ms) == (1_767_225_600_000, 1_767_312_000_000)
    assert (request.kind, request.actor, request.claimed_actor) == ("webhook", "webhook:gauges", "ana")
    assert (request.rationale, request.ticket, request.correction) == ("late gauges", "OPS-7", "c1")
    assert request.envelope_hash == "sha256:" + hashlib.sha256(body).hexdigest()
    assert request.needs_approval
    assert request.accepted_at_ms == NOW_MS
    assert request.details["scheme"] == "kfm"
    assert request.details["secret_index"] == 0
    assert request.details["checks"] == ["signature", "freshness"]
    assert "00ff" not in str(request), "of an integrity claim the hash is kept"
    trigger = Trigger(type="webhook", source_id="gauges", dataset_id="rivers", request_uuid="5f0c-1")
    assert request.key == webhook_key(trigger)
    assert request.request_id == request_id(request.key)


@pytest.mark.req("UPD-12")
def test_the_window_is_the_last_complete_one_when_it_was_accepted() -> None:
    """Without a window of its own a request means the source's, as it is now; a late start moves nothing."""
    body = encoded(payload())
    request = as_request(accepted(kfm(body), body), source(), NOW_MS)
    assert request.window_end_ms <= NOW_MS
    assert request.window_end_ms - request.window_start_ms == 86_400_000


@pytest.mark.req("UPD-12")
@pytest.mark.parametrize("sign", [kfm, github, standard])
def test_any_active_secret_signs(sign: Any) -> None:
    """While a secret is replaced both count, and the request tells which was used."""
    body = encoded({} if sign is not kfm else payload())
    assert accepted(sign(body, SECRET), body).secret_index == 0
    if sign is standard:
        two = receiver(source(), (OLD_SECRET, SECRET))  # the first is no secret of this scheme
        found = read_webhook(two, standard(body), body, NOW_MS)
        assert isinstance(found, WebhookEnvelope)
        assert found.secret_index == 1
    else:
        assert accepted(sign(body, OLD_SECRET), body).secret_index == 1
    assert refused(sign(body, "whsec_" + "QUJD" * 8), body) == (403, "mismatch")


@pytest.mark.req("UPD-12")
def test_the_standard_library_of_others_is_understood() -> None:
    """What the Standard Webhooks library signs is accepted, known by its signed id."""
    from standardwebhooks.webhooks import Webhook as Foreign

    body = '{"type": "gauges.reported", "data": {"n": 1}}'
    at = datetime.fromtimestamp(NOW_MS // 1000, tz=UTC)
    signature = Foreign(SECRET).sign("msg_2Lh", at, body)
    headers = {
        "webhook-id": "msg_2Lh",
        "webhook-timestamp": str(NOW_MS // 1000),
        "webhook-signature": f"v1a,AAAA {signature}",
    }
    envelope = accepted(headers, body.encode())
    assert (envelope.scheme, envelope.known_by) == ("standard", "webhook-id")
    assert envelope.event_type == "gauges.reported"
    assert envelope.request_uuid == "gauges/id/msg_2Lh"
    moved = {**headers, "webhook-id": "msg_2Li"}
    assert refused(moved, body.encode()) == (403, "mismatch")
    late = NOW_MS + 300_000 + 251
    assert refused(headers, body.encode(), late) == (403, "stale")


@pytest.mark.req("UPD-12")
def test_no_other_scheme_is_tried() -> None:
    """A signature that fails is not saved by another one that would hold."""
    body = encoded(payload())
    bad = {"x-kfm-signature": "sha256=" + "0" * 64}
    assert refused({**github(body), **standard(body), **bad}, body) == (403, "mismatch")
    assert refused({**github(body), "webhook-id": "msg_1"}, body) == (403, "missing")
    foreign = encoded({"a": 1})
    unsigned = {**standard(foreign), "webhook-signature": "v1,AAAA"}
    assert refused({**github(foreign), **unsigned}, foreign) == (403, "mismatch")


@pytest.mark.req("UPD-12")
def test_unsigned_is_not_mismatched() -> None:
    """Nothing signed is 401, a wrong signature 403, too large 413: in this order of knowledge."""
    body = encoded(payload())
    assert refused({}, body) == (401, "unsigned")
    assert refused({"x-kfm-signature": ""}, body) == (403, "missing")
    assert refused({"x-kfm-signature": "md5=00"}, body) == (403, "malformed")
    found = read_webhook(to(), kfm(body), body, NOW_MS, body_max=len(body) - 1)
    assert isinstance(found, WebhookRefusal)
    assert found.status == 413


@pytest.mark.req("UPD-12")
@pytest.mark.parametrize(("moved_ms", "reason"), [(-301_000, "stale"), (301_000, "future")])
def test_what_was_not_sent_about_now_is_refused(moved_ms: int, reason: str) -> None:
    """A recorded message is of no use later, nor one that was made for later."""
    body = encoded(payload())
    assert refused(kfm(body), body, NOW_MS - moved_ms) == (403, reason)
    assert accepted(kfm(body), body, NOW_MS - moved_ms, tolerance_seconds=400.0)


@pytest.mark.req("UPD-12")
def test_a_message_of_ours_is_not_taken_under_another_header() -> None:
    """GitHub's code is the same over the same bytes, without a time: an old message must not become new."""
    body = encoded(payload())
    assert refused(github(body), body, NOW_MS + 86_400_000) == (403, "downgrade")


@pytest.mark.req("UPD-12")
@pytest.mark.parametrize("sign", [kfm, github, standard])
@pytest.mark.parametrize("other", ["rivers", "GAUGES", "", None, 7])
def test_another_source_is_refused(sign: Any, other: Any) -> None:
    """A body that names another source than the address is refused, whatever signed it."""
    document = {**payload(), "source_id": other} if sign is kfm else {"source_id": other}
    body = encoded(document)
    assert refused(sign(body), body) == (403, "other-source")


@pytest.mark.req("UPD-12")
def test_which_request_it_is_stands_in_signed_bytes() -> None:
    """By `request_uuid`, else by the signed id, else by the body; never by an unsigned header."""
    plain, named = encoded({"a": 1}), encoded({"a": 1, "request_uuid": "u-1"})
    assert accepted(github(named), named).request_uuid == "u-1"
    assert accepted(standard(named), named).known_by == "request_uuid"
    by_body = accepted({**github(plain), "x-github-delivery": "d-1", "request-uuid": "u"}, plain)
    digest = hashlib.sha256(plain).hexdigest()
    assert (by_body.known_by, by_body.request_uuid) == ("body", f"gauges/body/sha256:{digest}")
    body = encoded(payload())
    assert accepted(kfm(body), body).known_by == "body"


@pytest.mark.req("UPD-12")
def test_two_sources_may_get_the_same_body() -> None:
    """What is known by its body is known for its source: no source takes away another's."""
    body = encoded({"a": 1})
    webhook = Webhook(secrets=("env:NEW",))
    other = receiver(
        SourceSettings(id="wells", dataset="w", kind="files", folder=".", webhook=webhook), (SECRET,)
    )
    found = read_webhook(other, github(body), body, NOW_MS)
    assert isinstance(found, WebhookEnvelope)
    assert found.request_uuid != accepted(github(body), body).request_uuid


@pytest.mark.req("UPD-12", "TRG-4")
def test_a_dry_run_in_githubs_way_has_a_time() -> None:
    """A captured one is stale after a while, and one without a time is none: it could be sent for ever."""
    timed = encoded({"dry_run": True, "sent_at": rfc3339(NOW_MS)})
    assert refused(github(timed), timed, NOW_MS + 301_000) == (403, "stale")
    assert refused(github(timed), timed, NOW_MS - 301_000) == (403, "future")
    for sent_at in ({}, {"sent_at": 5}, {"sent_at": "yesterday"}, {"sent_at": None}):
        body = encoded({"dry_run": True, **sent_at})
        assert refused(github(body), body)[0] == 400
    plain = encoded({"sent_at": "whenever"})  # the sender's own, where nothing depends on it
    assert not accepted(github(plain), plain).dry_run


@pytest.mark.req("UPD-12")
def test_dry_run_and_ping_are_read_from_signed_bytes() -> None:
    """A dry-run is one because the body says so."""
    body = encoded(payload(dry_run=True))
    assert accepted(kfm(body), body).dry_run
    plain = encoded({})
    assert not accepted({**github(plain), "dry_run": "true"}, plain).dry_run
    timed = encoded({"dry_run": True, "sent_at": rfc3339(NOW_MS)})
    assert accepted(github(timed), timed).dry_run
    ping = encoded({"zen": "z", "hook_id": 1, "hook": {}})
    assert accepted({**github(ping), "x-github-event": "push"}, ping).is_ping


@pytest.mark.req("UPD-12")
@pytest.mark.parametrize(
    "change",
    [
        {"trigger": "cron"},
        {"trigger": None},
        {"event_type": ""},
        {"event_type": "a\nb"},
        {"event_type": "x" * 101},
        {"sent_at": "yesterday"},
        {"sent_at": "2026-09-21T14:13:20+02:00"},
        {"sent_at": 1_790_000_000},
        {"request_uuid": ""},
        {"request_uuid": "a/b"},
        {"request_uuid": "x" * 129},
        {"request_uuid": 5},
        {"dry_run": "true"},
        {"dry_run": 1},
        {"force": True},
        {"metadata": []},
        {"metadata": {"force": True}},
        {"metadata": {"window": "P0D"}},
        {"metadata": {"window": "2999-01-01/P1D"}},
        {"metadata": {"rationale": "x" * 4001}},
        {"integrity": {"a": {"b": 1}}},
        {"integrity": {str(number): 1 for number in range(33)}},
    ],
)
def test_a_payload_that_is_not_understood_is_refused(change: dict[str, Any]) -> None:
    """Every field is known and within its bounds, or nothing is done."""
    body = encoded(payload(**change))
    assert refused(kfm(body), body)[0] == 400


@pytest.mark.req("UPD-12")
@pytest.mark.parametrize("missing", ["source_id", "trigger", "event_type", "sent_at"])
def test_a_payload_has_its_four_fields(missing: str) -> None:
    """Each of them is required."""
    document = payload()
    del document[missing]
    body = encoded(document)
    assert refused(kfm(body), body)[0] == 400


@pytest.mark.req("UPD-12")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{} {}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": 9007199254740993}',
        b'{"a": 1, "a": 2}',
        b'{"b": {"a": 1, "a": 2}}',
        b'{"b": [{"a": 1, "\\u0061": 2}]}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xff"}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a":' * 200 + b"1" + b"}" * 200,
        b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
)
@pytest.mark.parametrize("sign", [kfm, github, standard])
def test_json_that_readers_disagree_about_is_refused(sign: Any, body: bytes) -> None:
    """However well it is signed: another reader might see another request in it."""
    assert refused(sign(body), body)[0] == 400


@pytest.mark.req("UPD-12")
def test_the_older_form_passes_only_where_it_was_asked_for() -> None:
    """sha256(secret + body) is accepted by a source that opts in, and an extended message by none."""
    body = encoded(payload())
    headers = {"x-kfm-signature": "sha256=" + hashlib.sha256(SECRET.encode() + body).hexdigest()}
    assert refused(headers, body) == (403, "mismatch")
    assert accepted(headers, body, signature="legacy-concat").secret_index == 0
    assert accepted(kfm(body), body, signature="legacy-concat")
    # What length extension yields: the body, the padding of its hash, and words of the attacker's own.
    padding = b"\x80" + b"\x00" * 37 + (8 * (len(SECRET) + len(body))).to_bytes(8, "big")
    longer = body + padding + b',"dry_run":false}'
    forged = {"x-kfm-signature": "sha256=" + hashlib.sha256(SECRET.encode() + longer).hexdigest()}
    assert refused(forged, longer, signature="legacy-concat")[0] == 400
    hub = {"x-hub-signature-256": headers["x-kfm-signature"]}
    assert refused(hub, encoded({}), signature="legacy-concat") == (403, "mismatch")


@pytest.mark.req("TRG-9")
def test_a_refusal_tells_a_stranger_nothing() -> None:
    """Whatever is wrong with a signature, the answer is the same; the word for the log is another."""
    body = encoded(payload())
    answers = {
        (found.status, found.code, found.detail)
        for headers in (
            {"x-kfm-signature": "sha256=" + "0" * 64},
            {"x-kfm-signature": "nonsense"},
            {"webhook-id": "a"},
            {**standard(body), "webhook-id": 'a{"'},
            {"x-hub-signature-256": "sha1=00"},
        )
        if isinstance(found := read_webhook(to(), headers, body, NOW_MS), WebhookRefusal)
    }
    assert len(answers) == 1


@pytest.mark.req("UPD-12")
def test_a_correction_does_not_make_a_request_new() -> None:
    """One `request_uuid` is one request, whatever else the second message says."""
    one = encoded(payload(request_uuid="u"))
    two = encoded(payload(request_uuid="u", metadata={"correction": "other", "window": "P1M"}))
    first, second = accepted(kfm(one), one), accepted(kfm(two), two)
    assert as_request(first, source(), NOW_MS).request_id == as_request(second, source(), NOW_MS).request_id
    assert replace(first, request_uuid="v") != first
