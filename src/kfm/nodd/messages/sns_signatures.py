"""Signatures of SNS messages, checked before the message is read."""

from __future__ import annotations

import base64
import binascii
import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from kfm.model.errors import BackendUnavailable, ExtraMissing, UpstreamUnavailable
from kfm.nodd.messages import sns
from kfm.nodd.messages.json_bodies import load
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.messages.sns import certificate_host, check_certificate, check_topic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    from kfm.ports import Certificates, Clock

CERTIFICATES_MAX = 64  # a region has one, and changes it once a year
CERTIFICATE_BYTES_MAX = 16 * 1024
KEY_BITS = (2048, 4096)  # what a check costs grows with the key
SIGNATURE_CHARS_MAX = 4096
FETCHES_MAX = 20  # in each period, whatever addresses messages name
FETCH_PERIOD_MS = 60_000
SILENT_MS = 30_000  # how long a host that did not answer is not asked again
FINAL_MS = 600_000  # how long an address without a usable certificate is not asked again


class KnownCertificate(NamedTuple):
    """The certificate at an address: a key and its days, or no key, and when to ask again (monotonic)."""

    key: RSAPublicKey | None
    from_ms: int
    until_ms: int


class Verifier:
    """Checks signatures of messages, with the certificates that were fetched so far in memory."""

    def __init__(self, certificates: Certificates, clock: Clock, topics: Collection[str]) -> None:
        _require()
        self._certificates = certificates
        self._clock = clock
        self._topics = topics
        self._guard = threading.Lock()
        self._known: OrderedDict[str, KnownCertificate] = OrderedDict()
        self._silent_until: OrderedDict[str, int] = OrderedDict()
        self._period_begin_ms = clock.monotonic_ms()
        self._fetches = 0

    def check(self, body: bytes) -> RecordRefusal | None:
        """None: signed by its topic, or about a subscription, which has no effect.

        Only the outermost envelope is checked: a topic vouches for what it forwards.
        """
        try:
            document, ambiguous = load(body)
            if ambiguous:
                raise RecordRefusal("ENVELOPE_INVALID", "Readers would disagree about it.")
            if not isinstance(document, dict) or not sns.matches(document):
                raise RecordRefusal("SIGNATURE_MISSING")
            if document["Type"] in sns.SUBSCRIPTIONS:
                return None  # never taken in, never confirmed
            self._check(document)
        except RecordRefusal as refusal:
            return refusal
        return None

    def _check(self, document: dict[str, Any]) -> None:
        topic = document.get("TopicArn")
        if not isinstance(topic, str):
            raise RecordRefusal("ENVELOPE_INVALID", "`TopicArn` is missing.")
        check_topic(topic, self._topics)
        url = check_certificate(_address(document), topic)
        signature, version = _signature(document)
        text = sns.text_to_sign(document)
        known = self._certificate(url, topic)
        if known.key is None or not known.from_ms <= self._clock.now_ms() <= known.until_ms:
            raise RecordRefusal("CERTIFICATE_INVALID")
        if not _is_signed(known.key, signature, text, version):
            raise RecordRefusal("SIGNATURE_INVALID")

    def _certificate(self, url: str, topic: str) -> KnownCertificate:
        with self._guard:  # two threads that need the same one fetch it once
            known = self._known.get(url)
            if known is not None and (known.key is not None or self._clock.monotonic_ms() < known.until_ms):
                self._known.move_to_end(url)
                return known
            known = self._fetched(url, certificate_host(topic))
            self._known[url] = known
            self._known.move_to_end(url)
            if len(self._known) > CERTIFICATES_MAX:
                self._drop_one()
            return known

    def _drop_one(self) -> None:
        """Addresses without a certificate go first: invented ones must not push out real ones."""
        invented = next((url for url, each in self._known.items() if each.key is None), None)
        self._known.pop(next(iter(self._known)) if invented is None else invented)

    def _fetched(self, url: str, host: str) -> KnownCertificate:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._silent_until.get(host, now_ms):
            raise RecordRefusal("CERTIFICATE_UNAVAILABLE", "Its host did not answer a moment ago.")
        if now_ms - self._period_begin_ms >= FETCH_PERIOD_MS:
            self._period_begin_ms, self._fetches = now_ms, 0
        if self._fetches >= FETCHES_MAX:
            raise RecordRefusal("CERTIFICATE_UNAVAILABLE", "Messages name too many certificates at once.")
        self._fetches += 1
        try:
            pem = self._certificates.fetch(url)
        except UpstreamUnavailable as error:
            if not error.facts.get("transient"):
                return KnownCertificate(None, 0, now_ms + FINAL_MS)
            self._silent_until[host] = self._clock.monotonic_ms() + SILENT_MS
            if len(self._silent_until) > CERTIFICATES_MAX:
                self._silent_until.popitem(last=False)
            raise RecordRefusal("CERTIFICATE_UNAVAILABLE") from None
        self._silent_until.pop(host, None)
        return _read(pem) or KnownCertificate(None, 0, now_ms + FINAL_MS)


def _address(document: dict[str, Any]) -> str:
    # Lambda spells it SigningCertUrl. With both, readers might choose different ones.
    given = [document[name] for name in ("SigningCertURL", "SigningCertUrl") if name in document]
    if not given:
        raise RecordRefusal("SIGNATURE_MISSING")
    if len(given) > 1 or not isinstance(given[0], str) or len(given[0]) > sns.URL_CHARS_MAX:
        raise RecordRefusal("CERTIFICATE_HOST")
    return given[0]


def _signature(document: dict[str, Any]) -> tuple[bytes, str]:
    signature, version = document.get("Signature"), document.get("SignatureVersion")
    if not signature:
        raise RecordRefusal("SIGNATURE_MISSING")
    if not isinstance(signature, str) or len(signature) > SIGNATURE_CHARS_MAX or version not in ("1", "2"):
        raise RecordRefusal("SIGNATURE_INVALID")
    try:
        return base64.b64decode(signature, validate=True), version
    except (binascii.Error, ValueError):
        raise RecordRefusal("SIGNATURE_INVALID") from None


# --- cryptography --------------------------------------------------------------------


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ExtraMissing("Checking signatures needs cryptography: install kfm-kernel[aws].") from None


def _read(pem: bytes) -> KnownCertificate | None:
    """The key in a certificate and its days; None if it is nothing that SNS would sign with."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.x509 import load_pem_x509_certificate

    if len(pem) > CERTIFICATE_BYTES_MAX:
        return None
    try:
        certificate = load_pem_x509_certificate(pem)
        key = certificate.public_key()
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if not isinstance(key, RSAPublicKey) or not KEY_BITS[0] <= key.key_size <= KEY_BITS[1]:
        return None
    return KnownCertificate(key, int(begin.timestamp() * 1000), int(end.timestamp() * 1000))


def _is_signed(key: RSAPublicKey, signature: bytes, text: bytes, version: str) -> bool:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256

    try:
        # SHA-1 is what topics use unless configured otherwise. A collision would help only those who may
        # publish to the topic anyway.
        key.verify(signature, text, PKCS1v15(), SHA1() if version == "1" else SHA256())
    except InvalidSignature:
        return False
    except UnsupportedAlgorithm:
        raise BackendUnavailable(
            "This system's cryptography refuses the hash that the topic signs with.",
            remedy="Allow SHA-1 signatures in the system's policy, or have the topic use SignatureVersion 2.",
            transient=False,
        ) from None
    return True
