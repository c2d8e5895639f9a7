"""An in-toto statement with SLSA provenance: which files there are, and what they were made from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from kfm.model.records import Record
from kfm.model.runs import ChainLink

NO_HASH = "0" * 64  # the chain before its first entry
UNSIGNED = (
    "This statement carries no signature. A detached one, where somebody made it, is beside it "
    "as attestation.intoto.json.sig."
)
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})")

Sha256 = dict[Literal["sha256"], str]


class AttestedFile(Record, frozen=True):
    name: str
    digest: Sha256


class Material(Record, frozen=True, omit_defaults=True):
    """Something that the release was made from."""

    name: str
    uri: str
    digest: Sha256 | None = None
    annotations: dict[str, Any] = {}


class Parameters(Record, frozen=True):
    """What was asked for."""

    version: str
    since: str | None
    until: str | None


class Definition(Record, frozen=True, kw_only=True, rename="camel"):
    build_type: Literal["urn:kfm:release:v1"] = "urn:kfm:release:v1"
    external_parameters: Parameters
    internal_parameters: dict[str, str]
    resolved_dependencies: tuple[Material, ...]


class Builder(Record, frozen=True):
    id: str
    version: dict[str, str]


class RunDetails(Record, frozen=True):
    builder: Builder


class Predicate(Record, frozen=True):
    definition: Definition = msgspec.field(name="buildDefinition")
    details: RunDetails = msgspec.field(name="runDetails")
    signature: str = msgspec.field(name="kfm_signature", default=UNSIGNED)


class Statement(Record, frozen=True, kw_only=True):
    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(
        name="_type", default="https://in-toto.io/Statement/v1"
    )
    subject: tuple[AttestedFile, ...]
    predicate_type: Literal["https://slsa.dev/provenance/v1"] = msgspec.field(
        name="predicateType", default="https://slsa.dev/provenance/v1"
    )
    predicate: Predicate


class Origin(Record, frozen=True):
    """Where a release comes from."""

    kfm_version: str
    environment: str
    policies: str  # the bundle in force


def statement(
    asked: Parameters,
    origin: Origin,
    chain: ChainLink | None,
    pipelines: Iterable[tuple[str, str]],
    digests: Mapping[str, str],
) -> Statement:
    """`chain` is the last governance entry that counts; `digests` are of all files that are attested."""
    number, hash_ = (chain.number, chain.hash) if chain else (0, NO_HASH)
    materials = [
        Material(
            name="audit-chain",
            uri=f"urn:kfm:audit:governance:{number}",
            digest={"sha256": hash_.removeprefix("sha256:")},
            annotations={"number": number},
        ),
        Material(
            name="policies",
            uri="urn:kfm:policies",
            digest=_digest(origin.policies),
            annotations={"bundle": origin.policies},
        ),
    ]
    materials += [
        Material(
            name=f"pipeline {pipeline}",
            uri=f"urn:kfm:pipeline:{_urn(pipeline)}",
            digest=_digest(version),
            annotations={"version": version},
        )
        for pipeline, version in sorted(pipelines)
    ]
    return Statement(
        subject=tuple(AttestedFile(name=name, digest={"sha256": digests[name]}) for name in sorted(digests)),
        predicate=Predicate(
            definition=Definition(
                external_parameters=asked,
                internal_parameters={"environment": origin.environment},
                resolved_dependencies=tuple(materials),
            ),
            details=RunDetails(
                builder=Builder(
                    id=f"urn:kfm:builder:{_urn(origin.kfm_version)}", version={"kfm": origin.kfm_version}
                )
            ),
        ),
    )


def _digest(text: str) -> Sha256 | None:
    match = _SHA256.fullmatch(text)
    return {"sha256": match[1]} if match else None


def _urn(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")
