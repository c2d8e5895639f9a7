"""SNS envelopes: who speaks is checked before anybody reads what is said."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kfm.ingest.bodies import BODY_BYTES_MAX
from kfm.ingest.refusals import Refusal
from kfm.ingest.topics import check_certificate, check_topic

URL_CHARS_MAX = 2048
NOTIFICATION = "Notification"
SUBSCRIPTIONS = ("SubscriptionConfirmation", "UnsubscribeConfirmation")
SIGNED = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
ALWAYS_SIGNED = frozenset(SIGNED) - {"Subject"}


def fits(document: dict[str, Any]) -> bool:
    return document.get("Type") in (NOTIFICATION, *SUBSCRIPTIONS)


def text_to_sign(document: dict[str, Any]) -> bytes:
    """What the topic's key has signed: of a notification, these fields in this order.

    SignatureVersion 1 signs it with SHA-1, 2 with SHA-256. Raises Refusal if a field is missing or no text.
    """
    said = {name: document[name] for name in SIGNED if document.get(name) is not None}
    if said.get("Type") != NOTIFICATION or not all(isinstance(value, str) for value in said.values()):
        raise Refusal("ENVELOPE_INVALID")
    # Fields are told apart by lines alone: with these rules no other fields have the same text, so that
    # nobody can hide one field within its neighbour and keep the signature.
    if not said.keys() >= ALWAYS_SIGNED or any("\n" in said[name] for name in said if name != "Message"):
        raise Refusal("ENVELOPE_INVALID", "Its signed fields are missing or have several lines.")
    try:
        return "".join(f"{name}\n{value}\n" for name, value in said.items()).encode()
    except UnicodeError:
        raise Refusal("ENVELOPE_INVALID") from None


def opened(document: dict[str, Any], allowed: Collection[str]) -> tuple[str, str | None]:
    """(topic, message); no message if a subscription begins or ends. No address in it is fetched here."""
    topic = document.get("TopicArn")
    if not isinstance(topic, str):
        raise Refusal("ENVELOPE_INVALID", "`TopicArn` is missing.")
    check_topic(topic, allowed)
    # Lambda spells it SigningCertUrl.
    for name in ("SigningCertURL", "SigningCertUrl"):
        if name in document:
            url = document[name]
            if not isinstance(url, str) or len(url) > URL_CHARS_MAX:
                raise Refusal("CERTIFICATE_HOST")
            check_certificate(url, topic)
    if document["Type"] in SUBSCRIPTIONS:
        return topic, None
    message = document.get("Message")
    if not isinstance(message, str) or not message.strip() or len(message) > BODY_BYTES_MAX:
        raise Refusal("ENVELOPE_INVALID", "`Message` is missing.")
    return topic, message
