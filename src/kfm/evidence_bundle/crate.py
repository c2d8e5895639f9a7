"""The bundle's own description: an RO-Crate that says what each file is, and under which rights it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from kfm.model import keys
from kfm.model.canonical import canonical_bytes
from kfm.model.records import Run
from kfm.model.settings import LicenceTerms, Rights
from kfm.model.times import is_all_time, rfc3339

CONTEXT = "https://w3id.org/ro/crate/1.3/context"
PROFILE = "https://w3id.org/ro/crate/1.3"
METADATA = "ro-crate-metadata.json"
CHECKSUMS = "checksums.sha256"

ABOUT = {
    "README.md": "What this bundle is and how to check it",
    "verify.py": "Checks the bundle offline; needs Python and nothing else",
    "evidence.json": "Which run, for whose eyes, and what is missing",
    "prov.jsonld": "Provenance of the run (PROV-O)",
    "openlineage.jsonl": "OpenLineage events of the run, as they were sent",
    "openlineage.proofs.jsonl": "That these events are sealed in the governance chain",
    "ledger/run.json": "The run's row of the idempotency ledger",
    "ledger/invocations.jsonl": "The calls that asked for the run",
    "ledger/requests.jsonl": "The requests that the run answers",
    "ledger/objects.jsonl": "The announced objects that those requests gather",
    "ledger/attempts.jsonl": "Every attempt at the run and at its nodes",
    "ledger/retries.jsonl": "External calls that failed and were tried again",
    "ledger/promotions.jsonl": "The version that the run made visible",
    "ledger/inputs.jsonl": "What was discovered upstream",
    "governance/links.jsonl": "The audit log since the run's first entry, as a chain of hashes",
    "published/manifest.json": "The version that the run ended with; its SHA-256 is the version's id",
    "published/record.json": "The item of the run, as the version's tree has it",
    "published/pages.jsonl": "The pages that lead from the version's root to that item",
    "published/dcat.jsonld": "The DCAT record as published",
    "published/collection.json": "The STAC collection as published",
    METADATA: "This description (RO-Crate)",
    CHECKSUMS: "SHA-256 of every other file",
}
LEFT = {
    "run.jsonl": "Changes of state of one attempt",
    "event_log.jsonl": "What one attempt did, step by step",
    "publisher_trace.jsonl": "What one attempt asked the publisher to do",
    "idempotency.json": "The run's row as it stood after one attempt, and what its keys were made of",
    "plan.jsonl": "The plan that one attempt was held to",
    "prov.jsonld": "Provenance as it stood after one attempt",
}
_TYPES = {
    "json": "application/json",
    "jsonl": "application/jsonl",
    "jsonld": "application/ld+json",
    "md": "text/markdown",
    "py": "text/x-python",
    "sha256": "text/plain",
}
_ENDED = {
    "success": "http://schema.org/CompletedActionStatus",
    "failed": "http://schema.org/FailedActionStatus",
    "running": "http://schema.org/ActiveActionStatus",
}


class BundleFile(NamedTuple):
    """One file of the bundle."""

    path: str
    size: int
    sha256: str


class CrateSubject(NamedTuple):
    """What the description is about; public names."""

    run: Run
    rights: Rights
    producer: str | None
    at_ms: int  # the last that the ledger knows of the run
    internal: bool


def metadata(subject: CrateSubject, parts: Sequence[BundleFile]) -> bytes:
    run = subject.run
    rights, usage = _rights(subject.rights)
    action = keys.run_urn(run.run_id)
    described = [_file(part) for part in parts]
    described.append(
        {"@id": CHECKSUMS, "@type": "File", "name": ABOUT[CHECKSUMS], "encodingFormat": "text/plain"}
    )
    root = {
        "@id": "./",
        "@type": "Dataset",
        "identifier": action,
        "name": f"Evidence of run {run.run_id}",
        "description": (
            f"What is on record of one run of pipeline {run.pipeline_id} for dataset {run.dataset_id}: "
            "ledger rows, lineage, provenance, governance entries, policies and published records."
            + (" For internal use." if subject.internal else "")
        ),
        "datePublished": rfc3339(subject.at_ms),
        "license": {"@id": rights[0]["@id"]},
        "usageInfo": [{"@id": each["@id"]} for each in usage],
        "hasPart": [{"@id": each["@id"]} for each in sorted(described, key=lambda each: each["@id"])],
        "mentions": [{"@id": action}],
    }
    graph = [
        {
            "@id": METADATA,
            "@type": "CreativeWork",
            "about": {"@id": "./"},
            "conformsTo": {"@id": PROFILE},
        },
        root,
        _action(subject, action),
        *_software(subject),
        *rights,
        *usage,
        *sorted(described, key=lambda each: each["@id"]),
    ]
    return canonical_bytes({"@context": CONTEXT, "@graph": graph}) + b"\n"


def _file(part: BundleFile) -> dict[str, Any]:
    ending = part.path.rpartition(".")[2]
    return {
        "@id": quote(part.path),
        "@type": "File",
        "name": _about(part.path),
        "encodingFormat": _TYPES.get(ending, "application/octet-stream"),
        "contentSize": str(part.size),
        "sha256": part.sha256,
    }


def _about(path: str) -> str:
    if path in ABOUT:
        return ABOUT[path]
    folder, name = path.partition("/")[0], path.rpartition("/")[2]
    if folder == "artifacts":
        return LEFT.get(name, "A file that an attempt left")
    return {
        "policies": "Policies that were in force, word for word",
        "published": "The STAC item as published",
    }.get(folder, "A file of the bundle")


def _action(subject: CrateSubject, name: str) -> dict[str, Any]:
    run = subject.run
    action: dict[str, Any] = {
        "@id": name,
        "@type": "CreateAction",
        "name": f"Run {run.run_id} of pipeline {run.pipeline_id}, version {run.pipeline_version}",
        "startTime": rfc3339(run.start_time_ms),
        "actionStatus": {"@id": _ENDED[run.status]},
        "instrument": {"@id": keys.software_urn(subject.producer)},
    }
    if run.end_time_ms is not None and run.status != "running":
        action["endTime"] = rfc3339(run.end_time_ms)
    if run.error_code:
        action["error"] = run.error_code
    return action


def _software(subject: CrateSubject) -> list[dict[str, Any]]:
    software = {
        "@id": keys.software_urn(subject.producer),
        "@type": "SoftwareApplication",
        "name": "kfm",
    }
    if subject.producer:
        software["softwareVersion"] = subject.producer
    return [software]


def _rights(rights: Rights) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Licence, CARE label and Local Contexts address, word for word."""
    text, url = rights.license, rights.terms.url if isinstance(rights.terms, LicenceTerms) else None
    address = url or (text if text.startswith(("http://", "https://")) else "#licence")
    name = f"{text}: {rights.terms.name}" if isinstance(rights.terms, LicenceTerms) else text
    licence = [{"@id": address, "@type": "CreativeWork", "name": name}]
    usage: list[dict[str, Any]] = [
        _value("#care-label", "CARE label", rights.care.label),
        _value("#care-level", "CARE level", rights.care.level),
    ]
    if rights.attribution:
        usage.append(_value("#attribution", "Attribution", rights.attribution))
    if rights.sovereignty:
        consent = f"{rights.sovereignty.authority}: consent {rights.sovereignty.consent}"
        usage.append(_value("#sovereignty", "Sovereignty", consent))
    if rights.local_contexts:
        web = rights.local_contexts.startswith(("http://", "https://"))
        name = rights.local_contexts if web else "#local-contexts"
        entity = {"@id": name, "@type": "CreativeWork", "name": "Local Contexts project"}
        usage.append({**entity, "url": rights.local_contexts})
    return licence, usage


