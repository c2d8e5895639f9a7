"""One entry of what was given up: why, and how it gets another chance."""

from __future__ import annotations

from kfm.core.holding import Approval, Held
from kfm.core.records import Record
from kfm.core.unit_replies import replay_command
from kfm.serving.console.views import held as listed
from kfm.serving.console.views.facts import Fact, Next, allowed
from kfm.serving.console.visits import NotHere, Visit, short
from kfm.serving.console.words import Word, word


class Asked(Record, frozen=True):
    word: Word
    request_id: str
    by: str
    at_ms: int
    rationale: str
    approved: str


class HeldOne(Record, frozen=True):
    title: str
    row: listed.Row
    message: str
    facts: tuple[Fact, ...]
    asked: tuple[Asked, ...]
    commands: tuple[Next, ...]


def view(visit: Visit) -> HeldOne:
    held = visit.reader.held_one(visit.params["held_id"])
    if held is None:
        raise NotHere("Nothing of that id is or was held. `kfm quarantine list --all` has all.")
    allowed(visit, held.dataset_id)
    asked = visit.reader.approvals(subject=held.held_id)
    return HeldOne(
        title=f"{'Dead letter' if held.kind == 'dead-letter' else 'Quarantine'} {short(held.held_id)}",
        row=listed.row(visit, held),
        message=held.error_message,
        facts=tuple(_facts(visit, held)),
        asked=tuple(map(_asked, asked)),
        commands=tuple(commands(held, asked)),
    )


def _facts(visit: Visit, held: Held) -> list[Fact]:
    facts = [
        Fact(name="Held since (UTC)", text="", at_ms=held.held_at_ms),
        Fact(
            name=held.grain.capitalize(),
            text=held.subject,
            href=listed.row(visit, held).subject_href,
            code=True,
        ),
        Fact(name="Dataset", text=held.dataset_id, href=visit.href("held", dataset=held.dataset_id)),
        Fact(name="Source", text=held.source_id),
        Fact(name="Attempts", text=f"{held.attempts} ({', '.join(held.error_classes)})"),
        Fact(name="Given up", text=held.reason.replace("-", " ")),
        Fact(name="Payload hash", text=held.payload_hash or "nothing was discovered", code=True),
        Fact(name="Code", text=held.code_sha, code=True),
        Fact(name="Key", text=held.idempotency_key, code=True),
    ]
    if held.released_at_ms is not None:
        facts.append(Fact(name=f"{held.state.capitalize()} (UTC)", text="", at_ms=held.released_at_ms))
        facts.append(Fact(name="By", text=held.released_by or ""))
    return [fact for fact in facts if fact.text or fact.at_ms is not None]


def _asked(approval: Approval) -> Asked:
    approved = f"{approval.approved_by}: {approval.approval_rationale}" if approval.approved_by else ""
    return Asked(
        word=word("passed" if approval.state == "approved" else "approval needed"),
        request_id=approval.request_id,
        by=approval.requested_by,
        at_ms=approval.requested_at_ms,
        rationale=approval.rationale,
        approved=approved,
    )


def commands(held: Held, asked: list[Approval]) -> list[Next]:
    if held.state != "held":
        return []
    waiting = [each for each in asked if each.state == "requested"]
    if waiting:
        command = f"kfm approve {waiting[0].request_id} --rationale TEXT"
        return [Next(command=command, why="by somebody else than who asked")]
    if held.grain == "unit":
        return [
            Next(
                command=replay_command(
                    held.subject, "quarantined" if held.kind == "quarantine" else "failed"
                ),
                why="brings the unit back",
            )
        ]
    command = f"kfm quarantine release {short(held.held_id)} --rationale TEXT"
    return [Next(command=command, why="asks for its release; somebody else approves")]
