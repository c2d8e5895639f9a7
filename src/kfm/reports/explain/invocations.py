"""Explains an invocation: who asked, what was decided, which gate refused and why."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from kfm.model.attempts import ChainLink
from kfm.model.gates import cause_and_remedy, combine, utc_text
from kfm.model.records import GateResult, Invocation, Run
from kfm.model.wording import counted, moment
from kfm.reports.explain.sentences import (
    Explanation,
    Ref,
    Sentence,
    of_call,
    of_inputs,
    of_link,
    of_run,
    stopped,
)

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

SHOWN_MAX = 20
READ_MAX = 1000
_ANSWERS = {
    "success": "and it succeeded",
    "noop": "and nothing had to be done",
    "refused": "and was refused",
    "busy": "and found it busy",
    "failed": "and it failed",
}


def account_of_call(ledger: LedgerReader, call: Invocation) -> Explanation:
    """Of a call that started nothing: why it did not."""
    run = ledger.run(call.run_id) if call.run_id else None
    links = [
        link
        for link in ledger.links(call.dataset_id, limit=READ_MAX)
        if link.entry.details.get("invocation_id") == call.invocation_id
    ]
    return Explanation(
        kind="invocation",
        id=call.invocation_id,
        reason=call_reason(call, run),
        chain=(*call_chain(ledger, call, run, links),),
    )


def call_reason(call: Invocation, run: Run | None) -> Sentence:
    name = f"Call {call.invocation_id}"
    said = stopped(call.reason or "no reason is recorded")
    blockers = refused(call.gates)
    if call.outcome == "refused" and blockers:
        return of_call(f"{name} was refused: {blocker_text(blockers[0])}", call)
    if call.outcome == "noop" and run is not None and run.fingerprint and is_unchanged(call):
        text = f"{name} did nothing: its inputs equal those of run {run.run_id}, both are {run.fingerprint}."
        return of_inputs(text, run.fingerprint)
    words = {
        "noop": "did nothing",
        "refused": "was refused",
        "busy": "found somebody at work",
        "failed": "failed",
        "success": "ended well. Why it ran",
        None: "is under way, or its end is not recorded. Why it began",
    }
    ways = {"busy": " `kfm status` shows who holds it and until when."}
    return of_call(f"{name} {words[call.outcome]}: {said}{ways.get(call.outcome or '', '')}", call)


def is_unchanged(call: Invocation) -> bool:
    """Was upstream compared, and found as it was when its run was done? Not recorded in old rows."""
    return call.reason_code == "unchanged"


def call_chain(
    ledger: LedgerReader, call: Invocation, run: Run | None, links: Sequence[ChainLink]
) -> list[Sentence]:
    told = [asked(call)]
    told.append(of_call(f"It came as trigger {call.trigger_type}, with key {call.idempotency_key}.", call))
    told += refusals(ledger, call, links, told_first=call.outcome == "refused")
    if run is None:
        told.append(of_call(f"No evidence of a run: it was for source {call.source_id}.", call))
    else:
        told.append(of_run(f"It was answered with run {run.run_id}, which is {run.status}.", run))
    return told + governed(links)


def asked(call: Invocation) -> Sentence:
    """Who, when, why, and how that ended."""
    claimed = f", for {call.claimed_actor}" if call.claimed_actor else ""
    ticket = f", ticket {call.ticket}" if call.ticket else ""
    why = f" (rationale: {call.rationale}{ticket})" if call.rationale else ""
    end = _ANSWERS.get(call.outcome or "", "and how that ended is not recorded")
    reason = f": {call.reason}" if call.reason else ""
    if call.outcome in ("success", None) and call.reason:
        reason = f". Why it ran: {call.reason}"
    who = f"At {moment(call.requested_at_ms)} {call.actor}{claimed}{why} asked for it"
    return of_call(stopped(f"{who}, {end}{reason}"), call)


def all_asked(run: Run, calls: Sequence[Invocation]) -> list[Sentence]:
    """The calls of a run in order; neighbours that ended alike are told once."""
    if not calls:
        return [of_run("No evidence of a call that asked for it.", run)]

    def alike(call: Invocation) -> tuple[object, ...]:
        return call.outcome, call.reason, call.actor, call.claimed_actor, call.rationale, call.ticket

    groups = [list(group) for _, group in groupby(calls, key=alike)]
    told: list[Sentence] = []
    for group in groups[:SHOWN_MAX]:
        told.append(asked(group[0]))
        if len(group) > 1:
            often = "Once more" if len(group) == 2 else f"{len(group) - 1} more times"
            told.append(of_call(f"{often} the same, last at {moment(group[-1].requested_at_ms)}.", group[-1]))
    if len(groups) > SHOWN_MAX:
        more = sum(map(len, groups[SHOWN_MAX:]))
        told.append(of_run(f"{counted(more, 'further call')} recorded: `kfm show {run.run_id}`.", run))
    return told


def repeated(run: Run, calls: Sequence[Invocation]) -> Sentence:
    """That it acts once is claimed only where somebody asked again and nothing was done."""
    same = [c for c in calls if c.outcome == "noop" and c.idempotency_key == run.idempotency_key]
    if not same:
        return of_run(
            f"Its idempotency key is {run.idempotency_key}. No evidence of a repeated request with that key.",
            run,
        )
    return of_call(
        f"It acted once: {counted(len(same), 'later call')} with its key {run.idempotency_key} "
        "started nothing.",
        same[-1],
    )


_DEEDS = {
    "force": "forced it",
    "governed-retry": "had it retried past its budget",
    "approved-attempt": "began an attempt that a second person had approved",
}


def governed(links: Sequence[ChainLink]) -> list[Sentence]:
    """What the governance ledger holds beyond promotions and refusals, oldest first."""
    told = []
    for link in sorted(links, key=lambda link: link.number):
        entry = link.entry
        if entry.kind in ("promotion", "gate-refused"):
            continue  # told with the promotion and the calls
        ticket = f" Ticket {entry.ticket}." if entry.ticket else ""
        given = entry.rationale or entry.details.get("reason")
        why = f" because: {stopped(str(given))}" if given else "; no evidence of why."
        what = _DEEDS.get(entry.kind)
        said = f"{entry.actor} {what}" if what else f"Governance recorded {entry.kind} by {entry.actor}"
        told.append(of_link(f"{said} at {moment(entry.recorded_at_ms)}{why}{ticket}", link))
    return told


POLICY_CHARS_MAX = 2000
# Where neither the gate nor a rule says who can lift it, and how.
_LIFTED = {
    "switch": "the kill switch was set to running: `kfm switch list` shows it",
    "freeze": "the freeze window was over, or with a force: `kfm run … --force --rationale TEXT --ticket ID`",
    "rights": "the configuration declared what is missing: `kfm config show --origin` names the file",
    "contract": "the data kept its contract",
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


def blocker_text(gate: GateResult) -> str:
    """The top line: what refuses it, who can lift it, and the command."""
    cause, _ = cause_and_remedy(gate)
    return f"{stopped(cause)} {would_pass(gate)}"


def would_pass(gate: GateResult) -> str:
    """Of one refusal: what would have to be otherwise, and who sees to it."""
    remedy = gate.remedy or None
    if remedy and gate.policy_ids:
        return f"What would let it pass: {stopped(remedy)}"
    if remedy and gate.until_ms:
        return f"Would pass after {utc_text(gate.until_ms)}, or with a force: {stopped(remedy)}"
    if remedy:
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
    ledger: LedgerReader, call: Invocation, links: Sequence[ChainLink], *, told_first: bool = False
) -> list[Sentence]:
    """All that refused a call, with the rules' texts. The first may have been told as the reason."""
    bundle = bundle_of(call, links)
    texts = ledger.policy_texts(bundle) if bundle else None
    sentences = []
    for index, gate in enumerate(refused(call.gates)):
        if index or not told_first:
            sentences.append(of_call(f"Gate {gate.gate} refused it: {stopped(gate.reason)}", call))
            sentences.append(of_call(would_pass(gate), call))
        sentences += [_rule(name, bundle, texts, call) for name in gate.policy_ids]
    passed = [gate for gate in call.gates if gate.overridden]
    sentences += [
        of_call(f"A force passed gate {gate.gate}: {stopped(gate.reason)}", call) for gate in passed
    ]
    return sentences


def bundle_of(call: Invocation, links: Sequence[ChainLink]) -> str | None:
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
