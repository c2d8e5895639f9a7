"""Changes that pages offer: operations of the API, under the names that people give them.

A page offers a change by a link to its form; the form is made from the body of the operation, and sends it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kfm.model.next_steps import StepCode, window_text
from kfm.model.quarantine import Approval
from kfm.model.records import Record, Run
from kfm.model.roles import Identity, KnownPerson, Role, decide
from kfm.reports.next_steps import asked_about, held_of_run, step_of_run
from kfm.web.api.operation_table import OPERATIONS
from kfm.web.api.operations import Operation
from kfm.web.console.visit import Visit
from kfm.web.openapi import BASE

BY_NAME = {operation.name: operation for operation in OPERATIONS}
PLANNING = "plans/new"
PAGE = "do"  # the part of the address before the name of an operation
REASON = ("rationale", "ticket", "actor")
Values = Mapping[str, str]


class Action(NamedTuple):
    """A change, as a person sees it."""

    name: str  # of the operation
    verb: str  # of its button
    effect: str  # what happens, for people who have not done it before
    command: Callable[[Values], list[str]]  # the same on the command line, without the reason
    preview: str | None = None  # the operation that tells beforehand what it would do
    is_typed: bool = False  # the name of the dataset has to be typed: readers will see the difference

    @property
    def operation(self) -> Operation:
        return BY_NAME[self.name]


def _words(text: str, *options: str) -> Callable[[Values], list[str]]:
    """`text` with ids in braces; and of `options` those that have a value, as `to_version=--to`."""

    def made(values: Values) -> list[str]:
        found = [part.format(**values) for part in text.split()]
        for option in options:
            name, _, flag = option.partition("=")
            value = values.get(name, "")
            if value == "true":
                found.append(flag)
            elif value not in ("", "false"):
                found += [flag, value]
        return found

    return made


def _switch(values: Values) -> list[str]:
    kind, _, name = values["scope"].partition(":")
    scope = ["--all"] if kind == "all" else [f"--{kind}", name]
    return ["kfm", "switch", "set", values.get("position") or "POSITION", *scope]


def _silence(values: Values) -> list[str]:
    what = values.get("incident_id") or values["dataset_id"]
    until = values.get("until", "")
    return ["kfm", "incident", "silence", what, "--until", until or "TIME"]


def _dismissal(values: Values) -> list[str]:
    window = values.get("window") or "WINDOW"
    named = ("source=--source", "product=--product", "platform=--platform", "undo=--undo")
    return _words(f"kfm dismiss {{dataset_id}} {window}", *named)(values)


def _reconcile(values: Values) -> list[str]:
    bucket = values.get("bucket") or "BUCKET"
    named = ("prefix=--prefix", "start=--from", "end=--to", "limit=--limit", "open=--open")
    return _words(f"kfm nodd reconcile {bucket} --dataset {{feed_id}}", *named)(values)


_APPLY = ("digest=--digest",)
_PART = ("window=--window", "source=--source", "target=--target")
ACTIONS = {
    action.name: action
    for action in (
        Action(
            "startUpdate",
            "Run",
            "A request is entered, and the next free runner takes it. Gates, locks and checks are those of "
            "every other run; nothing is published that is not new.",
            _words("kfm run", "source=--source", "window=--window", "correction=--correction"),
        ),
        Action(
            "retryRun",
            "Retry",
            "One more attempt at the same work. What has been done already is not done again.",
            _words("kfm retry {run_id} --now"),
        ),
        Action(
            "cancelRun",
            "Cancel",
            "The attempt under way stops at its next safe point, and no other follows. Nothing that was "
            "published changes.",
            _words("kfm cancel {run_id}"),
        ),
        Action(
            "cancelRequest",
            "Cancel",
            "A waiting request is not carried out; a running one stops at its next safe point.",
            _words("kfm requests cancel {request_id}"),
        ),
        Action(
            "pauseSchedule",
            "Pause",
            "Its scheduled times make no requests until it is resumed. What is running goes on.",
            _words("kfm schedule pause {schedule_id}"),
        ),
        Action(
            "resumeSchedule",
            "Resume",
            "Its scheduled times make requests again; what was missed follows its catch-up rule.",
            _words("kfm schedule resume {schedule_id}"),
        ),
        Action(
            "backfillSchedule",
            "Backfill",
            "A request for each scheduled time of the span that did not run.",
            lambda values: _words(
                "kfm schedule backfill {schedule_id} --yes",
                "start=--from",
                "end=--to",
                "missed_only=--missed",
            )({**values, "start": values.get("start") or "TIME", "end": values.get("end") or "TIME"}),
        ),
        Action(
            "rollBack",
            "Roll back",
            "The content of the earlier version is published as a new one, and the dataset is paused.",
            lambda values: _words("kfm rollback {dataset_id} --yes", "to_version=--to", *_APPLY)(
                {"to_version": "VERSION", **values}
            ),
            preview="previewRollback",
            is_typed=True,
        ),
        Action(
            "withdraw",
            "Withdraw",
            "Readers get a tombstone in place of the data, and no run brings it back before it is lifted.",
            _words("kfm withdraw {dataset_id} --yes", *_PART, "purge=--purge", *_APPLY),
            preview="previewWithdrawal",
            is_typed=True,
        ),
        Action(
            "retire",
            "Retire",
            "Everything of the dataset is withdrawn, and nothing of it is published any more.",
            _words("kfm dataset retire {dataset_id} --yes", "purge=--purge", *_APPLY),
            preview="previewRetirement",
            is_typed=True,
        ),
        Action(
            "lift",
            "Lift",
            "What was withdrawn may be published again. Nothing comes back by itself: the next run does it.",
            _words("kfm withdraw {dataset_id} --lift --yes", *_PART, *_APPLY),
            preview="previewLift",
        ),
        Action(
            "silenceDataset",
            "Silence",
            "No notification about the dataset is sent until then; without a time they are sent again.",
            _silence,
        ),
        Action(
            "resetBreaker",
            "Reset",
            "The circuit is closed: calls to the provider are made again. If it still fails, a few of them "
            "open it again.",
            _words("kfm breaker reset {provider}"),
        ),
        Action(
            "probeBreaker",
            "Probe",
            "The next call to the provider is made, as the only one: if it goes well, the circuit is closed.",
            _words("kfm breaker probe {provider}"),
        ),
        Action(
            "holdBreaker",
            "Hold open",
            "No call to the provider is made until then; the one after it decides. What waits spends no "
            "attempt.",
            lambda values: _words("kfm breaker hold {provider}", "until=--until")(
                {**values, "until": values.get("until") or "TIME"}
            ),
        ),
        Action(
            "dismissWindows",
            "Dismiss",
            "The windows are settled without data: what is quarantined of them is resolved, what waits for "
            "them is cancelled. Should data come after all, it counts.",
            _dismissal,
        ),
        Action(
            "projectAgain",
            "Project again",
            "Every target is made to show what is promoted now, whatever it shows. No target goes back to an "
            "older version.",
            _words("kfm project {dataset_id}"),
        ),
        Action(
            "releaseDeadMessage",
            "Release",
            "It needs no attention any more. It is not taken in by that: once the cause is fixed, send it "
            "again.",
            _words("kfm nodd dead release {message}"),
        ),
        Action(
            "reconcileFeed",
            "Reconcile",
            "The listing of a bucket is compared with the ledger, as far as 100,000 objects: messages may be "
            "lost, a listing shows what was. With Open, what is missing is taken in as a backfill.",
            _reconcile,
        ),
        Action(
            "releaseHeld",
            "Release",
            "A second person has to approve its release; then it is tried again.",
            _words("kfm quarantine resume {held_id}"),
        ),
        Action(
            "discardHeld",
            "Discard",
            "Its window is settled without data: what waits for it is cancelled. Should data come after all, "
            "it counts.",
            _words("kfm quarantine discard {held_id}"),
        ),
        Action(
            "runReplay",
            "Run",
            "Each unit of the frozen list is due again, with a new grant of attempts and a receipt. If one "
            "has changed since, nothing is done. Where a second person has to agree, that is asked for.",
            _words("kfm replay run {replay_id} --confirm", "rate=--rate"),
        ),
        Action(
            "stopReplay",
            "Stop",
            "After the batch under way nothing more comes back, until it is run again. What has come back "
            "stays.",
            _words("kfm replay stop {replay_id}"),
        ),
        Action(
            "acknowledgeIncident",
            "Acknowledge",
            "The incident has someone who looks after it, and is not escalated.",
            _words("kfm incident ack {incident_id}"),
        ),
        Action(
            "assignIncident",
            "Assign",
            "The person looks after the incident, and it is not escalated.",
            lambda values: [
                "kfm",
                "incident",
                "assign",
                values["incident_id"],
                values.get("person") or "NAME",
            ],
        ),
        Action(
            "retryIncident",
            "Retry all",
            "A request for every failed run that the incident affects. What has been done already is not "
            "done again.",
            _words("kfm incident retry {incident_id}"),
        ),
        Action(
            "closeIncident",
            "Close",
            "The incident is over by decision. Quarantined work stays quarantined.",
            _words("kfm incident close {incident_id}"),
        ),
        Action(
            "silenceIncident",
            "Silence",
            "No notification of the incident is sent until then; without a time they are sent again.",
            _silence,
        ),
        Action(
            "setSwitch",
            "Set the switch",
            "Paused: nothing new starts, work in flight goes on. Stopped: work in flight is cancelled, too. "
            "Running: work may start.",
            _switch,
        ),
        Action(
            "approve",
            "Approve",
            "What was requested is carried out, in exactly the form of its preview.",
            _words("kfm approvals approve {request_id}"),
            is_typed=True,
        ),
        Action(
            "reject",
            "Reject",
            "The request is not carried out, and can't be approved any more.",
            _words("kfm approvals reject {request_id}"),
        ),
        Action(
            "revokeApproval",
            "Revoke",
            "The approval ends: attempts that were not made are not covered by it.",
            _words("kfm approvals revoke {request_id}"),
        ),
    )
}


class Offer(Record, frozen=True):
    """A change that a page offers; without an address it is shown, and who could make it."""

    text: str
    href: str | None
    why_not: str = ""


def offer(visit: Visit, action: str, text: str = "", /, **values: str | int | None) -> Offer:
    """`values`: the ids in the path of its operation, and what the form begins with."""
    found = ACTIONS[action]
    shown = text or found.verb
    refused = refusal(visit.identity, found, visit.context.people)
    if refused:
        return Offer(text=shown, href=None, why_not=refused)
    return Offer(text=f"{shown}…", href=visit.href(f"{PAGE}/{action}", **values))


def plan(visit: Visit, text: str, /, **meant: str | int | None) -> Offer:
    """A plan of what is meant; readers see which people could make it."""
    refused = lack(visit.identity, "operate", visit.context.people)
    if refused:
        return Offer(text=text, href=None, why_not=refused)
    return Offer(text=f"{text}…", href=visit.href(PLANNING, **meant))


def refusal(identity: Identity, action: Action, people: Sequence[KnownPerson]) -> str:
    """Why this person can't make the change, and who could; empty: they can."""
    assert action.operation.role is not None
    return lack(identity, action.operation.role, people)


