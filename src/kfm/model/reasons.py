"""Reason codes: why a gate refused and why an invocation ended as it did, for programs.

The sentence beside a code is for readers and may be reworded at any time; no code reads it.
"""

from __future__ import annotations

from typing import Literal

from kfm.model.records import Record

GateCode = Literal[
    "switch-thrown",
    "frozen",
    "rights-missing",
    "contract-violated",
    "contract-empty",
    "rule",
    "policies-failed",
    "dataset-unknown",
]
GATE_CODES: dict[GateCode, str] = {
    "switch-thrown": "A kill switch is paused or stopped.",
    "frozen": "A freeze window covers this moment.",
    "rights-missing": "The dataset declares no licence or no CARE label.",
    "contract-violated": "A check of the data contract failed.",
    "contract-empty": "The data contract made no check.",
    "rule": "A policy forbids it.",
    "policies-failed": "The policies could not be evaluated.",
    "dataset-unknown": "This worker knows no such dataset.",
}

ReasonCode = Literal[
    "first-time",
    "running",
    "forced",
    "dataset-changed",
    "correction",
    "correction-applied",
    "compared",
    "attempt-failed",
    "attempt-interrupted",
    "budget-spent",
    "unchanged",
    "upstream-changed",
    "other-pipeline-published",
    "not-published",
    "description-changed",
]
# Each as the second half of a sentence: it ran because …
REASON_CODES: dict[ReasonCode, str] = {
    "first-time": "this work had not been done before",
    "running": "the same work was running",
    "forced": "it was forced",
    "dataset-changed": "its source feeds another dataset now",
    "correction": "a correction asked for it",
    "correction-applied": "the correction had been applied before",
    "compared": "it was done before and upstream had to be compared",
    "attempt-failed": "an earlier attempt had failed",
    "attempt-interrupted": "an earlier attempt was interrupted",
    "budget-spent": "the attempts before it had used up its retry budget",
    "unchanged": "upstream was unchanged",
    "upstream-changed": "upstream had changed",
    "other-pipeline-published": "another pipeline version had published this window since",
    "not-published": "nothing of its dataset was published",
    "description-changed": "the dataset's description or rights had changed",
}


class Reason(Record, frozen=True):
    """Why work is opened again: a code for programs, a sentence for readers."""

    code: ReasonCode
    text: str


def half(code: str | None) -> str | None:
    """A recorded code as the second half of a sentence; None: an error's code, or none was recorded."""
    return REASON_CODES.get(code) if code else None  # type: ignore[call-overload]
