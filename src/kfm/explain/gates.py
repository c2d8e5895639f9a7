"""Refusals: which gate, by which rule, and what would have to be otherwise."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kfm.core.evidence import Link
from kfm.core.gates import cause_and_remedy, combine
from kfm.core.records import GateResult, Invocation
from kfm.explain.sentences import Ref, Sentence, of_call, stopped
from kfm.ports import LedgerReader

POLICY_CHARS_MAX = 2000
_LIFT = re.compile(r'@lift\("((?:[^"\\]|\\.)*)"\)')
_FROZEN = re.compile(r"^Frozen from \S+ to (\S+): ")
# Where neither the gate nor a rule says who can lift it, and how.
_LIFTED = {
    "care": "the community decides otherwise or a reviewer approves the release, and whoever keeps the "
    "configuration then changes rights.care",
    "sovereignty": "the authority that the rights name grants its consent, and whoever keeps the "
    "configuration then changes rights.sovereignty.consent",
    "licence": "whoever keeps the configuration names an open licence in rights.license",
    "policy": "what the rule asks for is done, or whoever keeps the policies changes it",
    "budget": "a person answers for it: `kfm run … --rationale TEXT --ticket ID`",
    "plan": "the plan is made anew: `kfm diff --plan FILE`",
}


def refused(gates: Sequence[GateResult]) -> list[GateResult]:
    """Those that stood in the way, the one that is hardest to lift first."""
    denied = [gate for gate in gates if not gate.allowed and not gate.overridden]
    first = combine(denied).first_blocker if denied else None
    return [] if first is None else [first, *(gate for gate in denied if gate is not first)]


def blocker_text(gate: GateResult, texts: dict[str, str] | None) -> str:
    """The top line: what stands in the way, who can lift it, and the command."""
    cause, _ = cause_and_remedy(gate)
    for lift in _lifts(gate, texts):
        cause = cause.replace(stopped(lift), "").rstrip()
    return f"{stopped(cause)} {would_pass(gate, texts)}"


def _lifts(gate: GateResult, texts: dict[str, str] | None) -> list[str]:
    """What the rules themselves say about how they are lifted."""
    return [found[1] for name in gate.policy_ids if (found := _LIFT.search((texts or {}).get(name, "")))]


def would_pass(gate: GateResult, texts: dict[str, str] | None) -> str:
    """Of one refusal: what would have to be otherwise, and who sees to it."""
    _, remedy = cause_and_remedy(gate)
    if gate.policy_ids:
        lifts = [stopped(lift) for lift in _lifts(gate, texts)]
        if lifts:
            return f"What would let it pass: {' '.join(lifts)}"
    elif gate.gate == "freeze" and remedy:
        end = _FROZEN.match(gate.reason)
        after = f"after {end[1]}" if end else "once the freeze is over"
        return f"Would pass {after}, or with a force: {stopped(remedy)}"
    elif remedy:
        what = {
            "switch": "the kill switch was set to running",
            "rights": "the configuration declared what is missing",
            "contract": "the data kept its contract",
        }.get(gate.gate, "the cause was gone")
        return f"Would pass if {what}: {stopped(remedy)}"
    if gate.gate in _LIFTED:
        return f"Would pass if {stopped(_LIFTED[gate.gate])}"
    return "No evidence of what would let it pass."


def refusals(
    ledger: LedgerReader, call: Invocation, links: Sequence[Link], *, told_first: bool = False
) -> list[Sentence]:
    """All that refused a call, with the rules' texts. The first may have been told as the reason."""
    bundle = bundle_of(call, links)
    texts = ledger.policy_texts(bundle) if bundle else None
    sentences = []
    for index, gate in enumerate(refused(call.gates)):
        if index or not told_first:
            sentences.append(of_call(f"Gate {gate.gate} refused it: {stopped(gate.reason)}", call))
            sentences.append(of_call(would_pass(gate, texts), call))
        sentences += [_rule(name, bundle, texts, call) for name in gate.policy_ids]
    passed = [gate for gate in call.gates if gate.overridden]
    sentences += [
        of_call(f"A force passed gate {gate.gate}: {stopped(gate.reason)}", call) for gate in passed
    ]
    return sentences


def bundle_of(call: Invocation, links: Sequence[Link]) -> str | None:
    """The policies that were in force at a call, if that is on record."""
    for link in links:
        details = link.entry.details
        if details.get("policies") and details.get("invocation_id") in (None, call.invocation_id):
            return str(details["policies"])
    return None


def _rule(name: str, bundle: str | None, texts: dict[str, str] | None, call: Invocation) -> Sentence:
    if bundle is None:
        return of_call(
            f"No evidence of which text policy {name} had: the policies in force are not on record.", call
        )
    record = Ref(type="policy", id=f"{bundle}/{name}")
    if texts is None or name not in texts:
        return Sentence(text=f"The text of policy {name} is not kept.", record=record)
    text = " ".join(texts[name].split())
    if len(text) > POLICY_CHARS_MAX:
        text = f"{text[: POLICY_CHARS_MAX - 1]}…"
    return Sentence(text=f"Policy {name} says: {text}", record=record)
