"""PROV-O documents of runs and invocations, as JSON-LD: entities, agents, activities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from msgspec.structs import replace

from kfm.lineage.masking import Mask, masked_invocation, masked_run
from kfm.lineage.run_facts import AttemptEvents, CallEvidence, RunEvidence, gather, gather_call
from kfm.model import keys
from kfm.model.canonical import canonical_bytes
from kfm.model.derived import InputPin
from kfm.model.energy import Energy
from kfm.model.errors import UnhashableInput
from kfm.model.keys import TERMS, bare_hex, refused_call_id
from kfm.model.records import Asset, Found, GateResult, Invocation
from kfm.model.redaction import redact_url
from kfm.model.runs import Attempt, CallRetry
from kfm.model.settings import Rights
from kfm.model.times import MS_MAX, MS_MIN, rfc3339

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.versions import Version


RETRIES_MAX = 1000
MASKED = "The name stands for a dataset that must not be named."
VERSION_GONE = "This version is not kept any more."
NO_BYTES = "Its bytes were not seen by the run: it is known by what discovery told."
UNKNOWN = "unknown"
NO_POLICIES = "It is not on record which policies were in force."
NO_TEXTS = "The texts of these policies were not kept."
NO_VERSION = "It is not on record which version did the work."


def prov_of(
    ledger: LedgerReader,
    run_id: str,
    *,
    mask: Mask | None = None,
    environment: str | None = None,
    rights: Rights | None = None,
    policies: str | None = None,
    producer: str | None = None,
    fetched: Sequence[Found] = (),
    version: Version | None = None,
) -> dict[str, Any]:
    """The document of a run, read from the ledger. For the last four see `gather`.

    `rights` are included where the run published nothing that would have them.
    """
    evidence = gather(ledger, run_id, policies=policies, producer=producer, fetched=fetched, version=version)
    return prov_document(evidence, mask=mask, environment=environment, rights=rights)


def prov_of_call(
    ledger: LedgerReader,
    invocation_id: str,
    *,
    mask: Mask | None = None,
    environment: str | None = None,
    rights: Rights | None = None,
    policies: str | None = None,
    producer: str | None = None,
) -> dict[str, Any]:
    """The document of an invocation that was refused, or failed at admission."""
    evidence = gather_call(ledger, invocation_id, policies=policies, producer=producer)
    return call_document(evidence, mask=mask, environment=environment, rights=rights)


def prov_bytes(document: dict[str, Any]) -> bytes:
    """As it is written: one canonical line."""
    return written(document)


def prov_document(
    evidence: RunEvidence,
    *,
    mask: Mask | None = None,
    environment: str | None = None,
    rights: Rights | None = None,
) -> dict[str, Any]:
    """A run with its attempts, nodes, invocations, inputs, outputs, agents and plans."""
    return {"@context": CONTEXT, "@graph": _Account(evidence, mask, environment, rights).graph()}


def call_document(
    evidence: CallEvidence,
    *,
    mask: Mask | None = None,
    environment: str | None = None,
    rights: Rights | None = None,
) -> dict[str, Any]:
    call = evidence.invocation if mask is None else masked_invocation(evidence.invocation, mask)
    things = [
        _refused_call(call, evidence.attempt_events, None, environment),
        _invocation(call),
        dataset(call.dataset_id, masked=mask is not None, rights=rights),
        *agents([_unclaimed(call, mask)], (), [evidence.attempt_events.producer]),
        *plans([evidence.attempt_events.policies], evidence.policies, named=mask is None),
        *roles(),
    ]
    return {"@context": CONTEXT, "@graph": things}


class _Account:
    """One run, in the order in which it happened."""

    def __init__(
        self, evidence: RunEvidence, mask: Mask | None, environment: str | None, rights: Rights | None
    ) -> None:
        self._evidence = evidence
        self._mask = mask
        self._environment = environment
        self._run = evidence.run if mask is None else masked_run(evidence.run, mask)
        self._calls = [
            call if mask is None else _unclaimed(masked_invocation(call, mask), mask)
            for call in evidence.invocations
        ]
        self._by_id = {call.invocation_id: call for call in self._calls}
        self._name = keys.run_urn(self._run.run_id)
        self._entities = Entities(evidence, mask, rights)
        self._approvers = sorted(
            {entry.actor if mask is None else mask(entry.actor) for entry in evidence.approvals}
        )

    def graph(self) -> list[Thing]:
        evidence = self._evidence
        whole_run = [one for one in evidence.attempts if not one.node]
        tried = {one.invocation_id for one in evidence.attempts}
        away = [
            call
            for call in self._calls
            if call.outcome in ("refused", "failed") and call.invocation_id not in tried
        ]
        names = [
            *(one.lineage_id for one in evidence.attempts),
            *(refused_call_id(c.invocation_id) for c in away),
        ]
        attempt_events = [evidence.attempt_events.get(name, AttemptEvents()) for name in names] or [
            AttemptEvents()
        ]
        return [
            self._activity(),
            *(self._attempt(one, before) for before, one in pairwise([None, *whole_run]) if one),
            *self._nodes(),
            *(self._away(call) for call in away),
            *(_invocation(call) for call in self._calls),
            *self._entities.inputs(),
            *self._entities.outputs(),
            self._entities.dataset(),
            *agents(self._calls, self._approvers, [one.producer for one in attempt_events]),
            *plans([one.policies for one in attempt_events], evidence.policies, named=self._mask is None),
            *roles(),
        ]

    # --- activities --------------------------------------------------------------------

    def _activity(self) -> Thing:
        run, evidence = self._run, self._evidence
        ended = run.end_time_ms if run.status != "running" else None
        last = (
            evidence.attempt_events.get(evidence.attempts[-1].lineage_id, AttemptEvents())
            if evidence.attempts
            else AttemptEvents()
        )
        actors = {call.actor for call in self._calls if call.outcome not in ("noop", "busy")}
        unchanged = run.version_id is not None and evidence.promotion is None
        return {
            "@id": self._name,
            "@type": ["prov:Activity", "kfm:Run"],
            "dcterms:identifier": run.run_id,
            "prov:startedAtTime": instant(run.start_time_ms),
            **known(
                prov_endedAtTime=None if ended is None else instant(max(ended, run.start_time_ms)),
                kfm_environment=self._environment,
                kfm_fingerprint=run.fingerprint,
                kfm_errorCode=run.error_code,
                kfm_foundUnchanged=ref(keys.version_urn(run.version_id or "")) if unchanged else None,
                prov_used=self._entities.used(),
            ),
            "kfm:status": run.status,
            "kfm:dataset": ref(keys.dataset_urn(run.dataset_id)),
            "kfm:pipeline": run.pipeline_id,
            "kfm:pipelineVersion": run.pipeline_version,
            "kfm:trigger": run.trigger_type,
            "kfm:idempotencyKey": run.idempotency_key,
            "kfm:workKey": run.work_key,
            "kfm:revision": whole(run.revision),
            "kfm:attempts": whole(run.attempts),
            "kfm:windowStart": instant(run.window_start_ms),
            "kfm:windowEnd": instant(run.window_end_ms),
            **association(last, sorted(actors), self._approvers),
        }

    def _attempt(self, one: Attempt, before: Attempt | None) -> Thing:
        call = self._by_id.get(one.invocation_id)
        thing = self._try(one, "kfm:Attempt", self._name)
        if before is not None:
            thing["prov:wasInformedBy"] = ref(keys.attempt_urn(before.lineage_id))
        thing["prov:wasStartedBy"] = ref(keys.invocation_urn(one.invocation_id))
        attempt_events = self._evidence.attempt_events.get(one.lineage_id, AttemptEvents())
        thing |= association(attempt_events, [call.actor] if call else [], self._approvers)
        if call is not None:
            thing |= known(kfm_gateResult=[gate(result) for result in call.gates])
        return thing

    def _away(self, call: Invocation) -> Thing:
        attempt_events = self._evidence.attempt_events.get(
            refused_call_id(call.invocation_id), AttemptEvents()
        )
        return _refused_call(call, attempt_events, self._name, self._environment)

    def _nodes(self) -> list[Thing]:
        things = []
        whole_run = {one.attempt: one for one in self._evidence.attempts if not one.node}
        last: dict[int, str] = {}
        for one in (each for each in self._evidence.attempts if each.node):
            parent = whole_run.get(one.attempt)
            thing = self._try(
                one, "kfm:NodeAttempt", keys.attempt_urn(parent.lineage_id) if parent else self._name
            )
            thing["kfm:node"] = one.node
            if one.attempt in last:
                thing["prov:wasInformedBy"] = ref(last[one.attempt])
            attempt_events = self._evidence.attempt_events.get(one.lineage_id, AttemptEvents())
            thing |= association(attempt_events, [], [])
            retries = [
                each
                for each in self._evidence.retries
                if (each.attempt, each.node) == (one.attempt, one.node)
            ]
            thing |= known(kfm_retry=[retry(each) for each in retries[:RETRIES_MAX]])
            last[one.attempt] = thing["@id"]
            things.append(thing)
        return things

    def _try(self, one: Attempt, kind: str, part_of: str) -> Thing:
        ended = None if one.ended_at_ms is None else max(one.ended_at_ms, one.started_at_ms)
        return {
            "@id": keys.attempt_urn(one.lineage_id),
            "@type": ["prov:Activity", kind],
            "dcterms:identifier": one.lineage_id,
            "dcterms:isPartOf": ref(part_of),
            "prov:startedAtTime": instant(one.started_at_ms),
            "kfm:attempt": whole(one.attempt),
            **known(
                prov_endedAtTime=None if ended is None else instant(ended),
                kfm_ending=one.ending,
                kfm_outcome=one.outcome,
                kfm_errorCode=one.error_code,
                kfm_errorClass=one.error_class,
                kfm_retryable=None if one.retryable is None else flag(one.retryable),
                kfm_delayMs=whole(one.delay_ms) if one.delay_ms else None,
                kfm_inputsHash=one.inputs_hash,
                kfm_codeVersion=None if self._mask is not None else one.code_sha,
                kfm_validation=None if one.validation is None else validation(one.validation),
                kfm_energy=None if one.energy is None else energy(one.energy),
            ),
        }


# --- invocations ------------------------------------------------------------------


def _unclaimed(call: Invocation, mask: Mask | None) -> Invocation:
    """A masked invocation has no names, not even of whom it claims to act for."""
    return call if mask is None else replace(call, claimed_actor=None, rationale=None)


def _invocation(call: Invocation) -> Thing:
    return {
        "@id": keys.invocation_urn(call.invocation_id),
        "@type": ["prov:Entity", "kfm:Invocation"],
        "dcterms:identifier": call.invocation_id,
        "prov:generatedAtTime": instant(call.requested_at_ms),
        "prov:wasAttributedTo": ref(keys.agent_urn(call.actor)),
        "kfm:trigger": call.trigger_type,
        "kfm:idempotencyKey": call.idempotency_key,
        **known(kfm_outcome=call.outcome),
    }


def _refused_call(
    call: Invocation, attempt_events: AttemptEvents, run: str | None, environment: str | None
) -> Thing:
    """An invocation that never became an attempt still is something that was done, and by whom."""
    lineage_id = refused_call_id(call.invocation_id)
    return {
        "@id": keys.attempt_urn(lineage_id),
        "@type": ["prov:Activity", "kfm:Call"],
        "dcterms:identifier": lineage_id,
        "prov:startedAtTime": instant(call.requested_at_ms),
        "prov:endedAtTime": instant(call.requested_at_ms),
        "prov:wasStartedBy": ref(keys.invocation_urn(call.invocation_id)),
        "kfm:ending": "abort" if call.outcome == "refused" else "fail",
        "kfm:dataset": ref(keys.dataset_urn(call.dataset_id)),
        **known(
            dcterms_isPartOf=None if run is None else ref(run),
            kfm_environment=environment,
            kfm_gateResult=[gate(result) for result in call.gates],
        ),
        **association(attempt_events, [call.actor], []),
    }


class Entities:
    """Inputs and outputs of one run. With a mask their names stay at home."""

    def __init__(self, evidence: RunEvidence, mask: Mask | None, rights: Rights | None) -> None:
        self._evidence = evidence
        self._mask = mask
        self._rights = evidence.version.header.rights if evidence.version else rights
        dataset_id = evidence.run.dataset_id
        self._dataset_id = dataset_id if mask is None else mask(dataset_id)
        self._name = keys.run_urn(evidence.run.run_id)

    def dataset(self) -> Thing:
        return dataset(self._dataset_id, masked=self._mask is not None, rights=self._rights)

    def _input_name(self, found: Found) -> str:
        if self._mask is not None:
            return keys.input_urn(self._mask(found.uri))
        return address(found.uri)

    def used(self) -> list[Thing]:
        if not self._evidence.inputs_known:
            return []
        files = refs(self._input_name(found) for found in self._evidence.inputs)
        return [ref(self._collection()), *refs(self._read_versions()), *files]

    def _read_versions(self) -> dict[str, InputPin]:
        """The versions of other datasets that were read, named as by the runs that made them."""
        # Files of a dataset that must not be named have a name that does not tell it.
        named = {file[0] for one in self._evidence.inputs if (file := keys.file_of_urn(one.uri))}
        if self._mask is not None:
            return {}
        return {
            keys.version_urn(pin.version_id): pin
            for pin in self._evidence.pins
            if pin.version_id and pin.dataset_id in named
        }

    def _collection(self) -> str:
        evidence = self._evidence
        hashes = [evidence.run.fingerprint, *(one.inputs_hash for one in reversed(evidence.attempts))]
        return keys.inputs_urn(next((one for one in hashes if one), evidence.run.run_id))

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
        versions: list[Thing] = []
        for name, pin in sorted(self._read_versions().items()):
            versions += [
                dataset(pin.dataset_id, masked=False),
                {
                    "@id": name,
                    "@type": ["prov:Entity", "prov:Collection", "kfm:DatasetVersion"],
                    "dcterms:identifier": pin.version_id,
                    "prov:specializationOf": ref(keys.dataset_urn(pin.dataset_id)),
                    "spdx:checksum": checksum(pin.version_id or ""),
                    "kfm:sequence": whole(pin.sequence),
                },
            ]
        return [collection, *versions, *(self._input(name, found[name]) for name in sorted(found))]

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
                prov_atLocation=_location(address(found.origin)) if found.origin else None,
            ),
        }

    def outputs(self) -> list[Thing]:
        evidence, run = self._evidence, self._evidence.run
        if run.version_id is None or not is_sha256(run.version_id):
            return []
        promotion, before, item = evidence.promotion, evidence.before, evidence.item
        files = {} if item is None or self._mask is not None else self._files(item.assets)
        version = {
            "@id": keys.version_urn(run.version_id),
            "@type": ["prov:Entity", "prov:Collection", "kfm:DatasetVersion"],
            "dcterms:identifier": run.version_id,
            "prov:specializationOf": ref(keys.dataset_urn(self._dataset_id)),
            "spdx:checksum": checksum(run.version_id),
            **known(
                kfm_noEvidence=None if evidence.version else VERSION_GONE,
                kfm_files=None if item is None else whole(len(item.assets)),
                prov_hadMember=refs(files),
            ),
        }
        if promotion is not None:
            version["prov:wasGeneratedBy"] = ref(self._name)
            version["prov:generatedAtTime"] = instant(promotion.promoted_at_ms)
            version["kfm:sequence"] = whole(promotion.sequence)
            if before is not None and before.version_id != run.version_id:
                version["prov:wasRevisionOf"] = ref(keys.version_urn(before.version_id))
        return [version, *files.values()]

    def _files(self, assets: Sequence[Asset]) -> dict[str, Thing]:
        inputs = {self._input_name(found) for found in self._evidence.inputs}
        maker = self._evidence.made_by
        things = {}
        for asset in assets:
            name = keys.file_urn(self._dataset_id, asset.path, asset.sha256)
            origin = address(asset.source_uri) if asset.source_uri else None
            # Of a file that a pipeline wrote it is only known what the pipeline could read.
            source = origin if origin in inputs else self._collection() if inputs else None
            mine = maker == self._evidence.run.run_id
            things[name] = {
                "@id": name,
                "@type": ["prov:Entity", "kfm:Output"],
                "spdx:checksum": checksum(asset.sha256),
                "prov:atLocation": _location(asset.path),
                "kfm:size": whole(asset.size),
                "dcterms:format": asset.media_type,
                **known(
                    prov_wasGeneratedBy=ref(keys.run_urn(maker)) if maker else None,
                    prov_wasDerivedFrom=ref(source) if source and mine else None,
                ),
            }
        return things


def dataset(dataset_id: str, *, masked: bool, rights: Rights | None = None) -> Thing:
    thing = {
        "@id": keys.dataset_urn(dataset_id),
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


def plan_urn(bundle_id: str | None) -> str:
    return keys.policies_urn(bundle_id or UNKNOWN)


def association(attempt_events: AttemptEvents, actors: Sequence[str], approvers: Sequence[str]) -> Thing:
    """The runner with its plan; who asked; who answered for it."""
    runner = keys.software_urn(attempt_events.producer)
    qualified = [
        {
            "@type": "prov:Association",
            "prov:agent": ref(runner),
            "prov:hadRole": ref("kfm:runner"),
            "prov:hadPlan": ref(plan_urn(attempt_events.policies)),
        }
    ]
    people = [(name, "kfm:requester") for name in actors] + [(name, "kfm:approver") for name in approvers]
    for name, role in people:
        qualified.append(
            {
                "@type": "prov:Association",
                "prov:agent": ref(keys.agent_urn(name)),
                "prov:hadRole": ref(role),
            }
        )
    return {
        "prov:wasAssociatedWith": refs([runner, *(keys.agent_urn(name) for name, _ in people)]),
        "prov:qualifiedAssociation": qualified,
    }


class Requester(Protocol):
    """As much of an invocation as agents are made of."""

    @property
    def actor(self) -> str: ...
    @property
    def claimed_actor(self) -> str | None: ...


def agents(
    calls: Iterable[Requester], approvers: Iterable[str], producers: Iterable[str | None]
) -> list[Thing]:
    things: dict[str, Thing] = {}
    for version in [*producers] or [None]:
        name = keys.software_urn(version)
        things[name] = {
            "@id": name,
            "@type": ["prov:Agent", "prov:SoftwareAgent"],
            "rdfs:label": "kfm",
            **known(kfm_version=version, kfm_noEvidence=None if version else NO_VERSION),
        }
    for call in calls:
        thing = _agent(things, call.actor, "prov:Agent")
        if call.claimed_actor:
            claimed = _agent(things, call.claimed_actor, "prov:Agent")
            claimed["kfm:claimed"] = flag(True)  # it was not checked
            behalf = {one["@id"] for one in thing.get("prov:actedOnBehalfOf", ())} | {claimed["@id"]}
            thing["prov:actedOnBehalfOf"] = refs(behalf)
    for name in approvers:
        _agent(things, name, "prov:Person")
    return [things[name] for name in sorted(things)]


def _agent(things: dict[str, Thing], name: str, kind: str) -> Thing:
    """An actor may be a job: only who gave a reason for an exception is known to be a person."""
    urn = keys.agent_urn(name)
    thing = things.setdefault(urn, {"@id": urn, "@type": ["prov:Agent"], "rdfs:label": name})
    if kind not in thing["@type"]:
        thing["@type"].append(kind)
    return thing


def plans(
    bundles: Iterable[str | None], texts: Mapping[str, Mapping[str, str] | None], *, named: bool
) -> list[Thing]:
    """The policies in force, by the hash of all and the hash of each. Texts stay in the ledger."""
    things: dict[str, Thing] = {}
    for bundle in bundles:
        urn = plan_urn(bundle)
        kept = texts.get(bundle) if bundle else None
        gap = NO_POLICIES if bundle is None else NO_TEXTS if kept is None else None
        policies = {}
        for policy_id, text in (kept or {}).items() if named else ():
            name = keys.policy_urn(bundle or UNKNOWN, policy_id)
            policies[name] = {
                "@id": name,
                "@type": ["prov:Entity", "kfm:Policy"],
                "dcterms:identifier": policy_id,
                "dcterms:isPartOf": ref(urn),
                "spdx:checksum": checksum(sha256(text.encode("utf-8", "replace")).hexdigest()),
            }
        things[urn] = {
            "@id": urn,
            "@type": ["prov:Entity", "prov:Plan", "kfm:PolicyBundle"],
            **known(
                spdx_checksum=checksum(bundle) if bundle and is_sha256(bundle) else None,
                kfm_noEvidence=gap,
                kfm_policy=refs(policies),
            ),
        }
        things |= policies
    return [things[name] for name in sorted(things)]


def roles() -> list[Thing]:
    return [{"@id": f"kfm:{name}", "@type": "prov:Role"} for name in ("approver", "requester", "runner")]


def gate(result: GateResult) -> Thing:
    return {
        "@type": "kfm:GateResult",
        "kfm:gate": result.gate,
        "kfm:allowed": flag(result.allowed),
        "kfm:overridden": flag(result.overridden),
        "kfm:halts": flag(result.halts),
        **known(kfm_policyId=sorted(result.policy_ids)),
    }


def energy(figure: Energy) -> Thing:
    return {
        "@type": "kfm:Energy",
        "kfm:cpuMicroseconds": whole(figure.cpu_us),
        "kfm:microwattHours": whole(figure.energy_uwh),
        "kfm:co2Micrograms": whole(figure.co2_ug),
        "kfm:method": figure.method,
        "kfm:assumption": figure.assumption,
        **known(kfm_packageMicrowattHours=None if figure.package_uwh is None else whole(figure.package_uwh)),
    }


def validation(summary: Mapping[str, int]) -> Thing:
    return {
        "@type": "kfm:Validation",
        **{f"kfm:{name}": whole(summary.get(name, 0)) for name in ("checks", "passed", "failed")},
    }


def retry(one: CallRetry) -> Thing:
    return {
        "@type": "kfm:Retry",
        "kfm:call": whole(one.call),
        "kfm:try": whole(one.number),
        "kfm:delayMs": whole(one.delay_ms),
        "kfm:errorClass": one.error_class,
        "kfm:outcome": one.outcome,
    }


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


def _location(label: str) -> Thing:
    return {"@type": "prov:Location", "rdfs:label": label}


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
