"""The small pieces that linked data is made of: typed values, references, checksums."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import UnhashableInput
from kfm.model.redaction import redact_url
from kfm.model.times import MS_MAX, MS_MIN, rfc3339
from kfm.model.urns import TERMS, bare_hex

Thing = dict[str, Any]

# Inline, so that a reader needs nothing from the network.
CONTEXT = {
    "dcterms": "http://purl.org/dc/terms/",
    "kfm": TERMS,
    "prov": "http://www.w3.org/ns/prov#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "spdx": "http://spdx.org/rdf/terms#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_IRI_SAFE = ":/?#[]@!$&'()*+,;=%-._~"


def ref(name: str) -> Thing:
    return {"@id": name}


def refs(names: Iterable[str]) -> list[Thing]:
    """Each once, in order."""
    return [ref(name) for name in sorted(set(names))]


def instant(at_ms: int) -> Thing:
    return _typed("dateTime", rfc3339(min(max(at_ms, MS_MIN), MS_MAX)))


def whole(number: int) -> Thing:
    return _typed("integer", str(number))


def flag(value: bool) -> Thing:
    return _typed("boolean", "true" if value else "false")


def _typed(kind: str, text: str) -> Thing:
    return {"@type": f"xsd:{kind}", "@value": text}


def checksum(sha256: str) -> Thing:
    return {
        "@type": "spdx:Checksum",
        "spdx:algorithm": ref("spdx:checksumAlgorithm_sha256"),
        "spdx:checksumValue": _typed("hexBinary", bare_hex(sha256)),
    }


def is_sha256(text: str | None) -> bool:
    digits = bare_hex(text or "")
    return len(digits) == 64 and all(digit in "0123456789abcdef" for digit in digits)


def address(uri: str) -> str:
    """An address as it may be told, and as every parser of linked data takes it."""
    return quote(redact_url(uri), safe=_IRI_SAFE, errors="replace")


def known(**members: Any) -> Thing:
    """The members that have a value; `prov_used` stands for prov:used."""
    return {
        name.replace("_", ":", 1): value
        for name, value in members.items()
        if value is not None and value != [] and value != ""
    }


def written(document: Any) -> bytes:
    """One canonical line. Half characters, such as a name from upstream may hold, are replaced."""
    try:
        return canonical_bytes(document) + b"\n"
    except UnhashableInput:
        return canonical_bytes(_writable(document)) + b"\n"


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_writable(name): _writable(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(member) for member in value]
    return value
