"""Provenance of pipeline runs: the run is an activity, each node's dataset an entity, each result another.

The result of a skipped node comes with the run that made it. Free text stays in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import msgspec

from kfm.lineage import provenance
from kfm.lineage.provenance import (
    CONTEXT,
    MASKED,
    NO_BYTES,
    Thing,
    address,
    checksum,
    instant,
    is_sha256,
    known,
    ref,
    refs,
    whole,
)
from kfm.model import keys
from kfm.model.canonical import canonical_bytes
from kfm.model.records import Node
from kfm.model.run_state import Pass, outputs_hash

COUNTS = ("success", "failed", "partial", "skipped", "blocked", "done")
MADE = ("success", "partial", "skipped")
EXECUTED = ("success", "partial", "failed")
INPUTS_MAX = 500  # of each node; the hash of its inputs covers all

Public = Callable[[str], str]


def pass_document(
    found: Pass,
    nodes: Iterable[Node],
    document: Callable[[str], str | None],
    *,
    producer: str,
    public: Public = str,
) -> dict[str, Any]:
    """The document of a pipeline run of its own."""
    account = _PassAccount(found, producer, public, document)
    things = [account.activity(), *account.parts(nodes)]
    return {"@context": CONTEXT, "@graph": [*things, account.runner(), account.plan(), *provenance.roles()]}


def pass_things(
    found: Pass,
    nodes: Iterable[Node],
    document: Callable[[str], str | None],
    known_ids: set[str],
    *,
    producer: str,
    public: Public = str,
) -> list[Thing]:
    """What the nodes of a governed run add to its document; `known_ids` are in it already."""
    account = _PassAccount(found, producer, public, document)
    things = [*account.parts(nodes), account.runner(), account.plan()]
    return [thing for thing in things if thing["@id"] not in known_ids]


class _PassAccount:
    def __init__(
        self, found: Pass, producer: str, public: Public, document: Callable[[str], str | None]
    ) -> None:
        self._pass = found
        self._producer = producer
        self._public = public
        self._document = document
        self._run = keys.run_urn(found.run_id)
        self._reads = dict(found.graph)
        digest = sha256(canonical_bytes(msgspec.to_builtins(found.graph))).hexdigest()
        self._plan, self._digest = keys.graph_urn(digest), digest

    def _association(self) -> Thing:
        runner = keys.software_urn(self._producer)
        qualified = {
            "@type": "prov:Association",
            "prov:agent": ref(runner),
            "prov:hadRole": ref("kfm:runner"),
            "prov:hadPlan": ref(self._plan),
        }
        return {"prov:wasAssociatedWith": [ref(runner)], "prov:qualifiedAssociation": [qualified]}

    def runner(self) -> Thing:
        return {
            "@id": keys.software_urn(self._producer),
            "@type": ["prov:Agent", "prov:SoftwareAgent"],
            "rdfs:label": "kfm",
            "kfm:version": self._producer,
        }

    def plan(self) -> Thing:
        """The graph itself, by its hash."""
        return {
            "@id": self._plan,
            "@type": ["prov:Entity", "prov:Plan", "kfm:Graph"],
            "spdx:checksum": checksum(self._digest),
        }

    def activity(self) -> Thing:
        found = self._pass
        pipeline = self._public(found.pipeline_id)
        ended = None if found.state == "running" else found.ended_at_ms
        own = pipeline == found.pipeline_id
        return {
            "@id": self._run,
            "@type": ["prov:Activity", "kfm:Pass"],
            "dcterms:identifier": found.run_id,
            "prov:startedAtTime": instant(found.started_at_ms),
            "kfm:status": found.state,
            "kfm:pipeline": pipeline,
            "kfm:attempts": whole(found.attempt),
            **known(
                prov_endedAtTime=None if ended is None else instant(max(ended, found.started_at_ms)),
                kfm_branch=found.branch if own else None,
                kfm_commit=found.commit,
                kfm_errorCode=found.error_code,
            ),
            **{f"kfm:{name}Nodes": whole(found.counts.get(name, 0)) for name in COUNTS},
            **self._association(),
        }

    def parts(self, nodes: Iterable[Node]) -> list[Thing]:
        kept = {node.dataset_id: node for node in nodes}
        things: dict[str, Thing] = {}
        for node in kept.values():
            reads = [kept[each] for each in self._reads.get(node.dataset_id, ()) if each in kept]
            sources = [self._result_urn(each) for each in reads if each.outcome in MADE]
            if node.outcome in EXECUTED:
                inputs = self._inputs(node)
                things |= inputs
                activity = self._executed(node, [*sources, *inputs])
                things[activity["@id"]] = activity
            if node.outcome in MADE:
                result = self._result(node, sources)
                things[result["@id"]] = result
            name = self._public(node.dataset_id)
            urn = keys.dataset_urn(name)
            things[urn] = {
                "@id": urn,
                "@type": ["prov:Entity", "kfm:Dataset"],
                "dcterms:identifier": name,
                **known(kfm_withheld=None if name == node.dataset_id else MASKED),
            }
        return list(things.values())

    def _result_urn(self, node: Node) -> str:
        made_by = node.skipped_because or node.run_id
        return keys.result_urn(made_by, self._public(node.dataset_id))

    def _executed(self, node: Node, used: list[str]) -> Thing:
        name = self._public(node.dataset_id)
        ended_ms = node.recorded_at_ms
        return {
            "@id": keys.node_urn(node.run_id, name),
            "@type": ["prov:Activity", "kfm:PassNode"],
            "dcterms:identifier": f"{node.run_id}/{name}",
            "dcterms:isPartOf": ref(self._run),
            "prov:startedAtTime": instant(ended_ms - (node.duration_ms or 0)),
            "prov:endedAtTime": instant(ended_ms),
            "kfm:node": name,
            "kfm:attempt": whole(node.attempt),
            "kfm:outcome": node.outcome,
            "kfm:inputsHash": node.inputs_hash,
            "kfm:validation": provenance.validation(node.validation_summary),
            **known(
                kfm_codeVersion=node.code_sha if name == node.dataset_id else None,
                kfm_errorCode=node.error_code,
                prov_used=refs(used),
            ),
            **self._association(),
        }

    def _result(self, node: Node, sources: list[str]) -> Thing:
        name = self._public(node.dataset_id)
        made_by = node.skipped_because or node.run_id
        maker = keys.node_urn(made_by, name)
        return {
            "@id": self._result_urn(node),
            "@type": ["prov:Entity", "kfm:NodeResult"],
            "prov:specializationOf": ref(keys.dataset_urn(name)),
            "prov:wasGeneratedBy": ref(maker),
            "spdx:checksum": checksum(outputs_hash(node.outputs)),
            "kfm:outcome": node.outcome,
            "kfm:inputsHash": node.inputs_hash,
            "kfm:files": whole(len(node.outputs)),
            "kfm:size": whole(sum(each.size for each in node.outputs)),
            **known(
                kfm_branch=node.lakefs_branch if name == node.dataset_id else None,
                kfm_commit=node.output_commit,
                prov_wasDerivedFrom=refs(sources),
            ),
        }

    def _inputs(self, node: Node) -> dict[str, Thing]:
        """What lies outside and was read, where the document behind the hash is kept and may be shown."""
        text = self._document(node.inputs_hash)
        if text is None or self._public(node.dataset_id) != node.dataset_id:
            return {}
        things = {}
        for row in msgspec.json.decode(text).get("inputs", ())[:INPUTS_MAX]:
            uri = row.get("uri")
            if not isinstance(uri, str):
                continue
            sum_ = row.get("checksum")
            seen = isinstance(sum_, str) and is_sha256(sum_)
            things[address(uri)] = {
                "@id": address(uri),
                "@type": ["prov:Entity", "kfm:Input"],
                **known(
                    spdx_checksum=checksum(sum_) if seen else None,
                    kfm_noEvidence=None if seen else NO_BYTES,
                    kfm_etag=row.get("etag"),
                ),
            }
        return things
