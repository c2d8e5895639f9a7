"""Everything that can be asked for. Routes, their description, the reference page and the tests follow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from kfm.model.records import UNIT_STATUSES
from kfm.model.roles import Role
from kfm.web.api import changes, reads
from kfm.web.api import request_bodies as bodies
from kfm.web.api.operations import (
    AFTER,
    AFTER_NUMBER,
    LIMIT,
    ApiCall,
    Operation,
    Parameter,
    choice,
    flag,
    moment,
    text,
)
from kfm.web.problems import JSON

Work = Callable[[ApiCall], Any]

TAGS = {
    "runs": "Runs, their attempts and nodes, and why they are as they are",
    "units": "Announced objects, and messages that could not be taken in",
    "requests": "Wishes for an update, whoever had them",
    "schedules": "When sources are brought up to date, and whether they were",
    "standing": "What stands in the way, and lifting it",
    "people": "Approvals, the governance ledger, and who asks",
}
_DATASET = text("dataset", "Only of this dataset.")
_SOURCE = text("source", "Only of this source.")


def _get(
    path: str, name: str, about: str, work: Work, answer: str, *parameters: Parameter, media_type: str = JSON
) -> Operation:
    return Operation(
        "GET", path, name, about, "", "read", work, answer, parameters=parameters, media_type=media_type
    )


def _post(
    path: str,
    name: str,
    about: str,
    work: Work,
    answer: str,
    body: type[msgspec.Struct] = bodies.Reason,
    *,
    role: Role = "operate",
    status: int = 200,
    once: Literal["request", "answer"] = "answer",
) -> Operation:
    return Operation("POST", path, name, about, "", role, work, answer, body=body, status=status, once=once)


_ALL: dict[str, tuple[Operation, ...]] = {
    "runs": (
        _get(
            "/runs",
            "listRuns",
            "Runs, newest first",
            reads.runs,
            "runs",
            _DATASET,
            _SOURCE,
            choice("status", ("running", "success", "failed"), "Only runs in this state."),
            moment("since", "Only those that began since then."),
            LIMIT,
            AFTER,
        ),
        _get("/runs/{run_id}", "showRun", "A run and the calls for it", reads.one_run, "cli-show"),
        _get(
            "/runs/{run_id}/nodes",
            "listNodes",
            "The nodes of a run's newest attempt, and of its pipeline",
            reads.nodes,
            "nodes",
        ),
        _get(
            "/runs/{run_id}/attempts",
            "listAttempts",
            "Every attempt at a run and its nodes, and every failed call",
            reads.attempts,
            "attempts",
        ),
        _get(
            "/runs/{run_id}/lineage",
            "listLineage",
            "The OpenLineage events of a run, and whether they have arrived",
            reads.lineage,
            "cli-lineage-show",
        ),
        _get(
            "/runs/{run_id}/provenance",
            "showProvenance",
            "The provenance of a run: PROV-O as JSON-LD",
            reads.provenance,
            "provenance",
            media_type="application/ld+json",
        ),
        _get(
            "/runs/{run_id}/preview",
            "showPreviewOfRun",
            "What a run was about to change, as it was kept before it did",
            reads.preview_of_run,
            "preview",
        ),
        _post(
            "/runs/{run_id}/retry",
            "retryRun",
            "One more attempt at a failed run",
            changes.retry,
            "cli-requests-show",
            status=202,
            once="request",
        ),
        _get(
            "/explain/{what:path}",
            "explain",
            "Why something is as it is, from the records alone; or the page of an error code",
            reads.explain,
            "cli-explain",
        ),
        _get(
            "/status",
            "showStatus",
            "What stands in the way, what runs, what is published",
            reads.status,
            "cli-status",
        ),
    ),
    "units": (
        _get(
            "/units",
            "listUnits",
            "Announced objects, the newest time that they cover first",
            reads.units,
            "cli-nodd-units",
            _DATASET,
            choice("status", tuple(UNIT_STATUSES), "Only with this status."),
            text("error_code", "Only those whose last error has this code."),
            moment("since", "Only those that changed since then."),
            LIMIT,
        ),
        _get(
            "/units/{wal_id}",
            "showUnit",
            "A unit, its object, and everything that it went through",
            reads.one_unit,
            "cli-nodd-show",
        ),
        _get(
            "/dead-letters",
            "listDeadLetters",
            "Messages that could not be taken in, by the hashes of their bodies",
            reads.dead_letters,
            "cli-nodd-dead-list",
            text("error_code", "Only with this code."),
            flag("all", "Also what was released."),
            LIMIT,
        ),
    ),
    "requests": (
        _get(
            "/requests",
            "listRequests",
            "Requests for updates, newest first",
            reads.requests,
            "requests",
            choice(
                "state", ("open", "running", "awaiting-approval", "done", "cancelled"), "Only in this state."
            ),
            choice("kind", ("cron", "webhook", "manual"), "Only of this kind."),
            _SOURCE,
            text("schedule", "Only of this schedule."),
            LIMIT,
            AFTER,
        ),
        _post(
            "/requests",
            "startUpdate",
            "Ask for an update of a source",
            changes.start,
            "cli-requests-show",
            bodies.Start,
            status=202,
            once="request",
        ),
        _get(
            "/requests/{request_id}",
            "showRequest",
            "A request, and what became of it",
            reads.one_request,
            "cli-requests-show",
        ),
        _get(
            "/requests/{request_id}/preview",
            "showPreview",
            "What a request was about to change",
            reads.preview_of_request,
            "preview",
        ),
        _post(
            "/requests/{request_id}/cancel",
            "cancelRequest",
            "What waits never begins; what runs is told to stop",
            changes.cancel,
            "cli-requests-show",
        ),
    ),
    "schedules": (
        _get(
            "/schedules",
            "listSchedules",
            "The schedules, when each fires next, and whether it is paused",
            reads.schedules,
            "schedules",
        ),
        _get(
            "/schedules/{schedule_id}/instants",
            "listInstants",
            "Every instant that a schedule expects in a span, and what it became",
            reads.instants,
            "instants",
            moment("start", "Else a day ago."),
            moment("end", "Else now."),
            LIMIT,
        ),
        _post(
            "/schedules/{schedule_id}/pause",
            "pauseSchedule",
            "Pause a schedule",
            changes.pause,
            "schedule-state",
        ),
        _post(
            "/schedules/{schedule_id}/resume",
            "resumeSchedule",
            "Let a schedule go on",
            changes.resume,
            "schedule-state",
        ),
        _post(
            "/schedules/{schedule_id}/backfill",
            "backfillSchedule",
            "Ask for updates that a schedule has not made",
            changes.backfill,
            "cli-schedule-backfill",
            bodies.Backfill,
            status=202,
        ),
    ),
    "standing": (
        _get(
            "/breakers",
            "listBreakers",
            "Providers that had trouble, and whether they are called now",
            reads.breakers,
            "cli-breaker-list",
        ),
        _post(
            "/breakers/{provider:path}/reset",
            "resetBreaker",
            "Call a provider again at once",
            changes.reset_breaker,
            "cli-breaker-reset",
        ),
        _get(
            "/quarantine",
            "listQuarantine",
            "What was given up, newest first",
            reads.quarantine,
            "cli-quarantine-list",
            _DATASET,
            choice("kind", ("dead-letter", "quarantine"), "Only of this kind."),
            flag("all", "Also what was released, or done after all."),
            LIMIT,
        ),
        _get(
            "/quarantine/{held_id}",
            "showHeld",
            "One entry, and the requests for its release",
            reads.one_held,
            "cli-quarantine-show",
        ),
        _post(
            "/quarantine/{held_id}/release",
            "releaseHeld",
            "Ask for the release of an entry; somebody else has to approve it",
            changes.release,
            "cli-quarantine-release",
            status=202,
        ),
        _get(
            "/incidents",
            "listIncidents",
            "Incidents, newest first",
            reads.incidents,
            "cli-incident-list",
            flag("all", "Also those that are resolved."),
            LIMIT,
        ),
        _get(
            "/incidents/{incident_id}",
            "showIncident",
            "An incident, whom it affects, and who has been told",
            reads.one_incident,
            "cli-incident-show",
        ),
        _get(
            "/switches",
            "listSwitches",
            "Kill switches that were ever set",
            reads.switches,
            "cli-switch-list",
        ),
        _post(
            "/switches/{scope:path}",
            "setSwitch",
            "Stop work, or let it go on",
            changes.set_switch,
            "cli-switch-set",
            bodies.SetSwitch,
        ),
    ),
    "people": (
        _get(
            "/approvals",
            "listApprovals",
            "What waits for a second person, or had one",
            reads.approvals,
            "cli-approve-list",
            choice("state", ("requested", "approved", "rejected"), "In this state.", "requested"),
            LIMIT,
        ),
        _get(
            "/approvals/{request_id}",
            "showApproval",
            "One request for an approval",
            reads.one_approval,
            "cli-request",
        ),
        _post(
            "/approvals/{request_id}/approve",
            "approve",
            "Approve what somebody else has asked for, and carry it out",
            changes.approve,
            "cli-approve",
            role="approve",
        ),
        _post(
            "/approvals/{request_id}/reject",
            "reject",
            "Reject what somebody else has asked for: it can't be approved any more",
            changes.reject,
            "cli-request",
            role="approve",
        ),
        _get(
            "/audit",
            "listAudit",
            "The governance ledger, newest first. A page may be short, and others follow it",
            reads.audit,
            "audit",
            text("kind", "Only entries of this kind."),
            text("subject", "Only entries about this run, dataset or scope."),
            LIMIT,
            AFTER_NUMBER,
        ),
        _get("/whoami", "whoami", "Who asks, and what he may do", reads.whoami, "whoami"),
    ),
}

OPERATIONS: tuple[Operation, ...] = tuple(
    operation._replace(tag=tag) for tag, operations in _ALL.items() for operation in operations
)


def request_bodies() -> frozenset[type[msgspec.Struct]]:
    """The types of the bodies that requests have."""
    return frozenset(operation.body for operation in OPERATIONS if operation.body is not None)
