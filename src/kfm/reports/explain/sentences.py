"""Explanations: sentences, each with the record that it was read from."""

from __future__ import annotations

from typing import Literal

from kfm.model.records import Invocation, Promotion, Record, Run
from kfm.model.requests import UpdateRequest
from kfm.model.runs import Attempt, ChainLink

RecordType = Literal[
    "run",
    "invocation",
    "attempt",
    "governance",
    "promotion",
    "policy",
    "inputs",
    "letter",
    "dataset",
    "source",
    "pass",
    "run-state",
    "document",
    "unit",
    "request",
    "schedule",
    "incident",
    "breaker",
    "approval",
    "replay",
]
Kind = Literal[
    "run",
    "attempt",
    "node",
    "invocation",
    "dataset",
    "source",
    "pass",
    "unit",
    "request",
    "schedule",
    "incident",
    "breaker",
    "approval",
    "replay",
]


class Ref(Record, frozen=True):
    """Where a sentence can be checked."""

    type: RecordType
    id: str


class Sentence(Record, frozen=True):
    text: str
    record: Ref


class Explanation(Record, frozen=True):
    """The single reason, then what led to it."""

    kind: Kind
    id: str
    reason: Sentence
    chain: tuple[Sentence, ...]


def of_run(text: str, run: Run) -> Sentence:
    return Sentence(text=text, record=Ref(type="run", id=run.run_id))


def of_call(text: str, call: Invocation) -> Sentence:
    return Sentence(text=text, record=Ref(type="invocation", id=call.invocation_id))


def of_attempt(text: str, run_id: str, attempt: int, node: str = "") -> Sentence:
    place = f"{run_id}#{attempt}/{node}" if node else f"{run_id}#{attempt}"
    return Sentence(text=text, record=Ref(type="attempt", id=place))


def of_row(text: str, attempt: Attempt) -> Sentence:
    return of_attempt(text, attempt.run_id, attempt.attempt, attempt.node)


def of_request(text: str, request: UpdateRequest) -> Sentence:
    return Sentence(text=text, record=Ref(type="request", id=request.request_id))


def of_link(text: str, link: ChainLink) -> Sentence:
    return Sentence(text=text, record=Ref(type="governance", id=str(link.number)))


def of_promotion(text: str, promotion: Promotion) -> Sentence:
    place = f"{promotion.dataset_id}/{promotion.sequence}"
    return Sentence(text=text, record=Ref(type="promotion", id=place))


def of_inputs(text: str, fingerprint: str) -> Sentence:
    return Sentence(text=text, record=Ref(type="inputs", id=fingerprint))
