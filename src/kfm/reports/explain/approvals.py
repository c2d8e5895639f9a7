"""Explains a request for an approval, and a replay of units: what it waits for, and whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.model.gates import cause_and_remedy, replay_gate
from kfm.model.next_steps import approve_command
from kfm.model.quantities import counted, moment, short_id, stopped
from kfm.model.quarantine import Approval
from kfm.model.replays import Replay
from kfm.model.settings import Settings
from kfm.reports.explain.sentences import Explanation, Ref, Sentence
from kfm.reports.quarantine import is_open
from kfm.reports.state_words import UNITS, by_word

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

# What a person does with an approval, by its kind.
_THEN = {
    "attempt": "run the same work again",
    "replay": "`kfm replay run {subject} --confirm --rationale TEXT`",
    "release": "it is due, and tried by a service or `kfm retry --due`",
    "update": "its request runs by itself",
    "standing": "runs of {subject} need no other approval",
}


def explain_approval(ledger: LedgerReader, one: Approval, now_ms: int) -> Explanation:
    asked = f"{one.requested_by} asked for it at {moment(one.requested_at_ms)}: {one.rationale}"
    chain = [_of(stopped(asked), one)]
    if one.approved_at_ms is not None:
        said = f"{one.approved_by} approved it at {moment(one.approved_at_ms)}: {one.approval_rationale}"
        chain.append(_of(stopped(said), one))
    return Explanation(
        kind="approval",
        id=one.request_id,
        reason=_of(_approval_reason(ledger, one, now_ms), one),
        chain=tuple(chain),
    )


def _approval_reason(ledger: LedgerReader, one: Approval, now_ms: int) -> str:
    name = f"The request {one.request_id} for {one.about or one.kind}"
    if one.status == "rejected":
        said = f"at {moment(one.rejected_at_ms or 0)}: {one.rejection_rationale}"
        return f"{name} was rejected by {one.rejected_by} {stopped(said)} It can be requested anew."
    if one.status == "superseded":
        return f"{name} was superseded by a newer preview, or has ended with its request."
    if one.status == "revoked":
        said = f"at {moment(one.revoked_at_ms or 0)}: {one.revocation_rationale}"
        return f"{name} was revoked by {one.revoked_by} {stopped(said)}"
    if one.status == "requested":
        if not is_open(ledger, one):
            return f"{name} can't be approved any more: what it is about has changed. Request it anew."
        who = f"another person than {one.requested_by}, with the role approve"
        return f"{name} waits for approval. Who can give it: {who}: `{approve_command(one.request_id)}`."
    if one.used_at_ms is not None and one.kind != "standing":
        return f"{name} was approved, and used at {moment(one.used_at_ms)} by {one.used_by}."
    if one.expires_at_ms is not None and one.expires_at_ms <= now_ms:
        return f"{name} was approved and lapsed unused at {moment(one.expires_at_ms)}. Request it anew."
    until = f" until {moment(one.expires_at_ms)}" if one.expires_at_ms is not None else ""
    return f"{name} was approved by {one.approved_by}{until}: {_THEN[one.kind].format(subject=one.subject)}."


def explain_replay(ledger: LedgerReader, settings: Settings, replay: Replay, now_ms: int) -> Explanation:
    reader = ledger.replay_reader()
    tally = reader.tally(replay.replay_id)
    many = f"{counted(len(replay.plan.units), 'unit')} of {', '.join(replay.plan.by_dataset)}"
    ref = Ref(type="replay", id=replay.replay_id)
    chain = [
        Sentence(
            text=stopped(
                f"{replay.requested_by} asked for it at {moment(replay.created_at_ms)}, mode {replay.mode}, "
                f"reason {replay.reason}: {replay.rationale}"
            ),
            record=ref,
        )
    ]
    since = reader.since(replay.replay_id)
    if since:
        now = ", ".join(f"{count} {word}" for word, count in by_word(since, UNITS).items())
        chain.append(Sentence(text=f"The units that came back are now: {now}.", record=ref))
    reason = _replay_reason(ledger, settings, replay, tally, many, now_ms)
    return Explanation(
        kind="replay", id=replay.replay_id, reason=Sentence(text=reason, record=ref), chain=tuple(chain)
    )


def _replay_reason(
    ledger: LedgerReader, settings: Settings, replay: Replay, tally: dict[str, int], many: str, now_ms: int
) -> str:
    name = f"Replay {replay.replay_id} of {many}"
    if replay.state == "done":
        drifted = tally.get("drifted", 0)
        left = f"; {drifted} had changed and were not touched" if drifted else ""
        return f"{name} is done: {tally.get('replayed', 0)} came back{left}."
    command = f"kfm replay run {short_id(replay.replay_id)} --confirm --rationale TEXT"
    if replay.state == "requested":
        asked = ledger.approvals(subject=replay.replay_id, limit=1)
        if asked and asked[0].status == "requested":
            return f"{name}: {_approval_reason(ledger, asked[0], now_ms)}"
        return f"{name} was requested; carry it out: `{command}`."
    for dataset in replay.plan.by_dataset:
        gate = replay_gate(ledger.switches(), dataset, settings.domain_of(dataset))
        if not gate.allowed:
            cause, remedy = cause_and_remedy(gate)
            return f"{name} waits: {stopped(cause)} {remedy or 'An operator can lift it.'}"
    return f"{name} has {tally.get('', 0)} units to go. Who can go on: an operator: `{command}`."


def _of(text: str, one: Approval) -> Sentence:
    return Sentence(text=text, record=Ref(type="approval", id=one.request_id))
