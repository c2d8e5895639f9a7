"""Entities of a PROV document: what a run read, and what it left."""

from __future__ import annotations

from collections.abc import Sequence

from kfm.core import urns
from kfm.core.records import Asset, Found
from kfm.core.settings import Rights
from kfm.lineage.gathering import RunEvidence
from kfm.lineage.linked import Thing, address, checksum, instant, is_sha256, known, ref, refs, whole
from kfm.lineage.veil import Mask

MASKED = "The name stands for a dataset that must not be named."
NO_MANIFEST = "The manifest of this version is not kept any more."
NO_BYTES = "Its bytes were not seen by the run: it is known by what discovery told."


class Entities:
    """Inputs and outputs of one run. With a mask their names stay at home."""

    def __init__(self, evidence: RunEvidence, mask: Mask | None, rights: Rights | None) -> None:
        self._evidence = evidence
        self._mask = mask
        self._rights = evidence.manifest.rights if evidence.manifest else rights
        dataset_id = evidence.run.dataset_id
        self._dataset_id = dataset_id if mask is None else mask(dataset_id)
        self._name = urns.run_urn(evidence.run.run_id)

    def dataset(self) -> Thing:
        return dataset(self._dataset_id, masked=self._mask is not None, rights=self._rights)

    def _input_name(self, found: Found) -> str:
        if self._mask is not None:
            return urns.input_urn(self._mask(found.uri))
        return address(found.uri)

    def used(self) -> list[Thing]:
        if not self._evidence.inputs_known:
            return []
        return [ref(self._collection()), *refs(self._input_name(found) for found in self._evidence.inputs)]

    def _collection(self) -> str:
        evidence = self._evidence
        hashes = [evidence.run.fingerprint, *(one.inputs_hash for one in reversed(evidence.attempts))]
        return urns.inputs_urn(next((one for one in hashes if one), evidence.run.run_id))

    def inputs(self) -> list[Thing]:
        if not self._evidence.inputs_known:
            return []
        found = {self._input_name(one): one for one in self._evidence.inputs}
        collection = {
            "@id": self._collection(),
            "@type": ["prov:Entity", "prov:Collection", "kfm:Inputs"],
            "kfm:members": whole(len(found)),
            **known(prov_hadMember=refs(found)),
        }
        return [collection, *(self._input(name, found[name]) for name in sorted(found))]

    def _input(self, name: str, found: Found) -> Thing:
        thing: Thing = {"@id": name, "@type": ["prov:Entity", "kfm:Input"]}
        if self._mask is not None:
            return {**thing, "kfm:withheld": MASKED}
        seen = is_sha256(found.checksum)
        return {
            **thing,
            **known(
                spdx_checksum=checksum(found.checksum or "") if seen else None,
                kfm_noEvidence=None if seen else NO_BYTES,
                kfm_etag=found.etag,
                kfm_contentVersion=found.version,
                kfm_size=None if found.size is None else whole(found.size),
                dcterms_modified=None if found.modified_ms is None else instant(found.modified_ms),
                dcterms_format=found.media_type,
            ),
        }

    def outputs(self) -> list[Thing]:
        evidence, run = self._evidence, self._evidence.run
        if run.version_id is None or not is_sha256(run.version_id):
            return []
        promotion, before, item = evidence.promotion, evidence.before, evidence.item
        files = {} if item is None or self._mask is not None else self._files(item.assets)
        version = {
            "@id": urns.version_urn(run.version_id),
            "@type": ["prov:Entity", "prov:Collection", "kfm:DatasetVersion"],
            "dcterms:identifier": run.version_id,
            "prov:specializationOf": ref(urns.dataset_urn(self._dataset_id)),
            "spdx:checksum": checksum(run.version_id),
            **known(
                kfm_noEvidence=None if evidence.manifest else NO_MANIFEST,
                kfm_files=None if item is None else whole(len(item.assets)),
                prov_hadMember=refs(files),
            ),
        }
        if promotion is not None:
            version["prov:wasGeneratedBy"] = ref(self._name)
            version["prov:generatedAtTime"] = instant(promotion.promoted_at_ms)
            version["kfm:sequence"] = whole(promotion.sequence)
            if before is not None and before.version_id != run.version_id:
                version["prov:wasRevisionOf"] = ref(urns.version_urn(before.version_id))
        return [version, *files.values()]

    def _files(self, assets: Sequence[Asset]) -> dict[str, Thing]:
        inputs = {self._input_name(found) for found in self._evidence.inputs}
        maker = self._evidence.made_by
        things = {}
        for asset in assets:
            name = urns.file_urn(self._dataset_id, asset.path, asset.sha256)
            origin = address(asset.source_uri) if asset.source_uri else None
            # Of a file that a pipeline wrote it is only known what the pipeline could read.
            source = origin if origin in inputs else self._collection() if inputs else None
            mine = maker == self._evidence.run.run_id
            things[name] = {
                "@id": name,
                "@type": ["prov:Entity", "kfm:Output"],
                "spdx:checksum": checksum(asset.sha256),
                "prov:atLocation": {"@type": "prov:Location", "rdfs:label": asset.path},
                "kfm:size": whole(asset.size),
                "dcterms:format": asset.media_type,
                **known(
                    prov_wasGeneratedBy=ref(urns.run_urn(maker)) if maker else None,
                    prov_wasDerivedFrom=ref(source) if source and mine else None,
                ),
            }
        return things


def dataset(dataset_id: str, *, masked: bool, rights: Rights | None = None) -> Thing:
    thing = {
        "@id": urns.dataset_urn(dataset_id),
        "@type": ["prov:Entity", "kfm:Dataset"],
        "dcterms:identifier": dataset_id,
        **known(kfm_withheld=MASKED if masked else None),
    }
    if rights is not None:
        thing |= known(
            dcterms_license=rights.license,
            kfm_careLabel=rights.care.label,
            kfm_careLevel=rights.care.level,
            kfm_localContexts=rights.local_contexts,
        )
    return thing
