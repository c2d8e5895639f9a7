"""Provenance in the words of PROV-O: one JSON-LD document for a run, or for a call that became none.

The document holds ids, times, checksums, verdicts and figures. Free text (messages, rationales, reasons)
stays in the ledger: it could quote anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from kfm.core import urns
from kfm.core.evidence import Attempt
from kfm.core.keys import turned_away_id
from kfm.core.records import Found, Invocation, Manifest
from kfm.core.settings import Rights
from kfm.lineage import parties
from kfm.lineage.entities import Entities, dataset
from kfm.lineage.gathering import CallEvidence, Heard, RunEvidence, gather, gather_call
from kfm.lineage.linked import CONTEXT, Thing, flag, instant, known, ref, whole, written
from kfm.lineage.veil import Mask, veiled_call, veiled_run
from kfm.ports import LedgerReader

RETRIES_MAX = 1000


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
    manifest: Manifest | None = None,
) -> dict[str, Any]:
    """The document of a run, read from the ledger. For the last four see `gather`.

    `rights` are told where the run published nothing that would have them.
    """
    evidence = gather(
        ledger, run_id, policies=policies, producer=producer, fetched=fetched, manifest=manifest
    )
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
    """The document of a call that was refused, or failed at the door."""
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
    """A run with its attempts, nodes, calls, inputs, outputs, agents and plans."""
    return {"@context": CONTEXT, "@graph": _Account(evidence, mask, environment, rights).graph()}


def call_document(
    evidence: CallEvidence,
    *,
    mask: Mask | None = None,
    environment: str | None = None,
    rights: Rights | None = None,
) -> dict[str, Any]:
    call = evidence.invocation if mask is None else veiled_call(evidence.invocation, mask)
    things = [
        _turned_away(call, evidence.heard, None, environment),
        _invocation(call),
        dataset(call.dataset_id, masked=mask is not None, rights=rights),
        *parties.agents([_unclaimed(call, mask)], (), [evidence.heard.producer]),
        *parties.plans([evidence.heard.policies], evidence.policies, named=mask is None),
        *parties.roles(),
    ]
    return {"@context": CONTEXT, "@graph": things}


class _Account:
    """One run, told in the order in which it happened."""

    def __init__(
        self, evidence: RunEvidence, mask: Mask | None, environment: str | None, rights: Rights | None
    ) -> None:
        self._evidence = evidence
        self._mask = mask
        self._environment = environment
        self._run = evidence.run if mask is None else veiled_run(evidence.run, mask)
        self._calls = [
            call if mask is None else _unclaimed(veiled_call(call, mask), mask)
            for call in evidence.invocations
        ]
        self._by_id = {call.invocation_id: call for call in self._calls}
        self._name = urns.run_urn(self._run.run_id)
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
            *(turned_away_id(c.invocation_id) for c in away),
        ]
        heard = [evidence.heard.get(name, Heard()) for name in names] or [Heard()]
        return [
            self._activity(),
            *(self._attempt(one, before) for before, one in pairwise([None, *whole_run]) if one),
            *self._nodes(),
            *(self._away(call) for call in away),
            *(_invocation(call) for call in self._calls),
            *self._entities.inputs(),
            *self._entities.outputs(),
            self._entities.dataset(),
            *parties.agents(self._calls, self._approvers, [one.producer for one in heard]),
            *parties.plans([one.policies for one in heard], evidence.policies, named=self._mask is None),
            *parties.roles(),
        ]

    # --- activities --------------------------------------------------------------------

    def _activity(self) -> Thing:
        run, evidence = self._run, self._evidence
        ended = run.end_time_ms if run.status != "running" else None
        last = evidence.heard.get(evidence.attempts[-1].lineage_id, Heard()) if evidence.attempts else Heard()
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
                kfm_foundUnchanged=ref(urns.version_urn(run.version_id or "")) if unchanged else None,
                prov_used=self._entities.used(),
            ),
            "kfm:status": run.status,
            "kfm:dataset": ref(urns.dataset_urn(run.dataset_id)),
            "kfm:pipeline": run.pipeline_id,
            "kfm:pipelineVersion": run.pipeline_version,
            "kfm:trigger": run.trigger_type,
            "kfm:idempotencyKey": run.idempotency_key,
            "kfm:workKey": run.work_key,
            "kfm:revision": whole(run.revision),
            "kfm:attempts": whole(run.attempts),
            "kfm:windowStart": instant(run.window_start_ms),
            "kfm:windowEnd": instant(run.window_end_ms),
            **parties.association(last, sorted(actors), self._approvers),
        }

    def _attempt(self, one: Attempt, before: Attempt | None) -> Thing:
        call = self._by_id.get(one.invocation_id)
        thing = self._try(one, "kfm:Attempt", self._name)
        if before is not None:
            thing["prov:wasInformedBy"] = ref(urns.attempt_urn(before.lineage_id))
        thing["prov:wasStartedBy"] = ref(urns.invocation_urn(one.invocation_id))
        heard = self._evidence.heard.get(one.lineage_id, Heard())
        thing |= parties.association(heard, [call.actor] if call else [], self._approvers)
        if call is not None:
            thing |= known(kfm_gateResult=[parties.gate(result) for result in call.gates])
        return thing

    def _away(self, call: Invocation) -> Thing:
        heard = self._evidence.heard.get(turned_away_id(call.invocation_id), Heard())
        return _turned_away(call, heard, self._name, self._environment)

    def _nodes(self) -> list[Thing]:
        things = []
        whole_run = {one.attempt: one for one in self._evidence.attempts if not one.node}
        last: dict[int, str] = {}
        for one in (each for each in self._evidence.attempts if each.node):
            parent = whole_run.get(one.attempt)
            thing = self._try(
                one, "kfm:NodeAttempt", urns.attempt_urn(parent.lineage_id) if parent else self._name
            )
            thing["kfm:node"] = one.node
            if one.attempt in last:
                thing["prov:wasInformedBy"] = ref(last[one.attempt])
            heard = self._evidence.heard.get(one.lineage_id, Heard())
            thing |= parties.association(heard, [], [])
            retries = [
                each
                for each in self._evidence.retries
                if (each.attempt, each.node) == (one.attempt, one.node)
            ]
            thing |= known(kfm_retry=[parties.retry(each) for each in retries[:RETRIES_MAX]])
            last[one.attempt] = thing["@id"]
            things.append(thing)
        return things

    def _try(self, one: Attempt, kind: str, part_of: str) -> Thing:
        ended = None if one.ended_at_ms is None else max(one.ended_at_ms, one.started_at_ms)
        return {
            "@id": urns.attempt_urn(one.lineage_id),
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
                kfm_validation=None if one.validation is None else parties.validation(one.validation),
                kfm_energy=None if one.energy is None else parties.energy(one.energy),
            ),
        }


# --- calls ------------------------------------------------------------------


def _unclaimed(call: Invocation, mask: Mask | None) -> Invocation:
    """A masked call names nobody, not even whom it claims to act for."""
    return call if mask is None else replace(call, claimed_actor=None, rationale=None)


def _invocation(call: Invocation) -> Thing:
    return {
        "@id": urns.invocation_urn(call.invocation_id),
        "@type": ["prov:Entity", "kfm:Invocation"],
        "dcterms:identifier": call.invocation_id,
        "prov:generatedAtTime": instant(call.requested_at_ms),
        "prov:wasAttributedTo": ref(urns.agent_urn(call.actor)),
        "kfm:trigger": call.trigger_type,
        "kfm:idempotencyKey": call.idempotency_key,
        **known(kfm_outcome=call.outcome),
    }


def _turned_away(call: Invocation, heard: Heard, run: str | None, environment: str | None) -> Thing:
    """A call that never became an attempt still is something that was done, and by whom."""
    lineage_id = turned_away_id(call.invocation_id)
    return {
        "@id": urns.attempt_urn(lineage_id),
        "@type": ["prov:Activity", "kfm:Call"],
        "dcterms:identifier": lineage_id,
        "prov:startedAtTime": instant(call.requested_at_ms),
        "prov:endedAtTime": instant(call.requested_at_ms),
        "prov:wasStartedBy": ref(urns.invocation_urn(call.invocation_id)),
        "kfm:ending": "abort" if call.outcome == "refused" else "fail",
        "kfm:dataset": ref(urns.dataset_urn(call.dataset_id)),
        **known(
            dcterms_isPartOf=None if run is None else ref(run),
            kfm_environment=environment,
            kfm_gateResult=[parties.gate(result) for result in call.gates],
        ),
        **parties.association(heard, [call.actor], []),
    }