def _value(name: str, label: str, value: str) -> dict[str, Any]:
    return {"@id": name, "@type": ["CreativeWork", "PropertyValue"], "name": label, "value": value}


def checksums(digests: Mapping[str, str]) -> bytes:
    """As `sha256sum --check` reads it."""
    return "".join(f"{digests[path]}  {path}\n" for path in sorted(digests)).encode()


def readme(subject: CrateSubject, paths: Sequence[str], missing: Sequence[str]) -> bytes:
    run, rights = subject.run, subject.rights
    lines = [
        f"# Evidence of run {run.run_id}",
        "",
        f"- pipeline {run.pipeline_id}, version {run.pipeline_version}",
        f"- dataset {run.dataset_id}",
        "- no window"
        if is_all_time(run.window_start_ms, run.window_end_ms)
        else f"- window {rfc3339(run.window_start_ms)} to {rfc3339(run.window_end_ms)}",
        f"- {run.status}" + (f" with {run.error_code}" if run.error_code else ""),
        f"- licence {rights.license}; CARE label {rights.care.label} ({rights.care.level})",
    ]
    if rights.local_contexts:
        lines.append(f"- Local Contexts project {rights.local_contexts}")
    if subject.internal:
        lines += ["", "**For internal use: names are not masked. Do not pass it on.**"]
    lines += [
        "",
        "## Check it",
        "",
        "With a verifier from elsewhere, best with the digest that you got by another way than the bundle:",
        "",
        "    kfm export --verify BUNDLE --expect DIGEST",
        "    python3 -I verify_bundle.py BUNDLE --expect DIGEST    # as it was published, with its SHA-256",
        "",
        "The verify.py in the bundle helps only a reader who trusts its sender: `python3 -I verify.py` in",
        "this folder. It needs no network and nothing but Python, prints one digest for the whole bundle,",
        "and lists what is proven and what is not. A bundle that agrees with itself shows that nothing was",
        "damaged; only a digest or an anchor of the governance chain that was kept elsewhere shows that it",
        "was not written anew.",
        "",
        "## What is in it",
        "",
        *(f"- `{path}`: {_about(path)}" for path in sorted(paths)),
        "",
        "## What is not in it",
        "",
        *([f"- {sentence}" for sentence in missing] or ["- Nothing that is known of is missing."]),
        "- The data itself: it is published; `published/items/` has its checksums.",
    ]
    return ("\n".join(lines) + "\n").encode()
