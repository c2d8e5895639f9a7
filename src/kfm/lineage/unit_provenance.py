"""The provenance of a unit: an activity for each attempt, the object that it read, the item that it left."""

from __future__ import annotations

from collections.abc import Sequence
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
from kfm.model.units import StoredUnit, UnitAttempt, UnitTransition, Version, tries, versions

UNKNOWN_SOFTWARE = AttemptEvents()  # which version of kfm worked on a unit is not on record


def unit_document(
    stored: StoredUnit,
    history: Sequence[UnitTransition],
    *,
    mask: Mask | None = None,
    environment: str | None = None,
) -> dict[str, Any]:
    """Everything that is on record of a unit, as linked data. With a mask its names stay at home."""
    return {"@context": CONTEXT, "@graph": _Account(stored, history, mask, environment).graph()}


class _Account:
    def __init__(
        self,
        stored: StoredUnit,
        history: Sequence[UnitTransition],
        mask: Mask | None,
        environment: str | None,
    ) -> None:
        self._unit = stored.unit
        self._mask = mask
        self._environment = environment
        self._wal_id = self._named(stored.unit.wal_id)
        self._dataset = self._named(stored.unit.dataset)
        self._tries = tries(history)
        self._versions = versions(history)

    def graph(self) -> list[Thing]:
        return [
            *(self._attempt(one, before) for before, one in pairwise([None, *self._tries]) if one),
            *(self._object(version) for version in self._versions),
            *self._item(),
            dataset(self._dataset, masked=self._mask is not None),
            *provenance.agents((), (), [None]),
            *provenance.plans([None], {}, named=True),
            *provenance.roles(),
        ]

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
            **provenance.association(UNKNOWN_SOFTWARE, [], []),
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
        return {
            **thing,
            "kfm:noEvidence": NO_BYTES,
            "dcterms:source": ref(address(self._unit.object_uri)),
            **known(kfm_etag=version.etag, kfm_size=None if version.size is None else whole(version.size)),
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
