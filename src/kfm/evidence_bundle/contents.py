"""Contents of a bundle: its documents, and proofs that its events were sealed in the governance chain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from kfm.lineage.masking import Mask, masked_attempt, masked_invocation, masked_run
from kfm.lineage.provenance import prov_bytes, prov_document, written
from kfm.lineage.run_facts import RunEvidence
from kfm.model import audit
from kfm.model.audit import Seal, copied, from_details, leaf
from kfm.model.canonical import canonical_bytes
from kfm.model.quantities import counted
from kfm.model.records import Invocation, Item, Record
from kfm.model.redaction import redact, redact_url
from kfm.model.requests import AnnouncedObject, UpdateRequest
from kfm.model.runs import ChainLink, OutboxMessage
from kfm.model.settings import Rights
from kfm.model.version_trees import item_document

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.versions import Version

Render = Callable[["Version", Item | None], dict[str, bytes]]  # what is published of both, by name


KIND = "seal"
STREAM = "outbox"
PAGE_ROWS = 500
SEALED_MAX = 100_000  # rows of one seal that are read to prove some of them
FORMAT = "kfm-evidence/1"
POLICIES_MAX = 1000


class Proof(Record, frozen=True):
    """The way from one event to the root that an entry of the chain holds."""

    line: int  # of openlineage.jsonl, from 1
    number: int
    event_id: str
    topic: str
    subject: str
    recorded_at_ms: int
    link: int  # the entry of the chain
    index: int
    size: int
    path: tuple[str, ...]


def seal_of(link: ChainLink) -> Seal | None:
    entry = link.entry
    return from_details(STREAM, entry.details) if (entry.kind, entry.subject) == (KIND, STREAM) else None


def seals_any(link: ChainLink, messages: Sequence[OutboxMessage]) -> bool:
    """Does this entry vouch for any of the events?"""
    seal = seal_of(link)
    return seal is not None and any(
        first <= message.number <= last for message in messages for first, last in seal.members
    )


def prove(ledger: LedgerReader, links: Sequence[ChainLink], messages: Sequence[OutboxMessage]) -> list[Proof]:
    """A proof for each event that is sealed, in the order of the events."""
    lines = {message.number: (line, message) for line, message in enumerate(messages, start=1)}
    proofs: dict[int, Proof] = {}
    for link in links:
        seal = seal_of(link)
        if seal is None or seal.count > SEALED_MAX or not seals_any(link, messages):
            continue
        rows = _rows(ledger, seal)
        leaves = [leaf(row) for row in rows]
        if audit.root(leaves).hex() != seal.root:
            continue  # a broken seal proves nothing; `kfm audit verify` tells of it
        for index, row in enumerate(rows):
            if row.number in lines and row.number not in proofs:
                line, message = lines[row.number]
                proofs[row.number] = Proof(
                    line=line,
                    number=message.number,
                    event_id=message.event_id,
                    topic=message.topic,
                    subject=message.subject,
                    recorded_at_ms=message.recorded_at_ms,
                    link=link.number,
                    index=index,
                    size=len(rows),
                    path=tuple(step.hex() for step in audit.inclusion_proof(leaves, index)),
                )
    return sorted(proofs.values(), key=lambda proof: proof.line)


def _rows(ledger: LedgerReader, seal: Seal) -> list[OutboxMessage]:
    rows: list[OutboxMessage] = []
    for first, last in seal.members:
        at = first
        while at <= last and (page := ledger.events_between(at, last, PAGE_ROWS)):
            rows += page
            at = page[-1].number + 1
    return rows


Hide = Callable[[str], str]


class View(NamedTuple):
    """For whose eyes a bundle is made."""

    mask: Mask | None  # set: the dataset must not be named
    hide: Hide  # takes known secrets out of text
    environment: str
    rights: Rights


class Asked(NamedTuple):
    """The requests that the run answers, and the announced objects that they gather."""

    requests: Sequence[UpdateRequest]
    objects: Sequence[AnnouncedObject]


class Contents(NamedTuple):
    """Documents by their path in the bundle, and what could not be put in."""

    documents: dict[str, bytes]
    missing: list[str]
    unproven_events: int = 0


def contents(
    evidence: RunEvidence,
    links: Sequence[ChainLink],
    proofs: Sequence[Proof],
    render: Render,
    view: View,
    asked: Asked,
) -> Contents:
    """Everything but the artifacts. `links` are those from the first that concerns the run on."""
    found = Contents({}, [])
    _ledger(found, evidence, view)
    _asked(found, asked, view)
    _lineage(found, evidence, proofs, view)
    _governance(found, evidence, links, view)
    _published(found, evidence, render, view)
    _policies(found, evidence, view)
    shown = len(evidence.messages) if "openlineage.jsonl" in found.documents else len(proofs)
    return found._replace(unproven_events=shown - len(proofs))


def concerns(link: ChainLink, run_id: str, calls: Iterable[Invocation]) -> bool:
    """Is this entry about the run, or about one of its invocations?"""
    ids = {run_id, *(call.invocation_id for call in calls)}
    entry = link.entry
    return entry.subject in ids or any(entry.details.get(name) in ids for name in ("run_id", "invocation_id"))


# --- the ledger's rows --------------------------------------------------------------------


def _ledger(found: Contents, evidence: RunEvidence, view: View) -> None:
    mask = view.mask
    run, calls, attempts = evidence.run, evidence.invocations, evidence.attempts
    if mask is not None:
        run = replace(
            masked_run(run, mask),
            work_base=mask(run.work_base),
            error_message=None,
            correction=None if run.correction is None else mask(run.correction),
        )
        calls = tuple(
            replace(masked_invocation(call, mask), claimed_actor=None, rationale=None) for call in calls
        )
        attempts = tuple(map(masked_attempt, attempts))
    put = found.documents
    put["ledger/run.json"] = _line(run, view)
    put["ledger/invocations.jsonl"] = _lines(calls, view)
    if not calls:
        found.missing.append("No call that asked for this run is on record.")
    put["ledger/attempts.jsonl"] = _lines(attempts, view)
    if not attempts:
        found.missing.append("No attempt at this run was kept: it is from before attempts were.")
    put["ledger/retries.jsonl"] = _lines(evidence.retries, view)
    promotions = [evidence.promotion] if evidence.promotion else []
    if mask is not None:
        promotions = [replace(one, dataset_id=mask(one.dataset_id)) for one in promotions]
    put["ledger/promotions.jsonl"] = _lines(promotions, view)
    if not evidence.inputs_known:
        found.missing.append("What was discovered upstream was not kept.")
    elif mask is not None:
        found.missing.append("The inputs of a masked dataset are withheld.")
    else:
        inputs = [replace(one, uri=redact_url(one.uri)) for one in evidence.inputs]
        put["ledger/inputs.jsonl"] = _lines(inputs, view)


def _asked(found: Contents, asked: Asked, view: View) -> None:
    if view.mask is not None:
        found.missing.append("The requests for a masked dataset, and what was announced, are withheld.")
        return
    found.documents["ledger/requests.jsonl"] = _lines(asked.requests, view)
    if not asked.requests:
        found.missing.append("No request for this run is on record: it is from before each run had one.")
    if asked.objects:
        found.documents["ledger/objects.jsonl"] = _lines(asked.objects, view)
    left = sum(one.members for one in asked.requests) - len(asked.objects)
    if left > 0:
        found.missing.append(f"{counted(left, 'announced object')} of its requests are left out.")


def _line(record: Record, view: View) -> bytes:
    return written(_told(msgspec.to_builtins(record), view.hide))


def _lines(records: Iterable[Record], view: View) -> bytes:
    return b"".join(_line(record, view) for record in records)


def _told(value: Any, hide: Hide) -> Any:
    if isinstance(value, str):
        return redact(hide(value))
    if isinstance(value, dict):
        return {name: _told(member, hide) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_told(member, hide) for member in value]
    return value


# --- lineage ------------------------------------------------------------------------------


def _lineage(found: Contents, evidence: RunEvidence, proofs: Sequence[Proof], view: View) -> None:
    document = prov_document(evidence, mask=view.mask, environment=view.environment, rights=view.rights)
    found.documents["prov.jsonld"] = prov_bytes(document)
    bodies = [message.body for message in evidence.messages]
    if not bodies:
        found.missing.append("No lineage was kept.")
    elif view.mask is not None and _names(bodies, evidence):
        found.missing.append("The lineage is withheld: it names the dataset, which was not masked then.")
    else:
        found.documents["openlineage.jsonl"] = "".join(f"{body}\n" for body in bodies).encode()
        if proofs:
            found.documents["openlineage.proofs.jsonl"] = b"".join(
                written(msgspec.to_builtins(proof)) for proof in proofs
            )
        if len(proofs) < len(bodies):
            without = counted(len(bodies) - len(proofs), "event")
            found.missing.append(f"A proof for {without}: not sealed yet when this was made.")


def _names(texts: Iterable[str], evidence: RunEvidence) -> bool:
    """Does any of them name what must not be named?"""
    run = evidence.run
    names = [json_text(name) for name in (run.dataset_id, run.source_id, run.pipeline_id)]
    return any(name in text for text in texts for name in names)


def json_text(text: str) -> str:
    """Text as it stands inside a JSON document."""
    return msgspec.json.encode(text).decode()[1:-1]


# --- governance ---------------------------------------------------------------------------


def _governance(found: Contents, evidence: RunEvidence, links: Sequence[ChainLink], view: View) -> None:
    if not links:
        found.missing.append("No entry of the audit log concerns this run.")
        return
    lines = []
    for link in links:
        about_it = view.mask is None and concerns(link, evidence.run.run_id, evidence.invocations)
        shown = about_it or seals_any(link, evidence.messages)  # a seal holds numbers and a hash, no names
        lines.append(canonical_bytes(msgspec.to_builtins(copied(link, withhold=not shown))) + b"\n")
    found.documents["governance/links.jsonl"] = b"".join(lines)
    if view.mask is not None:
        found.missing.append("What governance entries of a masked dataset say is withheld.")


# --- what was published --------------------------------------------------------------------


def _published(
    found: Contents,
    evidence: RunEvidence,
    render: Render,
    view: View,
) -> None:
    if evidence.run.version_id is None:
        found.missing.append("The run published nothing.")
        return
    if view.mask is not None:
        found.missing.append("The catalogue records of a masked dataset are withheld.")
        return
    version, item = evidence.version, evidence.item
    if version is None:
        found.missing.append("The version is not kept any more.")
        return
    for name, data in render(version, item).items():
        found.documents[f"published/{name}"] = data
    if item is not None and version.form == 2:
        # What binds the item to the version: its record, and the pages on the way to its hash.
        found.documents["published/record.json"] = item_document(item)
        found.documents["published/pages.jsonl"] = b"".join(
            page.encode() + b"\n" for page in version.proof(item.id)
        )


def _policies(found: Contents, evidence: RunEvidence, view: View) -> None:
    if not evidence.policies:
        found.missing.append("It is not on record which policies were in force.")
    elif view.mask is not None:
        found.missing.append("The texts of policies about a masked dataset are withheld.")
        return
    for bundle, texts in sorted(evidence.policies.items()):
        if texts is None:
            found.missing.append(f"The texts of the policies {bundle} were not kept.")
            continue
        kept = dict(sorted(texts.items())[:POLICIES_MAX])
        if len(kept) < len(texts):
            found.missing.append(f"{len(texts) - len(kept)} policies of {bundle} are left out.")
        document = {"bundle_id": bundle, "policies": kept}
        name = bundle.removeprefix("sha256:")[:16]
        found.documents[f"policies/{name}.json"] = canonical_bytes(document) + b"\n"
