"""Explains an invocation or a request: who asked, what was decided, which gate refused and why."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from kfm.model.errors import WaitsUntil
from kfm.model.gates import cause_and_remedy, combine, utc_text
from kfm.model.quantities import counted, moment, span, stopped
from kfm.model.records import PROMOTED_TOGETHER, GateResult, Invocation, Run
from kfm.model.requests import ADOPTED, SYNCHRONOUS, UpdateRequest
from kfm.model.retry_budgets import NOT_RETRIED
from kfm.model.runs import ChainLink
from kfm.reports.explain.sentences import (
    Explanation,
    Ref,
    Sentence,
    of_call,
    of_inputs,
    of_link,
    of_request,
    of_run,
)
from kfm.reports.requests import NAMED_MAX, named
from kfm.reports.runs import has_promoted, word_of_run
from kfm.reports.state_words import of_waiting

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader


SHOWN_MAX = 20
READ_MAX = 1000
_ANSWERS = {
    "success": "and it was published",
    "noop": "and it was unchanged",
    "refused": "and was refused",
    "busy": "and found it busy",
    "failed": "and it failed",
}
_DEEDS = {
    "force": "forced it",
    "governed-retry": "had it retried past its budget",
    "approved-attempt": "began an attempt that a second person had approved",
}
POLICY_CHARS_MAX = 2000
# Where neither the gate nor a rule has a remedy.
_REMEDIES = {
    "switch": "set the kill switch to running; `kfm switch list` shows it",
    "freeze": "wait until the freeze window ends, or override it with a force",
    "rights": "declare what is missing in the configuration; `kfm config show --origin` names the file",
    "contract": "correct the data or its contract",
    "care": "the community decides otherwise or a reviewer approves the release; then change rights.care in "
    "the configuration",
    "sovereignty": "the authority that the rights name grants its consent; then change "
    "rights.sovereignty.consent in the configuration",
    "licence": "name an open licence in rights.license of the configuration",
    "policy": "do what the rule asks for, or change the policy",
    "budget": "give a rationale and a ticket",
    "plan": "make a new plan: `kfm diff --plan FILE`",
}


def explain_invocation(ledger: LedgerReader, call: Invocation) -> Explanation:
    """Of an invocation that started nothing: why it did not."""
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
    name = f"Invocation {call.invocation_id}"
    said = stopped(call.reason or "no reason is recorded")
    blockers = refused(call.gates)
    if call.outcome == "refused" and blockers:
        return of_call(f"{name} was refused: {blocker_text(blockers[0])}", call)
    if call.outcome == "noop" and run is not None and run.fingerprint and is_unchanged(call):
        same = f"its inputs equal those of run {run.run_id}, both are {run.fingerprint}"
        return of_inputs(f"{name} left it unchanged: {same}.", run.fingerprint)
    words = {
        "noop": "left it unchanged",
        "refused": "was refused",
        "busy": "found the dataset busy",
        "failed": "failed",
        "success": "published it. Why it ran",
        None: "is running, or its end is not recorded. Why it began",
    }
    ways = {"busy": " `kfm status` shows who holds it and until when."}
    return of_call(f"{name} {words[call.outcome]}: {said}{ways.get(call.outcome or '', '')}", call)


def is_unchanged(call: Invocation) -> bool:
    """Was upstream compared, and found as it was when its run was done? Not recorded in old rows."""
    return call.reason_code == "unchanged"


def call_chain(
    ledger: LedgerReader, call: Invocation, run: Run | None, links: Sequence[ChainLink]
) -> list[Sentence]:
    sentences = [asked(call, promoted=run is None or has_promoted(ledger, run.run_id))]
    sentences.append(
        of_call(f"It came as trigger {call.trigger_type}, with key {call.idempotency_key}.", call)
    )
    sentences += refusals(ledger, call, links, is_reason=call.outcome == "refused")
    if run is None:
        sentences.append(of_call(f"No run was started (source: {call.source_id}).", call))
    else:
        word = word_of_run(ledger, run)
        sentences.append(of_run(f"It was answered with run {run.run_id}: {word}.", run))
    return sentences + governed(links)


def asked(call: Invocation, *, promoted: bool) -> Sentence:
    """Who, when, why, and how that ended. A run that succeeded without a version has published nothing."""
    claimed = f", for {call.claimed_actor}" if call.claimed_actor else ""
    ticket = f", ticket {call.ticket}" if call.ticket else ""
    why = f" (rationale: {call.rationale}{ticket})" if call.rationale else ""
    outcome = "noop" if call.outcome == "success" and not promoted else call.outcome
    end = _ANSWERS.get(outcome or "", "and how that ended is not recorded")
    if call.reason_code == WaitsUntil.code:
        end = "and it waits"
    reason = f": {call.reason}" if call.reason else ""
    if outcome in ("success", None) and call.reason:
        reason = f". Why it ran: {call.reason}"
    who = f"At {moment(call.requested_at_ms)} {call.actor}{claimed}{why} asked for it"
    return of_call(stopped(f"{who}, {end}{reason}"), call)


def all_asked(run: Run, calls: Sequence[Invocation], *, promoted: bool) -> list[Sentence]:
    """The invocations of a run in order; neighbours that ended alike are one sentence."""
    if not calls:
        return [of_run("No evidence of an invocation that asked for it.", run)]

    def alike(call: Invocation) -> tuple[object, ...]:
        return call.outcome, call.reason, call.actor, call.claimed_actor, call.rationale, call.ticket

    groups = [list(group) for _, group in groupby(calls, key=alike)]
    sentences: list[Sentence] = []
    for group in groups[:SHOWN_MAX]:
        sentences.append(asked(group[0], promoted=promoted))
        if len(group) > 1:
            often = "Once more" if len(group) == 2 else f"{len(group) - 1} more times"
            sentences.append(
                of_call(f"{often} the same, last at {moment(group[-1].requested_at_ms)}.", group[-1])
            )
    if len(groups) > SHOWN_MAX:
        more = sum(map(len, groups[SHOWN_MAX:]))
        sentences.append(
            of_run(f"{counted(more, 'further invocation')} recorded: `kfm show {run.run_id}`.", run)
        )
    return sentences


def repeated(run: Run, calls: Sequence[Invocation]) -> Sentence:
    """That it acts once is claimed only where it was requested again and nothing was done."""
    same = [c for c in calls if c.outcome == "noop" and c.idempotency_key == run.idempotency_key]
    if not same:
        return of_run(
            f"Its idempotency key is {run.idempotency_key}. No evidence of a repeated request with that key.",
            run,
        )
    return of_call(
        f"It acted once: {counted(len(same), 'later invocation')} with its key {run.idempotency_key} "
        "started nothing.",
        same[-1],
    )


def governed(links: Sequence[ChainLink]) -> list[Sentence]:
    """What the audit log holds beyond promotions and refusals, oldest first."""
    sentences = []
    for link in sorted(links, key=lambda link: link.number):
        entry = link.entry
        if entry.kind in ("promotion", PROMOTED_TOGETHER, "gate-refused"):
            continue  # they are part of the promotion and of the invocations
        ticket = f" Ticket {entry.ticket}." if entry.ticket else ""
        given = entry.rationale or entry.details.get("reason")
        if entry.kind in ("dead-letter", "quarantine"):
            given = NOT_RETRIED.get(str(given), given)
        why = f" because: {stopped(str(given))}" if given else "; no evidence of why."
        what = _DEEDS.get(entry.kind)
        said = f"{entry.actor} {what}" if what else f"Governance recorded {entry.kind} by {entry.actor}"
        sentences.append(of_link(f"{said} at {moment(entry.recorded_at_ms)}{why}{ticket}", link))
    return sentences


def refused(gates: Sequence[GateResult]) -> list[GateResult]:
    """The gates that refused, the one that is hardest to lift first."""
    denied = [gate for gate in gates if not gate.allowed and not gate.overridden]
    first = combine(denied).first_blocker if denied else None
    return [] if first is None else [first, *(gate for gate in denied if gate is not first)]


def blocker_text(gate: GateResult) -> str:
    """The top line: what refuses it, who can lift it, and the command."""
    cause, _ = cause_and_remedy(gate)
    return f"{stopped(cause)} {unblocking(gate)}"


def unblocking(gate: GateResult) -> str:
    """Of one refusal: what has to change, and by whom."""
    if gate.remedy and gate.until_ms and not gate.policy_ids:
        return f"Unblocked after {utc_text(gate.until_ms)}. To override: {stopped(gate.remedy)}"
    remedy = gate.remedy or _REMEDIES.get(gate.gate)
    return f"To unblock: {stopped(remedy)}" if remedy else "No evidence of what would unblock it."


def refusals(
    ledger: LedgerReader,
    call: Invocation,
    links: Sequence[ChainLink],
    *,
    is_reason: bool = False,
    past: bool = False,
) -> list[Sentence]:
    """All that refused an invocation, with the rules' texts. The first may already be the reason.

    `past`: of an invocation of a run, whose next step says what to do.
    """
    bundle = bundle_of(call, links)
    texts = ledger.policy_texts(bundle) if bundle else None
    sentences = []
    for index, gate in enumerate(refused(call.gates)):
        if index or not is_reason:
            said = cause_and_remedy(gate)[0] if past else gate.reason
            sentences.append(of_call(f"Gate {gate.gate} refused it: {stopped(said)}", call))
            sentences += [] if past else [of_call(unblocking(gate), call)]
        sentences += [_rule(name, bundle, texts, call) for name in gate.policy_ids]
    passed = [gate for gate in call.gates if gate.overridden]
    sentences += [
        of_call(f"A force passed gate {gate.gate}: {stopped(gate.reason)}", call) for gate in passed
    ]
    return sentences


def bundle_of(call: Invocation, links: Sequence[ChainLink]) -> str | None:
    """The policies that were in force at an invocation, if that is on record."""
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


REQUESTS_SHOWN_MAX = 5
REQUESTS_READ_MAX = 50
_STATES = {
    "running": "is running",
    "awaiting-approval": "waits for approval",
    "cancelled": "was cancelled",
}
_ENDED = {
    "success": "was published",
    "noop": "was unchanged",
    "failed": "failed",
    "refused": "was refused",
    "absent": "ended without data",
}


def requested(ledger: LedgerReader, run: Run) -> list[Sentence]:
    """The requests that a run answers, the oldest first. Of one that its own process works off at once the
    invocation says the same."""
    known = ledger.request_reader().of_run(run.run_id, REQUESTS_READ_MAX)
    found = [one for one in known if SYNCHRONOUS not in one.details]
    sentences = [each for one in found[:REQUESTS_SHOWN_MAX] for each in _told(ledger, one)]
    if len(found) > REQUESTS_SHOWN_MAX:
        more = "Further requests were answered with it"
        sentences.append(of_run(f"{more}: `kfm requests list --source {run.source_id}`.", run))
    return sentences


def explain_request(
    ledger: LedgerReader, request: UpdateRequest, run: Explanation | None, lifted_by: str = ""
) -> Explanation:
    """Why a request is in its state; then what led to it, and the explanation of its run.

    `lifted_by`: who can lift what it waits for, and how.
    """
    name = f"Request {request.request_id}"
    how = _STATES.get(request.state) or _ENDED.get(request.outcome or "", "has ended")
    if request.state == "open":
        how = f"is {of_waiting(request.blocked_by)}"
    why = f"{how}: {stopped(request.reason or 'no reason is recorded')}"
    if request.outcome == "success" and request.run_id is not None:
        why = f"{how}, by run {request.run_id}."  # the reason that is on record is why the run began
    chain = _told(ledger, request)
    if request.tries > 1:
        chain.append(of_request(f"It was taken up {counted(request.tries, 'time')}.", request))
    if run is not None:
        chain += [run.reason, *(each for each in run.chain if each.record.id != request.request_id)]
    elif request.run_id is None:
        chain.append(of_request("No evidence of a run that answered it.", request))
    return Explanation(
        kind="request",
        id=request.request_id,
        reason=of_request(f"{name} {why} {lifted_by}".rstrip(), request),
        chain=tuple(chain),
    )


def _told(ledger: LedgerReader, request: UpdateRequest) -> list[Sentence]:
    return [_asked(request), *_gathered(ledger, request), *_agreed(ledger, request)]


def _gathered(ledger: LedgerReader, request: UpdateRequest) -> list[Sentence]:
    """The announced objects that asked."""
    objects = ledger.request_reader().announced([request], NAMED_MAX)
    if not objects:
        return []
    return [of_request(f"The announced objects: {named(objects, request.members)}.", request)]


def _asked(request: UpdateRequest) -> Sentence:
    """Who or what asked, when, and for which window."""
    window = span(request.window_start_ms, request.window_end_ms)
    if ADOPTED in request.details:
        made = f"Request {request.request_id} was made at {moment(request.accepted_at_ms)}"
        return of_request(f"{made} for its promised attempt, for {window}.", request)
    by = request.actor
    if request.changes:
        named_ = ", ".join(f"{name} (version {number})" for name, number in request.changes.items())
        by = f"a change of {'dataset' if len(request.changes) == 1 else 'datasets'} {named_}"
    elif request.members:
        by = counted(request.members, "announced object")
    elif request.kind == "cron" and request.instant_ms is not None:
        by = f"the scheduled time {moment(request.instant_ms)} of schedule {request.schedule_id}"
    elif request.kind == "webhook":
        scheme = request.details.get("scheme")
        signed = f", signed in the way of {scheme}" if scheme else ""
        by = f"{request.actor}{signed}, as {request.request_uuid}"
    claimed = request.claimed_actor if request.kind != "cron" else None
    beside = f" on behalf of {claimed} (a claim)" if claimed else ""
    said = f"It was asked for by request {request.request_id}, accepted at {moment(request.accepted_at_ms)}"
    return of_request(f"{said} from {by}{beside}, for {window}.", request)


def _agreed(ledger: LedgerReader, request: UpdateRequest) -> list[Sentence]:
    """Who approved its preview, if that had to be."""
    if not request.needs_approval:
        return []
    asked = ledger.approvals(subject=request.request_id, limit=1)
    if asked and asked[0].rejected_at_ms is not None:
        one = asked[0]
        when = f"at {moment(one.rejected_at_ms or 0)} ({one.rejection_rationale})"
        text = f"{one.rejected_by} rejected its preview {one.digest} {when}: approval {one.request_id}."
        return [of_request(text, request)]
    if not asked or asked[0].approved_by is None:
        return [of_request("No evidence of an approval of its preview.", request)]
    one = asked[0]
    when = f"at {moment(one.approved_at_ms or 0)} ({one.approval_rationale})"
    text = f"{one.approved_by} approved its preview {one.digest} {when}: approval {one.request_id}."
    return [of_request(text, request)]
