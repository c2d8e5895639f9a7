"""Bundle what is on record of one run, for people who have no access to the ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kfm.evidence_bundle import verify_bundle
from kfm.evidence_bundle.contents import Asked, Contents, View, concerns, contents, prove, seals_any
from kfm.evidence_bundle.crate import CrateSubject
from kfm.evidence_bundle.package import WrittenBundle, find_artifacts, write_bundle, write_document
from kfm.lineage.masking import Mask, masked_run
from kfm.lineage.provenance import call_document, prov_bytes
from kfm.lineage.run_facts import RunEvidence, gather, gather_call
from kfm.model.records import Item
from kfm.model.redaction import MASK_KEY, is_masked, mask
from kfm.model.runs import ChainLink
from kfm.model.settings import DatasetSettings, Rights, Settings
from kfm.ports import Files
from kfm.publish.catalogue import NamedDocuments
from kfm.publish.catalogue.addresses import item_name
from kfm.publish.manifest import require_rights

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.versions import Version

LINKS_MAX = 100_000
OBJECTS_MAX = 100_000
REQUESTS_MAX = 1000
PAGE = 1000


def export_run(
    ledger: LedgerReader,
    files: Files,
    settings: Settings,
    run_id: str,
    path: str,
    *,
    runs_folder: str,
    internal: bool = False,
    hide: Callable[[str], str] = lambda text: text,
) -> WrittenBundle:
    """Write the bundle. Names of a masked dataset are masked, unless it is for internal use."""
    evidence = gather(ledger, run_id)
    dataset = _dataset(settings, evidence.run.dataset_id, evidence.version)
    rights = require_rights(evidence.run.dataset_id, dataset.rights)
    hidden = _mask(ledger) if is_masked(dataset) and not internal else None
    view = View(mask=hidden, hide=hide, environment=settings.environment, rights=rights)
    links, cut = _links(ledger, evidence)
    proofs = prove(ledger, links, evidence.messages)
    reader = ledger.request_reader()
    requests = reader.of_run(run_id, REQUESTS_MAX)
    asked = Asked(requests, reader.announced(requests, OBJECTS_MAX))
    found = contents(evidence, links, proofs, _published, view, asked)
    if cut:
        found.missing.append(f"Only {LINKS_MAX} entries of the audit log are in it.")
    artifacts = []
    if hidden is not None:
        found.missing.append("The files that a run for a masked dataset left are withheld.")
    else:
        artifacts = find_artifacts(files, f"{runs_folder}/{run_id}", found.missing)
    subject = _subject(evidence, rights, hidden, internal=internal)
    return write_bundle(files, path, subject, _ordered(found), artifacts, verifier())


def export_call(
    ledger: LedgerReader,
    files: Files,
    settings: Settings,
    invocation_id: str,
    path: str,
    *,
    internal: bool = False,
) -> WrittenBundle:
    """An invocation that never became a run leaves one document: its provenance."""
    evidence = gather_call(ledger, invocation_id)
    dataset = _dataset(settings, evidence.invocation.dataset_id)
    rights = require_rights(dataset.id, dataset.rights)
    hidden = _mask(ledger) if is_masked(dataset) and not internal else None
    document = call_document(evidence, mask=hidden, environment=settings.environment, rights=rights)
    missing = ["The call was refused: there is no run, and so nothing else."]
    return write_document(files, path, prov_bytes(document), missing)


def verifier() -> bytes:
    """The script that goes with every bundle."""
    return Path(verify_bundle.__file__).read_bytes()


def _ordered(found: Contents) -> Contents:
    return found._replace(missing=sorted(set(found.missing)))


def _published(version: Version, item: Item | None) -> dict[str, bytes]:
    """What is published of a version and of one of its items, by name."""
    named = NamedDocuments(version)
    return named.own() | ({item_name(item): named.item(item)} if item is not None else {})


def _dataset(settings: Settings, dataset_id: str, version: Version | None = None) -> DatasetSettings:
    """As it is configured now; what was published under stricter rights stays under them."""
    configured = settings.declared(dataset_id)
    published = DatasetSettings(id=dataset_id, rights=version.header.rights if version else None)
    if configured is None or (version is not None and is_masked(published)):
        return published
    return configured


def _mask(ledger: LedgerReader) -> Mask:
    key = ledger.mark(MASK_KEY)
    # Without a key nothing may be told apart: any name would be a guess that can be checked.
    return lambda name: mask(name, key)


def _links(ledger: LedgerReader, evidence: RunEvidence) -> tuple[list[ChainLink], bool]:
    """The audit log from the first entry that concerns the run to its end."""
    links: list[ChainLink] = []
    after = 0
    while page := ledger.chain(after=after, limit=PAGE):
        for link in page:
            if (
                links
                or concerns(link, evidence.run.run_id, evidence.invocations)
                or seals_any(link, evidence.messages)
            ):
                links.append(link)
        if len(links) > LINKS_MAX:
            return links[:LINKS_MAX], True
        if page[-1].number <= after:
            break
        after = page[-1].number
    return links, False


def _subject(evidence: RunEvidence, rights: Rights, hidden: Mask | None, *, internal: bool) -> CrateSubject:
    run = evidence.run if hidden is None else masked_run(evidence.run, hidden)
    times = [run.start_time_ms, run.end_time_ms or 0]
    times += [one.ended_at_ms or one.started_at_ms for one in evidence.attempts]
    if evidence.promotion is not None:
        times.append(evidence.promotion.promoted_at_ms)
    producers = [evidence.attempt_events.get(one.lineage_id) for one in evidence.attempts if not one.node]
    last = next((one.producer for one in reversed(producers) if one), None)
    return CrateSubject(run=run, rights=rights, producer=last, at_ms=max(times), internal=internal)
