"""Signatures of announcements: who said this?"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kfm.model.errors import UpstreamUnavailable
from kfm.nodd.messages import sns_signatures
from kfm.nodd.messages.sns_signatures import FETCHES_MAX, FINAL_MS, SILENT_MS, Verifier
from tests.sns_topic import (
    ADDRESS,
    DAY_MS,
    HOST,
    OTHER_TOPIC,
    TOPIC,
    TOPICS,
    Shelf,
    body,
    certificate,
    curve_key,
    notification,
    other_key,
    rsa_key,
    signed,
)
from tests.stand_ins import FakeClock

pytestmark = pytest.mark.req("WAL-20")
SILENCE = UpstreamUnavailable("no answer", transient=True)


class Desk:
    def __init__(self, shelf: Shelf | None = None) -> None:
        self.shelf = shelf or Shelf()
        self.clock = FakeClock()
        self.verifier = Verifier(self.shelf, self.clock, TOPICS)

    def code(self, document: Any) -> str | None:
        refusal = self.verifier.check(document if isinstance(document, bytes) else body(document))
        return None if refusal is None else refusal.code


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("fields", [{}, {"Subject": "Amazon S3 Notification"}, {"MessageAttributes": {}}])
def test_what_a_topic_signed_passes(version: str, fields: dict[str, Any]) -> None:
    """With SHA-1 or SHA-256, with a subject or without, spelled as Lambda spells it or not."""
    desk = Desk()
    text = '{"Records": "Grüße\\n東京"}\nand more\n'
    document = signed(notification(text, SignatureVersion=version, **fields))
    assert desk.code(document) is None
    document["SigningCertUrl"] = document.pop("SigningCertURL")
    assert desk.code(document) is None
    assert desk.shelf.asked == [ADDRESS]


def test_an_empty_subject_is_none() -> None:
    """A subject that is null was not signed."""
    assert Desk().code(signed(notification()) | {"Subject": None}) is None


TAMPERED: dict[str, dict[str, Any]] = {
    "message": {"Message": '{"Records": []}'},
    "id": {"MessageId": "another"},
    "time": {"Timestamp": "2026-01-01T00:00:00.001Z"},
    "subject": {"Subject": "new"},
    "topic": {"TopicArn": TOPIC.replace("NewMRMS", "NewGOES")},
    "version": {"SignatureVersion": "1"},
    "unknown version": {"SignatureVersion": "3"},
    "number for a version": {"SignatureVersion": 2},
    "not base64": {"Signature": "ü"},
    "not quite base64": {"Signature": "AAAA\n"},
    "short": {"Signature": "AAAA"},
    "long": {"Signature": "A" * 1_000_000},
    "no text": {"Signature": ["A"]},
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_whatever_is_changed_is_refused(change: dict[str, Any]) -> None:
    """Any signed field, the signature itself, or the way it was made."""
    desk = Desk()
    desk.verifier = Verifier(desk.shelf, desk.clock, {*TOPICS, TAMPERED["topic"]["TopicArn"]})
    assert desk.code(signed(notification()) | change) == "SIGNATURE_INVALID"


def test_another_key_is_refused() -> None:
    """A valid signature by another certificate is refused."""
    assert Desk().code(signed(notification(), other_key())) == "SIGNATURE_INVALID"


@pytest.mark.parametrize(
    "moved",
    [
        # The same signed text, cut into fields elsewhere.
        {"MessageId": "22b80b92\nSubject\nwas a subject"},
        {"Message": "{}\nMessageId\n22b80b92\nSubject\nwas a subject", "MessageId": None},
        {"Message": "{}\nMessageId\n22b80b92\nSubject\nwas a subject"},
        {"Subject": "was a subject\nTimestamp\n2026-01-01T00:00:00.000Z", "Timestamp": None},
    ],
)
def test_fields_can_not_be_moved_into_each_other(moved: dict[str, Any]) -> None:
    """What is signed has lines only: a text that could be read as other fields is refused."""
    document = signed(notification(MessageId="22b80b92", Subject="was a subject"))
    if "Subject" not in moved:
        del document["Subject"]
    changed = {name: value for name, value in (document | moved).items() if value is not None}
    assert Desk().code(changed) in ("ENVELOPE_INVALID", "SIGNATURE_INVALID")


@pytest.mark.parametrize(
    "document",
    [
        {"Records": [{"eventSource": "aws:s3"}]},
        [signed(notification())],
        {"Records": [{"EventSource": "aws:sns", "Sns": signed(notification())}]},
        notification(),
        {name: value for name, value in signed(notification()).items() if name != "SigningCertURL"},
        signed(notification()) | {"Signature": ""},
    ],
)
def test_what_is_not_signed_is_refused(document: Any) -> None:
    """Raw messages too, and signed ones within unsigned ones: nothing is fetched for any of them."""
    desk = Desk()
    assert desk.code(document) == "SIGNATURE_MISSING"
    assert desk.shelf.asked == []


TWICE = body(signed(notification())).replace(b'{"Type"', b'{"Message": "x", "Type"', 1)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "BODY_EMPTY"),
    "no text": (b"\xff", "BODY_NOT_UTF8"),
    "no JSON": (b"{", "BODY_NOT_JSON"),
    "deep": (b"[" * 100, "BODY_TOO_DEEP"),
    "large": (b" " * 2_000_000 + b"1", "BODY_TOO_LARGE"),
    "one name twice": (TWICE, "ENVELOPE_INVALID"),
    "not a number": (body(signed(notification()) | {"Extra": float("nan")}), "ENVELOPE_INVALID"),
    "a message that is no text": (body(signed(notification()) | {"Message": 7}), "ENVELOPE_INVALID"),
    "no topic": (body(signed(notification()) | {"TopicArn": None}), "ENVELOPE_INVALID"),
    "a strange topic": (body(signed(notification(TopicArn=TOPIC + "s"))), "TOPIC_NOT_ALLOWED"),
    "two certificates": (body(signed(notification()) | {"SigningCertUrl": ADDRESS}), "CERTIFICATE_HOST"),
    "a number for an address": (body(signed(notification()) | {"SigningCertURL": 7}), "CERTIFICATE_HOST"),
}


@pytest.mark.parametrize(("raw", "code"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_bodies_are_refused_by_name(raw: bytes, code: str) -> None:
    """No input raises, and nothing is fetched for a message that would be refused anyway."""
    desk = Desk()
    assert desk.code(raw) == code
    assert desk.shelf.asked == []


@pytest.mark.parametrize(
    "address",
    [
        "http://sns.us-east-1.amazonaws.com/a.pem",
        "https://sns.eu-west-1.amazonaws.com/a.pem",
        "https://sns.us-east-1.amazonaws.com.example.org/a.pem",
        "https://sns.us-east-1.amazonaws.com:443/a.pem",
        "https://sns.us-east-1.amazonaws.com@example.org/a.pem",
        "https://example.org/sns.us-east-1.amazonaws.com/a.pem",
        f"{HOST}/a.pem?x=1",
        f"{HOST}/a.pem#x",
        f"{HOST}/../a.pem",
        f"{HOST}/?Action=GetEndpointAttributes&x=.pem",
        f"{HOST}/a/b.pem",
        f"{HOST}\\@example.org/a.pem",
        "https://SNS.us-east-1.amazonaws.com/a.pem",
        "https://169.254.169.254/latest/a.pem",
        "file:///etc/a.pem",
        "https://[::1/a.pem",
        HOST + "/" + "a" * 4000 + ".pem",
    ],
)
def test_certificates_come_from_the_topics_region_alone(address: str) -> None:
    """The sender of a message does not choose the host that is asked."""
    desk = Desk()
    assert desk.code(signed(notification()) | {"SigningCertURL": address}) == "CERTIFICATE_HOST"
    assert desk.shelf.asked == []


def test_another_regions_certificate_is_refused() -> None:
    """Each topic's region keeps its own."""
    desk = Desk()
    assert desk.code(signed(notification(TopicArn=OTHER_TOPIC))) == "CERTIFICATE_HOST"


