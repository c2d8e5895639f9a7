"""A topic that signs as SNS does, with a certificate of its own."""

from __future__ import annotations

import base64
import datetime
import functools
import json
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from kfm.model.errors import UpstreamUnavailable
from tests.stand_ins import START_MS

TOPIC = "arn:aws:sns:us-east-1:123901341784:NewMRMSObject"
OTHER_TOPIC = "arn:aws:sns:eu-west-1:123901341784:NewMRMSObject"
TOPICS = frozenset({TOPIC, OTHER_TOPIC})
HOST = "https://sns.us-east-1.amazonaws.com"
ADDRESS = f"{HOST}/SimpleNotificationService-0123456789abcdef.pem"
SIGNED = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
DAY_MS = 86_400_000
HASHES: dict[str, Any] = {"1": hashes.SHA1(), "2": hashes.SHA256()}


@functools.cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@functools.cache
def other_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(key: Any = None, *, days: tuple[int, int] = (-1, 1)) -> bytes:
    """A self-signed one, valid for these days around the beginning of the tests' time."""
    signer = rsa_key() if key is None else key
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.amazonaws.com")])
    start = datetime.datetime.fromtimestamp(START_MS / 1000, datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(signer.public_key())
        .serial_number(1)
        .not_valid_before(start + datetime.timedelta(days=days[0]))
        .not_valid_after(start + datetime.timedelta(days=days[1]))
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def curve_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def notification(message: str = "{}", **fields: Any) -> dict[str, Any]:
    return {
        "Type": "Notification",
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": TOPIC,
        "Message": message,
        "Timestamp": "2026-01-01T00:00:00.000Z",
        "SignatureVersion": "2",
        "SigningCertURL": ADDRESS,
        "UnsubscribeURL": f"{HOST}/?Action=Unsubscribe&SubscriptionArn={TOPIC}:1",
    } | fields


def signed(document: dict[str, Any], key: Any = None) -> dict[str, Any]:
    """Written out here once more, as Amazon documents it: the code under test must not check itself."""
    text = "".join(f"{name}\n{document[name]}\n" for name in SIGNED if name in document)
    made = (key or rsa_key()).sign(text.encode(), padding.PKCS1v15(), HASHES[document["SignatureVersion"]])
    return document | {"Signature": base64.b64encode(made).decode()}


def body(document: Any) -> bytes:
    return json.dumps(document).encode()


class Shelf:
    """Certificates by their address; counts who asks."""

    def __init__(self, found: dict[str, bytes | UpstreamUnavailable] | None = None) -> None:
        self.found = {ADDRESS: certificate()} if found is None else found
        self.asked: list[str] = []

    def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        found = self.found.get(url, UpstreamUnavailable("404", transient=False))
        if isinstance(found, UpstreamUnavailable):
            raise found
        return found
