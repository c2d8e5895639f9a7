"""SNS envelopes, and the topics that may send them."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from kfm.nodd.messages.json_bodies import BODY_BYTES_MAX
from kfm.nodd.messages.refusals import RecordRefusal

_ARN = re.compile(
    r"arn:(aws|aws-cn|aws-us-gov):sns:([a-z]{2}(?:-[a-z]+){1,3}-\d):(\d{12}):([A-Za-z0-9_-]{1,256})\Z"
)
_CERTIFICATE = re.compile(r"/[0-9A-Za-z_-]{1,128}\.pem\Z")


def region_of(arn: str) -> tuple[str, str]:
    """(partition, region) of a topic."""
    match = _ARN.match(arn)
    if match is None:
        raise RecordRefusal("TOPIC_NOT_ALLOWED", "It is not the ARN of a topic.")
    return match[1], match[2]


def check_topic(arn: str, allowed: Collection[str]) -> str:
    """The topic, if it is allowed. By the full ARN: a name may exist in several accounts."""
    if arn not in allowed:
        region_of(arn)
        raise RecordRefusal("TOPIC_NOT_ALLOWED")
    return arn


def certificate_host(arn: str) -> str:
    """The only host that keeps this topic's certificates."""
    partition, region = region_of(arn)
    return f"sns.{region}.amazonaws.com{'.cn' if partition == 'aws-cn' else ''}"


@lru_cache(maxsize=256)  # a topic's certificate changes once a year
def check_certificate(url: str, arn: str) -> str:
    """The address of a signing certificate, if a fetch of it would go to Amazon and nowhere else.

    A fetch must not follow redirects.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RecordRefusal("CERTIFICATE_HOST", "Its address is no address.") from None
    # Compared as written: what a parser would drop or fold must not be there at all.
    exact = f"https://{certificate_host(arn)}{parts.path}" == url and port is None
    if not exact or _CERTIFICATE.match(parts.path) is None:
        raise RecordRefusal("CERTIFICATE_HOST")
    return url


URL_CHARS_MAX = 2048
NOTIFICATION = "Notification"
SUBSCRIPTIONS = ("SubscriptionConfirmation", "UnsubscribeConfirmation")
SIGNED = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
ALWAYS_SIGNED = frozenset(SIGNED) - {"Subject"}


def matches(document: dict[str, Any]) -> bool:
    return document.get("Type") in (NOTIFICATION, *SUBSCRIPTIONS)


def text_to_sign(document: dict[str, Any]) -> bytes:
    """The text that a topic signs: of a notification, these fields in this order.

    SignatureVersion 1 signs it with SHA-1, 2 with SHA-256. Raises RecordRefusal if one is missing or no text.
    """
    signed = {name: document[name] for name in SIGNED if document.get(name) is not None}
    if signed.get("Type") != NOTIFICATION or not all(isinstance(value, str) for value in signed.values()):
        raise RecordRefusal("ENVELOPE_INVALID")
    # Only line ends separate fields: with these rules no other fields have the same text, so that no field
    # can be hidden in its neighbour under the same signature.
    if not signed.keys() >= ALWAYS_SIGNED or any(
        "\n" in signed[name] for name in signed if name != "Message"
    ):
        raise RecordRefusal("ENVELOPE_INVALID", "Its signed fields are missing or have several lines.")
    try:
        return "".join(f"{name}\n{value}\n" for name, value in signed.items()).encode()
    except UnicodeError:
        raise RecordRefusal("ENVELOPE_INVALID") from None


def opened(document: dict[str, Any], allowed: Collection[str]) -> tuple[str, str | dict[str, Any] | None]:
    """(topic, message); no message if a subscription begins or ends. No address in it is fetched here.

    SNS writes the message as a text; some that pass it on have read that text already.
    """
    topic = document.get("TopicArn")
    if not isinstance(topic, str):
        raise RecordRefusal("ENVELOPE_INVALID", "`TopicArn` is missing.")
    check_topic(topic, allowed)
    # Lambda spells it SigningCertUrl.
    for name in ("SigningCertURL", "SigningCertUrl"):
        if name in document:
            url = document[name]
            if not isinstance(url, str) or len(url) > URL_CHARS_MAX:
                raise RecordRefusal("CERTIFICATE_HOST")
            check_certificate(url, topic)
    if document["Type"] in SUBSCRIPTIONS:
        return topic, None
    message = document.get("Message")
    if isinstance(message, dict) and message:
        return topic, message
    if not isinstance(message, str) or not message.strip() or len(message) > BODY_BYTES_MAX:
        raise RecordRefusal("ENVELOPE_INVALID", "`Message` is missing.")
    return topic, message