@pytest.mark.parametrize("type_", ["SubscriptionConfirmation", "UnsubscribeConfirmation"])
def test_subscriptions_are_never_followed(type_: str) -> None:
    """They pass, since nothing comes of them: no address in them is ever asked."""
    desk = Desk()
    assert desk.code(notification(Type=type_, SubscribeURL=f"{HOST}/?Action=ConfirmSubscription")) is None
    assert desk.shelf.asked == []


# --- certificates --------------------------------------------------------------------

UNUSABLE = {
    "no certificate": b"<html>",
    "empty": b"",
    "half": certificate()[:300],
    "endless": certificate() + b"\n" * 20_000,
    "another kind of key": certificate(curve_key()),
    "a weak key": certificate(rsa_key(1024)),
}


@pytest.mark.parametrize("pem", UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_certificates_are_refused(pem: bytes) -> None:
    """And are not asked for again with every message."""
    desk = Desk(Shelf({ADDRESS: pem}))
    assert [desk.code(signed(notification())) for _ in range(3)] == ["CERTIFICATE_INVALID"] * 3
    assert desk.shelf.asked == [ADDRESS]
    desk.shelf.found[ADDRESS] = certificate()
    desk.clock.passed_ms += FINAL_MS
    assert desk.code(signed(notification())) is None


@pytest.mark.parametrize("days", [(-3, -1), (1, 3)])
def test_certificates_have_their_days(days: tuple[int, int]) -> None:
    """Neither before nor after them is a signature believed; in time it is, without asking again."""
    desk = Desk(Shelf({ADDRESS: certificate(days=days)}))
    assert desk.code(signed(notification())) == "CERTIFICATE_INVALID"
    desk.clock.passed_ms += 2 * DAY_MS * (1 if days[0] > 0 else -1)
    assert desk.code(signed(notification())) is None
    assert desk.shelf.asked == [ADDRESS]


def test_a_certificate_that_expires_while_it_is_known() -> None:
    """Memory does not make it valid for longer."""
    desk = Desk()
    assert desk.code(signed(notification())) is None
    desk.clock.passed_ms += DAY_MS + 1
    assert desk.code(signed(notification())) == "CERTIFICATE_INVALID"


def test_silence_is_put_off() -> None:
    """A message whose certificate can't be had stays in its queue, and its host is not asked for a while."""
    desk = Desk(Shelf({ADDRESS: SILENCE}))
    refusal = desk.verifier.check(body(signed(notification())))
    assert refusal is not None
    assert (refusal.code, refusal.retryable) == ("CERTIFICATE_UNAVAILABLE", True)
    desk.shelf.found[ADDRESS] = certificate()
    assert desk.code(signed(notification())) == "CERTIFICATE_UNAVAILABLE"
    assert desk.shelf.asked == [ADDRESS]
    desk.clock.passed_ms += SILENT_MS
    assert desk.code(signed(notification())) is None
    other = desk.verifier.check(body(signed(notification(), other_key())))
    assert other is not None
    assert not other.retryable


def test_invented_addresses_are_bounded() -> None:
    """Messages that name ever new certificates neither make us ask for all nor forget the real one."""
    desk = Desk()
    assert desk.code(signed(notification())) is None
    codes = []
    for period in range(6):
        for number in range(50):
            address = f"{HOST}/invented-{period}-{number}.pem"
            codes.append(desk.code(signed(notification(SigningCertURL=address))))
        assert desk.code(signed(notification())) is None
        desk.clock.passed_ms += sns_signatures.FETCH_PERIOD_MS
    assert set(codes) == {"CERTIFICATE_INVALID", "CERTIFICATE_UNAVAILABLE"}
    assert len(desk.shelf.asked) == 6 * FETCHES_MAX
    assert desk.shelf.asked.count(ADDRESS) == 1
    assert len(desk.verifier._known) <= sns_signatures.CERTIFICATES_MAX


def test_two_who_need_it_ask_once() -> None:
    """Queues that are read side by side share what was fetched."""
    desk = Desk()
    gate = threading.Barrier(4)
    found: list[str | None] = []

    def work() -> None:
        gate.wait(10)
        found.append(desk.code(signed(notification())))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == [None] * 4
    assert desk.shelf.asked == [ADDRESS]
