"""PROV-O documents of a person's change of a dataset: who, why, what it came from, what is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kfm.lineage.masking import Mask
from kfm.lineage.provenance import (
    CONTEXT,
    MASKED,
    Thing,
    agents,
    association,
    checksum,
    dataset,
    instant,
    known,
    plans,
    ref,
    refs,
    roles,
    whole,
)
from kfm.lineage.run_facts import AttemptEvents
from kfm.model import keys
from kfm.model.dataset_changes import DatasetChange, Purge, Withdrawal
from kfm.model.errors import UsageError
from kfm.model.records import Asset, Promotion, Record
from kfm.model.settings import Rights

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.versions import Version

APPROVALS_MAX = 1000
FILES_MAX = 10_000  # that are named; their number is told in any case
_PRODUCER = "urn:kfm:producer:"


class _Person(Record, frozen=True):
    """Who made a change, and on whose behalf."""

    actor: str
    claimed_actor: str | None


class ChangeEvidence(Record, frozen=True):
    """One change, and what the ledger has of it."""

    change: DatasetChange
    base: Promotion
    base_version: Version | None
    made: Promotion | None  # None: a lift that made no version
    version: Version | None
    is_new: bool  # was the same content never published before?
    put_back: Promotion | None = None  # of a rollback
    withdrawal: Withdrawal | None = None
    lifted: tuple[Withdrawal, ...] = ()
    purges: tuple[Purge, ...] = ()
    purged: tuple[str, ...] = ()  # ids of the versions whose bytes are gone by it
    approvers: tuple[str, ...] = ()
    claimed: str | None = None
    policies: str | None = None  # the bundle in force
    texts: dict[str, str] | None = None
    producer: str | None = None


def gather_change(ledger: LedgerReader, change_id: str) -> ChangeEvidence:
    """Read all of it."""
    reader = ledger.change_reader()
    change = reader.change(change_id)
    if change is None:
        raise UsageError(f"There is no change `{change_id}`.", remedy="`kfm dataset show ID` names them.")
    name = change.dataset_id
    base = ledger.promotion(name, change.base_sequence)
    assert base is not None, "a change is made to a version"
    made = ledger.promotion(name, change.sequence) if change.sequence is not None else None
    withdrawals = (*reader.withdrawals(name), *reader.target_withdrawals(name))
    entry = next(iter(ledger.governance(subject=change_id, limit=1)), None)
    bundle = entry.details.get("policies") if entry is not None else None
    plan = msgspec.json.decode(change.plan)
    gone = [ledger.promotion(name, one) for one in (plan.get("purge") or {}).get("versions", ())]
    earlier = ledger.promotions(name, change.base_sequence, change.base_sequence + 1) if made else []
    return ChangeEvidence(
        change=change,
        base=base,
        base_version=ledger.version(base.version_id),
        made=made,
        version=ledger.version(made.version_id) if made is not None else None,
        is_new=made is not None and all(one.version_id != made.version_id for one in earlier),
        put_back=ledger.promotion(name, change.to_sequence) if change.to_sequence is not None else None,
        withdrawal=next((one for one in withdrawals if one.change_id == change_id), None),
        lifted=tuple(one for one in withdrawals if one.lifted_by == change_id),
        purges=tuple(reader.purges(change_id)),
        purged=tuple(sorted({one.version_id for one in gone if one is not None})),
        approvers=tuple(
            one.approved_by
            for one in ledger.approvals(subject=f"change:{name}", limit=APPROVALS_MAX)
            if one.used_by == change_id and one.approved_by is not None
        ),
        claimed=entry.details.get("claimed_actor") if entry is not None else None,
        policies=bundle,
        texts=ledger.policy_texts(bundle) if bundle else None,
        producer=_producer(ledger, change_id),
    )


def _producer(ledger: LedgerReader, change_id: str) -> str | None:
    """The version of kfm that applied it, as its events say."""
    for message in ledger.outbox_messages(change_id):
        said = str(msgspec.json.decode(message.body).get("producer", ""))
        if said.startswith(_PRODUCER):
            return said.removeprefix(_PRODUCER)
    return None


def prov_of_change(
    ledger: LedgerReader,
    change_id: str,
    *,
    mask: Mask | None = None,
    environment: str | None = None,
    rights: Rights | None = None,
) -> dict[str, Any]:
    """The document of a change, read from the ledger."""
    evidence = gather_change(ledger, change_id)
    return {"@context": CONTEXT, "@graph": _Change(evidence, mask, environment, rights).graph()}


class _Change:
    def __init__(
        self, evidence: ChangeEvidence, mask: Mask | None, environment: str | None, rights: Rights | None
    ) -> None:
        self._evidence = evidence
        self._mask = mask
        self._environment = environment
        self._rights = evidence.version.header.rights if evidence.version is not None else rights
        self._dataset = self._named(evidence.change.dataset_id)
        self._name = keys.change_urn(evidence.change.change_id)
        self._at = instant(evidence.change.changed_at_ms)

    def _named(self, text: str) -> str:
        return text if self._mask is None else self._mask(text)

    def graph(self) -> list[Thing]:
        one = self._evidence
        things = [
            self._activity(),
            *self._publications(),
            *self._versions(),
            *self._files(),
            *self._tombstones(),
            dataset(self._dataset, masked=self._mask is not None, rights=self._rights),
            *agents([self._asked()], map(self._named, one.approvers), [one.producer]),
            *plans(
                [one.policies], {one.policies: one.texts} if one.policies else {}, named=self._mask is None
            ),
            *roles(),
        ]
        return list({thing["@id"]: thing for thing in reversed(things)}.values())[::-1]

    def _asked(self) -> _Person:
        claimed = self._evidence.claimed if self._mask is None else None
        return _Person(actor=self._named(self._evidence.change.actor), claimed_actor=claimed)

    # --- what was done -----------------------------------------------------------------

    def _activity(self) -> Thing:
        one, change = self._evidence, self._evidence.change
        withdrawal = one.withdrawal
        span = withdrawal is not None and withdrawal.start_ms is not None and withdrawal.end_ms is not None
        used = [self._publication(one.base.sequence)]
        used += [self._publication(one.put_back.sequence)] if one.put_back is not None else []
        return {
            "@id": self._name,
            "@type": ["prov:Activity", "kfm:DatasetChange"],
            "dcterms:identifier": change.change_id,
            "prov:startedAtTime": self._at,
            "prov:endedAtTime": self._at,
            "kfm:change": change.kind,
            "kfm:dataset": ref(keys.dataset_urn(self._dataset)),
            "kfm:digest": change.digest if self._mask is None else self._mask(change.digest),
            "prov:used": refs(used),
            **known(
                kfm_environment=self._environment,
                kfm_reason=change.rationale if self._mask is None else None,
                kfm_withheld=MASKED if self._mask is not None else None,
                kfm_windowStart=instant(withdrawal.start_ms or 0) if span and withdrawal else None,
                kfm_windowEnd=instant(withdrawal.end_ms or 0) if span and withdrawal else None,
                prov_wasInformedBy=refs(keys.change_urn(each.change_id) for each in one.lifted),
                kfm_purge=[self._purge(each) for each in one.purges],
            ),
            **association(
                AttemptEvents(policies=one.policies, producer=one.producer),
                [self._named(change.actor)],
                sorted(map(self._named, one.approvers)),
            ),
        }

    def _purge(self, one: Purge) -> Thing:
        return {
            "@type": "kfm:Purge",
            "kfm:place": self._named(one.place),
            "kfm:state": one.state,
            "kfm:removed": whole(one.removed),
        }

    # --- what it made of what ------------------------------------------------------------

    def _publication(self, sequence: int) -> str:
        return keys.publication_urn(self._dataset, sequence)

    def _publications(self) -> list[Thing]:
        """What readers saw before, and what they see since. The same content may be published twice."""
        one = self._evidence
        before = self._published(one.base)
        if one.made is None:
            return [before, *self._put_back()]
        before |= {"prov:wasInvalidatedBy": ref(self._name), "prov:invalidatedAtTime": self._at}
        made = self._published(one.made) | {
            "prov:wasGeneratedBy": ref(self._name),
            "prov:generatedAtTime": self._at,
            "prov:wasRevisionOf": ref(self._publication(one.base.sequence)),
        }
        if one.put_back is not None:
            made["prov:wasDerivedFrom"] = ref(self._publication(one.put_back.sequence))
        return [made, before, *self._put_back()]

    def _put_back(self) -> list[Thing]:
        return [self._published(self._evidence.put_back)] if self._evidence.put_back is not None else []

    def _published(self, promotion: Promotion) -> Thing:
        return {
            "@id": self._publication(promotion.sequence),
            "@type": ["prov:Entity", "kfm:Publication"],
            "dcterms:identifier": f"{self._dataset}/{promotion.sequence}",
            "kfm:sequence": whole(promotion.sequence),
            "prov:specializationOf": ref(keys.version_urn(promotion.version_id)),
        }

    def _versions(self) -> list[Thing]:
        one = self._evidence
        found = {one.base.version_id: self._version(one.base.version_id)}
        for promotion in (one.put_back, one.made):
            if promotion is not None:
                found.setdefault(promotion.version_id, self._version(promotion.version_id))
        for version_id in one.purged:
            gone = found.setdefault(version_id, self._version(version_id))
            gone |= {"prov:wasInvalidatedBy": ref(self._name), "prov:invalidatedAtTime": self._at}
        if one.made is not None and one.is_new:
            found[one.made.version_id] |= {
                "prov:wasGeneratedBy": ref(self._name),
                "prov:generatedAtTime": self._at,
                "prov:wasRevisionOf": ref(keys.version_urn(one.base.version_id)),
            }
        return [found[version_id] for version_id in sorted(found)]

    def _version(self, version_id: str) -> Thing:
        return {
            "@id": keys.version_urn(version_id),
            "@type": ["prov:Entity", "prov:Collection", "kfm:DatasetVersion"],
            "dcterms:identifier": version_id,
            "prov:specializationOf": ref(keys.dataset_urn(self._dataset)),
            "spdx:checksum": checksum(version_id),
        }

    # --- what is gone ------------------------------------------------------------------

    def _removed(self) -> dict[str, Asset]:
        """The files that were withdrawn, by the names that the runs gave them which made them."""
        one = self._evidence
        if one.withdrawal is None or one.withdrawal.target or one.base_version is None:
            return {}
        kept = {each.id for each in one.version.items()} if one.version is not None else set()
        return {
            keys.file_urn(self._dataset, asset.path, asset.sha256): asset
            for item in one.base_version.items()
            if item.id not in kept
            for asset in item.assets
        }

    def _files(self) -> list[Thing]:
        if self._mask is not None:
            return []
        return [
            {
                "@id": name,
                "@type": ["prov:Entity", "kfm:Output"],
                "spdx:checksum": checksum(asset.sha256),
                "prov:atLocation": {"@type": "prov:Location", "rdfs:label": asset.path},
                "kfm:size": whole(asset.size),
                "dcterms:format": asset.media_type,
                "prov:wasInvalidatedBy": ref(self._name),
                "prov:invalidatedAtTime": self._at,
            }
            for name, asset in sorted(self._removed().items())[:FILES_MAX]
        ]

    def _tombstones(self) -> list[Thing]:
        """What stands in the place of what is withdrawn; a lift ends it."""
        one = self._evidence
        things = []
        if one.withdrawal is not None:
            made: Thing = self._tombstone(one.withdrawal) | {
                "prov:wasGeneratedBy": ref(self._name),
                "prov:generatedAtTime": self._at,
            }
            things.append(made | known(kfm_files=whole(len(self._removed()))))
        for lifted in one.lifted:
            ended = {"prov:wasInvalidatedBy": ref(self._name), "prov:invalidatedAtTime": self._at}
            things.append(self._tombstone(lifted) | ended)
        return things

    def _tombstone(self, one: Withdrawal) -> Thing:
        return {
            "@id": keys.tombstone_urn(one.change_id),
            "@type": ["prov:Entity", "kfm:Tombstone"],
            "dcterms:identifier": one.change_id,
            "prov:specializationOf": ref(keys.dataset_urn(self._dataset)),
            **known(
                kfm_reason=one.reason if self._mask is None else None,
                kfm_withheld=MASKED if self._mask is not None else None,
            ),
        }