def lack(identity: Identity, role: Role, people: Sequence[KnownPerson]) -> str:
    """Why a change that needs this role can't be made, naming the people who have it; empty: it can."""
    if identity.open:
        return f"needs the role {role}: people and their tokens are named in the configuration"
    access = decide(identity, role, people, remote=True)
    if access.allowed:
        return ""
    others = f": {', '.join(access.others[:3])}" if access.others else ", which no person has"
    return f"needs the role {role}{others}"


def command_line(action: Action, values: Values) -> str:
    """The same change on the command line."""
    reason = ["--rationale", values.get("rationale") or "TEXT"]
    ticket = ["--ticket", values["ticket"]] if values.get("ticket") else []
    return shlex.join([*action.command(values), *reason, *ticket])


def curl_line(operation: Operation, path: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """The same over the API. The token stays in the environment of who sends it."""
    said = {**body, "rationale": body.get("rationale") or "TEXT"}
    parts = ["curl", "--oauth2-bearer", "$KFM_TOKEN", "--json", msgspec.json.encode(said).decode()]
    quoted = [f'"{part}"' if part.startswith("$") else shlex.quote(part) for part in parts]
    return " ".join([*quoted, f'"$KFM_SERVER{BASE}{operation.shown_path.format(**path)}"'])


def decisions(visit: Visit, asked: Approval) -> list[Offer]:
    """What a second person may do about a request."""
    return [offer(visit, name, request_id=asked.request_id) for name in ("approve", "reject")]


def circuit(visit: Visit, provider: str) -> list[Offer]:
    """What a person may decide about the circuit of a provider."""
    return [offer(visit, name, provider=provider) for name in ("probeBreaker", "resetBreaker", "holdBreaker")]


_RETRIED: tuple[StepCode, ...] = ("retry", "correct", "answer")


def about_run(visit: Visit, run: Run) -> list[Offer]:
    """The change that is the next step about a run, and no other: what the step does not say is refused."""
    if run.status == "running":
        return [offer(visit, "cancelRun", run_id=run.run_id)]
    if run.status == "success":
        window = window_text(run.window_start_ms, run.window_end_ms)
        return [offer(visit, "startUpdate", "Run again", source=run.source_id, window=window)]
    step = step_of_run(visit.reader, run, visit.now_ms, visit.context.settings)
    if step is None:
        return []
    if step.code == "approve":
        asked = asked_about(visit.reader, run, visit.now_ms)
        return decisions(visit, asked) if asked is not None else []
    if step.code == "release":
        held = held_of_run(visit.reader, run)
        return [offer(visit, "releaseHeld", held_id=held.held_id)] if held is not None else []
    return [offer(visit, "retryRun", run_id=run.run_id)] if step.code in _RETRIED else []
