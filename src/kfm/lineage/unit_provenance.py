"""The provenance of a unit: an activity for each attempt, the object that it read, the item that it left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kfm.lineage import provenance
from kfm.lineage.masking import Mask
from kfm.lineage.provenance import (
    CONTEXT,
    MASKED,
    NO_BYTES,
    Thing,
    address,
    dataset,
    instant,
    known,
    ref,
    whole,
)
from kfm.lineage.run_facts import AttemptEvents
from kfm.lineage.unit_events import ending
from kfm.model import keys
from kfm.model.keys import unit_attempt_id
from kfm.model.units import FIRST, StoredUnit, UnitAttempt, UnitTransition, Version, tries, versions

UNKNOWN = AttemptEvents()  # of a worker from before they introduced themselves, or from another ledger


def unit_document(
    stored: StoredUnit,
    history: Sequence[UnitTransition],
    *,
    mask: Mask | None = None,
    environment: str | None = None,
    workers: Mapping[str, AttemptEvents] | None = None,
    policies: Mapping[str, Mapping[str, str] | None] | None = None,
) -> dict[str, Any]:
    """Everything that is on record of a unit, as linked data. With a mask its names stay at home.

    `workers` leads from a worker to its software and the policies in force, `policies` from those to texts.
    """
    account = _Account(stored, history, mask, environment, workers or {}, policies or {})
    return {"@context": CONTEXT, "@graph": account.graph()}


class _Account:
    def __init__(
        self,
        stored: StoredUnit,
        history: Sequence[UnitTransition],
        mask: Mask | None,
        environment: str | None,
        workers: Mapping[str, AttemptEvents],
        policies: Mapping[str, Mapping[str, str] | None],
    ) -> None:
        self._workers = workers
        self._policies = policies
        self._unit = stored.unit
        self._mask = mask
        self._environment = environment
        self._wal_id = self._named(stored.unit.wal_id)
        self._dataset = self._named(stored.unit.dataset)
        # Where retention took the beginning away, only the present content is known.
        is_whole = len(history) == len(stored.trail.split())
        first = FIRST if is_whole else Version(stored.content_version, stored.etag, stored.size)
        self._tries = tries(history, first)
        self._versions = versions(history, first)

    def graph(self) -> list[Thing]:
        by = [self._by(one) for one in self._tries] or [UNKNOWN]
        return [
            *(self._attempt(one, before) for before, one in pairwise([None, *self._tries]) if one),
            *(self._object(version) for version in self._versions),
            *self._item(),
            dataset(self._dataset, masked=self._mask is not None),
            *provenance.agents((), (), dict.fromkeys(one.producer for one in by)),
            *provenance.plans(
                dict.fromkeys(one.policies for one in by), self._policies, named=not self._mask
            ),
            *provenance.roles(),
        ]

    def _by(self, one: UnitAttempt) -> AttemptEvents:
        return self._workers.get(one.worker_id or "", UNKNOWN)

    def _named(self, name: str) -> str:
        return name if self._mask is None else self._mask(name)

    def _attempt(self, one: UnitAttempt, before: UnitAttempt | None) -> Thing:
        over = one.ended_at_ms is not None
        return {
            "@id": self._attempt_urn(one),
            "@type": ["prov:Activity", "kfm:UnitAttempt"],
            "dcterms:identifier": unit_attempt_id(self._unit.wal_id, one.attempt),
            "prov:startedAtTime": instant(one.started_at_ms),
            "prov:used": ref(keys.object_urn(self._wal_id, one.looked_at.number)),
            "kfm:walId": self._wal_id,
            "kfm:attempt": whole(one.attempt),
            "kfm:dataset": ref(keys.dataset_urn(self._dataset)),
            **known(
                prov_endedAtTime=None if one.ended_at_ms is None else instant(one.ended_at_ms),
                prov_wasInformedBy=None if before is None else ref(self._attempt_urn(before)),
                kfm_environment=self._environment,
                kfm_ending=ending(one.error_code).lower() if over else None,
                kfm_errorCode=one.error_code,
                kfm_errorClass=one.error_class,
                kfm_stacStatus=one.stac_status,
            ),
            **provenance.association(self._by(one), [], []),
        }

    def _attempt_urn(self, one: UnitAttempt) -> str:
        return keys.attempt_urn(unit_attempt_id(self._unit.wal_id, one.attempt))

    def _object(self, version: Version) -> Thing:
        thing: Thing = {
            "@id": keys.object_urn(self._wal_id, version.number),
            "@type": ["prov:Entity", "kfm:Input", "kfm:ObjectVersion"],
            "kfm:walId": self._wal_id,
            "kfm:contentVersion": whole(version.number),
        }
        if self._mask is not None:
            return {**thing, "kfm:withheld": MASKED}
        read = [one.sha256 for one in self._tries if one.looked_at.number == version.number and one.sha256]
        return {
            **thing,
            "dcterms:source": ref(address(self._unit.object_uri)),
            **known(
                kfm_noEvidence=None if read else NO_BYTES,
                spdx_checksum=provenance.checksum(read[-1]) if read else None,
                kfm_etag=version.etag,
                kfm_size=None if version.size is None else whole(version.size),
            ),
        }

    def _item(self) -> list[Thing]:
        unit = self._unit
        if unit.stac_item_id is None or unit.stac_collection_id is None:
            return []
        made = [one for one in self._tries if one.stac_status in ("created", "updated")]
        collection, item = self._named(unit.stac_collection_id), self._named(unit.stac_item_id)
        return [
            {
                "@id": keys.item_urn(collection, item),
                "@type": ["prov:Entity", "kfm:CatalogueItem"],
                "dcterms:identifier": f"collections/{collection}/items/{item}",
                "prov:specializationOf": ref(keys.dataset_urn(self._dataset)),
                **known(
                    prov_wasGeneratedBy=ref(self._attempt_urn(made[-1])) if made else None,
                    prov_wasDerivedFrom=ref(keys.object_urn(self._wal_id, made[-1].looked_at.number))
                    if made
                    else None,
                    kfm_withheld=MASKED if self._mask is not None else None,
                ),
            }
        ]
