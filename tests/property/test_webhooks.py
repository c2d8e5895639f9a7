"""What holds for every webhook, from any sender and of any form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.webhooks import HEADERS, WebhookEnvelope, WebhookRefusal, as_request, read_webhook
from tests.webhook_samples import NOW_MS, encoded, github, kfm, payload, source, standard, to

pytestmark = pytest.mark.req("UPD-12")

UUIDS = st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50)
SIGNERS = st.sampled_from([kfm, github, standard])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(UUIDS, st.dictionaries(st.sampled_from(["rationale", "ticket", "actor"]), TEXTS), st.booleans())
def test_what_a_sender_says_is_what_is_kept(uuid: str, said: dict[str, str], dry_run: bool) -> None:
    """Every allowed text comes through unchanged, and only what was said."""
    body = encoded(payload(request_uuid=uuid, metadata=said, dry_run=dry_run))
    found = read_webhook(to(), kfm(body), body, NOW_MS)
    assert isinstance(found, WebhookEnvelope)
    request = as_request(found, source(), NOW_MS)
    assert found.dry_run is dry_run
    assert request.request_uuid == uuid
    assert (request.rationale, request.ticket) == (said.get("rationale"), said.get("ticket"))
    assert request.claimed_actor == said.get("actor")


@given(SIGNERS, st.data())
def test_one_changed_bit_is_enough(sign: Any, data: st.DataObject) -> None:
    """No bit of a body can be turned, and none be added or taken away, without losing the signature."""
    body = encoded(payload()) if sign is kfm else encoded({"a": [1, {"b": "c"}]})
    headers = sign(body)
    at = data.draw(st.integers(0, len(body) - 1))
    bit = data.draw(st.integers(0, 7))
    turned = body[:at] + bytes([body[at] ^ (1 << bit)]) + body[at + 1 :]
    for other in (turned, body[:at] + body[at + 1 :], body[:at] + b" " + body[at:]):
        found = read_webhook(to(), headers, other, NOW_MS)
        assert isinstance(found, WebhookRefusal)
        assert (found.status, found.reason) == (403, "mismatch")


@given(st.dictionaries(st.sampled_from(sorted(HEADERS)), st.text(max_size=100)), st.binary(max_size=200))
def test_nothing_that_is_sent_raises(headers: dict[str, str], body: bytes) -> None:
    """Any headers and any bytes are refused by a status of ours."""
    found = read_webhook(to(), headers, body, NOW_MS)
    assert isinstance(found, WebhookRefusal)
    assert found.status in (401, 403)


@given(SIGNERS, st.one_of(st.binary(max_size=200), st.dictionaries(TEXTS, VALUES, max_size=5).map(encoded)))
def test_nothing_that_is_signed_raises(sign: Any, body: bytes) -> None:
    """A sender who has the secret may send anything: it is accepted, or refused by rule."""
    found = read_webhook(to(), sign(body), body, NOW_MS)
    if isinstance(found, WebhookRefusal):
        assert found.status in (400, 403)
    else:
        assert as_request(found, source(), NOW_MS).window_end_ms <= NOW_MS


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_the_same_delivery_is_the_same_request(document: dict[str, Any]) -> None:
    """By its body where it has no other name; another body is another request."""
    own = {name: value for name, value in document.items() if name not in ("source_id", "dry_run")}
    one, two = encoded(own), encoded({**own, "more": 1, "request_uuid": None})
    found = [read_webhook(to(), github(body), body, NOW_MS) for body in (one, one, two)]
    ids = [
        as_request(each, source(), NOW_MS).request_id for each in found if isinstance(each, WebhookEnvelope)
    ]
    if len(ids) == 3:
        assert ids[0] == ids[1] != ids[2]
