"""Masking: the evidence of a masked dataset as it may be shown outside.

Verdicts, figures and hashes stay; names, addresses, texts and content do not.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from kfm.model.records import GateResult, Invocation, Run
from kfm.model.runs import Attempt, Circumstances

Mask = Callable[[str], str]


def masked_run(run: Run, mask: Mask) -> Run:
    return replace(
        run,
        source_id=mask(run.source_id),
        dataset_id=mask(run.dataset_id),
        pipeline_id=mask(run.pipeline_id),
        pipeline_version=mask(run.pipeline_version),
        idempotency_key=mask(run.idempotency_key),
        work_key=mask(run.work_key),
        partition=None if run.partition is None else mask(run.partition),
    )


def masked_attempt(attempt: Attempt) -> Attempt:
    """Without the version of the code, too: it would help to check a guess at the source by the run's id."""
    return replace(attempt, error_message=None, code_sha=None)


def masked_invocation(invocation: Invocation, mask: Mask) -> Invocation:
    return replace(
        invocation,
        source_id=mask(invocation.source_id),
        dataset_id=mask(invocation.dataset_id),
        idempotency_key=mask(invocation.idempotency_key),
        actor=mask(invocation.actor),
        ticket=None,
        reason="Withheld: the dataset is masked.",
        gates=_masked_gates(invocation.gates, mask),
    )


def masked_circumstances(known: Circumstances, mask: Mask) -> Circumstances:
    """Inputs and outputs stay in it to be counted and named by their mask alone."""
    return Circumstances(
        invocation=None if known.invocation is None else masked_invocation(known.invocation, mask),
        gates=_masked_gates(known.gates, mask),
        policies=known.policies,
        inputs=known.inputs,
        outputs=known.outputs,
        version_id=known.version_id,
        pins=known.pins,
    )


def _masked_gates(gates: tuple[GateResult, ...], mask: Mask) -> tuple[GateResult, ...]:
    return tuple(
        GateResult(
            gate=result.gate,
            allowed=result.allowed,
            reason="",
            policy_ids=tuple(mask(policy) for policy in result.policy_ids),
            overridable=result.overridable,
            overridden=result.overridden,
            halts=result.halts,
        )
        for result in gates
    )
