"""Accounts as pages show them: sentences, each with the record that it was read from."""

from __future__ import annotations

from kfm.core.records import GateResult, Invocation, Record
from kfm.explain import Account, Sentence
from kfm.serving.console import words
from kfm.serving.console.visits import Visit, short
from kfm.serving.console.words import Word

POLICY_CHARS_MAX = 4000


class Told(Record, frozen=True):
    text: str
    record: str
    href: str | None


class Story(Record, frozen=True):
    reason: Told
    chain: tuple[Told, ...]


def story(visit: Visit, account: Account) -> Story:
    return Story(reason=told(visit, account.reason), chain=tuple(told(visit, each) for each in account.chain))


def told(visit: Visit, sentence: Sentence) -> Told:
    kind, name = sentence.record.type, sentence.record.id
    href = None
    if kind == "run":
        href = visit.run(name)
    elif kind == "pass":
        href = visit.at("pipelines", name)
    elif kind == "attempt":
        href = f"{visit.run(name.partition('#')[0])}#timeline"
    elif kind == "unit":
        href = visit.at("units", name)
    elif kind == "invocation":
        href = visit.at("calls", name)
    elif kind == "governance" and name.isdigit():
        href = visit.href("audit", before=int(name) + 1)
    shown = short(name) if kind in ("run", "pass", "invocation") else name[:24]
    return Told(text=sentence.text, record=f"{kind} {shown}", href=href)


class Policy(Record, frozen=True):
    name: str
    text: str


class GateRow(Record, frozen=True):
    at_ms: int
    gate: str
    word: Word
    reason: str
    policies: tuple[Policy, ...]


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
    said = [call.reason or "", f"Rationale: {call.rationale}" if call.rationale else ""]
    said += [f"Ticket: {call.ticket}"] if call.ticket else []
    return CallRow(
        invocation_id=short(call.invocation_id),
        href=visit.at("calls", call.invocation_id),
        at_ms=call.requested_at_ms,
        word=words.of_call(call.outcome),
        trigger=call.trigger_type,
        actor=f"{call.actor}{claimed}",
        reason=" ".join(part for part in said if part),
    )


def gate_rows(visit: Visit, calls: list[Invocation]) -> list[GateRow]:
    """What each gate said at each call, with the texts of the policies that decided."""
    rows = []
    for call in calls:
        links = visit.reader.links(call.run_id, limit=1000) if call.run_id else []
        bundle = next(
            (str(link.entry.details["policies"]) for link in links if link.entry.details.get("policies")),
            None,
        )
        texts = (visit.reader.policy_texts(bundle) if bundle else None) or {}
        rows += [_gate(call, gate, texts) for gate in call.gates]
    return rows


def _gate(call: Invocation, gate: GateResult, texts: dict[str, str]) -> GateRow:
    said = "forced" if gate.overridden else "passed" if gate.allowed else "blocked"
    return GateRow(
        at_ms=call.requested_at_ms,
        gate=gate.gate,
        word=words.word(said),
        reason=gate.reason,
        policies=tuple(
            Policy(name=name, text=texts.get(name, "")[:POLICY_CHARS_MAX]) for name in gate.policy_ids
        ),
    )
