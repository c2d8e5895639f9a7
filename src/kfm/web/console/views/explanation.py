"""Explanations as pages show them: sentences, each with its record; facts and commands."""

from __future__ import annotations

from kfm.model.records import GateResult, Invocation, Record
from kfm.reports.explain.invocations import bundle_of
from kfm.reports.explain.sentences import Explanation, Sentence
from kfm.web.console import state_words
from kfm.web.console.state_words import Word
from kfm.web.console.visit import NotForYou, Visit, short

POLICY_CHARS_MAX = 4000
REF_CHARS_MAX = 40
LINKS_MAX = 1000


class Fact(Record, frozen=True):
    name: str
    text: str
    at_ms: int | None = None
    href: str | None = None
    code: bool = False


class Next(Record, frozen=True):
    command: str
    why: str


def allowed(visit: Visit, dataset_id: str) -> None:
    """NotForYou for a hidden dataset: any record of it would reveal it."""
    if visit.visibility.hides(dataset_id):
        raise NotForYou("The records of this dataset need the role operate.")


class ShownSentence(Record, frozen=True):
    text: str
    record: str
    href: str | None


class ShownExplanation(Record, frozen=True):
    reason: ShownSentence
    chain: tuple[ShownSentence, ...]


def shown(visit: Visit, found: Explanation) -> ShownExplanation:
    return ShownExplanation(
        reason=_sentence(visit, found.reason), chain=tuple(_sentence(visit, each) for each in found.chain)
    )


def _sentence(visit: Visit, sentence: Sentence) -> ShownSentence:
    kind, name = sentence.record.type, sentence.record.id
    href = None
    if kind == "run":
        href = visit.run(name)
    elif kind == "pass":
        href = visit.at("pipelines", name)
    elif kind == "attempt":
        href = f"{visit.run(name.partition('#')[0])}?tab=timeline"
    elif kind == "unit":
        href = visit.at("units", name)
    elif kind == "invocation":
        href = visit.at("calls", name)
    elif kind == "request":
        href = visit.at("requests", name)
    elif kind == "governance" and name.isdigit():
        href = visit.href("audit", before=int(name) + 1)
    first, mark, rest = name.partition("#" if "#" in name else "/")
    name = f"{short(first)}{mark}{rest[:REF_CHARS_MAX]}" if kind != "unit" else name
    return ShownSentence(
        text=sentence.text, record=f"{'pipeline run' if kind == 'pass' else kind} {name}", href=href
    )


class ShownPolicy(Record, frozen=True):
    name: str
    text: str


class GateRow(Record, frozen=True):
    """The decision of one gate; gates that allowed share one row."""

    gates: str
    word: Word
    reason: str
    policies: tuple[ShownPolicy, ...]


class CallGates(Record, frozen=True):
    invocation_id: str
    href: str
    at_ms: int
    rows: tuple[GateRow, ...]


class CallRow(Record, frozen=True):
    invocation_id: str
    href: str
    at_ms: int
    word: Word
    trigger: str
    actor: str
    reason: str


def call_row(visit: Visit, call: Invocation) -> CallRow:
    claimed = f" for {call.claimed_actor}" if call.claimed_actor else ""
    reasons = [call.reason or "", f"Rationale: {call.rationale}" if call.rationale else ""]
    reasons += [f"Ticket: {call.ticket}"] if call.ticket else []
    return CallRow(
        invocation_id=short(call.invocation_id),
        href=visit.at("calls", call.invocation_id),
        at_ms=call.requested_at_ms,
        word=_call_word(visit, call),
        trigger=call.trigger_type,
        actor=f"{call.actor}{claimed}",
        reason=" ".join(part for part in reasons if part),
    )


def _call_word(visit: Visit, call: Invocation) -> Word:
    run = visit.reader.run(call.run_id) if call.outcome == "success" and call.run_id else None
    return state_words.of_invocation(call.outcome) if run is None else state_words.of_run(visit.reader, run)


def gate_rows(visit: Visit, calls: list[Invocation]) -> list[CallGates]:
    """The decisions of the gates at each invocation, with the texts of the policies."""
    found = []
    for call in calls:
        if not call.gates:
            continue
        links = visit.reader.links(call.run_id or call.invocation_id, limit=LINKS_MAX)
        bundle = bundle_of(call, links)
        texts = (visit.reader.policy_texts(bundle) if bundle else None) or {}
        against = [gate for gate in call.gates if not gate.allowed]
        rows = [_gate(gate, texts) for gate in against]
        passed = [gate for gate in call.gates if gate.allowed]
        if passed:
            rows.append(_passed(passed, texts))
        found.append(
            CallGates(
                invocation_id=short(call.invocation_id),
                href=visit.at("calls", call.invocation_id),
                at_ms=call.requested_at_ms,
                rows=tuple(rows),
            )
        )
    return found


def _gate(gate: GateResult, texts: dict[str, str]) -> GateRow:
    return GateRow(
        gates=gate.gate,
        word=state_words.word("forced" if gate.overridden else "refused"),
        reason=gate.reason,
        policies=_policies([gate], texts),
    )


def _passed(gates: list[GateResult], texts: dict[str, str]) -> GateRow:
    names = ", ".join(dict.fromkeys(gate.gate for gate in gates))
    reasons = " ".join(dict.fromkeys(gate.reason for gate in gates))
    return GateRow(
        gates=names, word=state_words.word("passed"), reason=reasons, policies=_policies(gates, texts)
    )


def _policies(gates: list[GateResult], texts: dict[str, str]) -> tuple[ShownPolicy, ...]:
    names = dict.fromkeys(name for gate in gates for name in gate.policy_ids)
    return tuple(ShownPolicy(name=name, text=texts.get(name, "")[:POLICY_CHARS_MAX]) for name in names)
