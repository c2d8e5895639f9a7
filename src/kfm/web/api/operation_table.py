"""The table of operations, from which routes, OpenAPI, the reference page and tests are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec

from kfm.model.completeness import HEALTH_RANK, WINDOW_STATES
from kfm.model.dataset_changes import ChangeKind
from kfm.model.records import UNIT_STATUSES
from kfm.model.requests import RequestKind
from kfm.model.roles import Role
from kfm.reports.dataset_lists import ORDERS
from kfm.web.api import changes, datasets, events, reads, run_log
from kfm.web.api import request_bodies as bodies
from kfm.web.api.operations import (
    AFTER,
    AFTER_ID,
    AFTER_NAME,
    AFTER_NUMBER,
    AFTER_WINDOW,
    ALL,
    LIMIT,
    SPAN,
    ApiCall,
    Operation,
    Parameter,
    choice,
    flag,
    moment,
    text,
    whole_number,
)
from kfm.web.problems import JSON

Work = Callable[[ApiCall], Any]

TAGS = {
    "runs": "Runs, their attempts, nodes and explanations",
    "units": "Announced objects, and dead messages",
    "requests": "Requests for updates, by any trigger",
    "schedules": "Schedules, and the outcome of each scheduled time",
    "datasets": "Datasets: completeness, versions, and what people change about them",
    "standing": "Blockers: circuits, quarantine, incidents, switches",
    "people": "Approvals, the audit log, identities",
}
_DATASET = text("dataset", "Only of this dataset.")
_SOURCE = text("source", "Only of this source.")
_SPAN = (
    text("window", "Only this span of time, as 2026-10-27/P1D; else all of it.", SPAN),
    text("source", "Only what came from this source."),
    text("target", "Only at this target."),
)
_PURGE = flag("purge", "Also remove old versions and their bytes, for good.")


def _get(
    path: str,
    name: str,
    about: str,
    work: Work,
    answer: str,
    *parameters: Parameter,
    media_type: str = JSON,
    more: tuple[int, ...] = (),
) -> Operation:
    return Operation(
        "GET",
        path,
        name,
        about,
        "",
        "read",
        work,
        answer,
        parameters=parameters,
        media_type=media_type,
        more=more,
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
    more: tuple[int, ...] = (),
) -> Operation:
    return Operation(
        "POST", path, name, about, "", role, work, answer, body=body, status=status, once=once, more=more
    )


def _change(
    name: str,
    verb: str,
    about: str,
    preview: Work,
    work: Work,
    body: type[msgspec.Struct],
    *parameters: Parameter,
) -> tuple[Operation, Operation]:
    """A change of a dataset: its preview by GET, and by POST the change itself, with the preview's digest."""
    path = f"/datasets/{{dataset_id}}/{name}"
    title = f"{name[:1].upper()}{name[1:]}"
    return (
        _get(path, f"preview{title}", f"Preview: {about}", preview, "change", *parameters, more=(410, 422)),
        _post(path, verb, f"{about[:1].upper()}{about[1:]}", work, "change", body, more=(202, 410)),
    )


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
        _get("/runs/{run_id}", "showRun", "A run and its invocations", reads.one_run, "cli-show"),
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
            "The OpenLineage events of a run, and their delivery",
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
            "The preview of a run, recorded before any change",
            reads.preview_of_run,
            "preview",
        ),
        _get(
            "/runs/{run_id}/log",
            "showLog",
            "The log of an attempt, oldest first; `next` goes on with what is written later",
            run_log.log,
            "run-log",
            whole_number("attempt", "Of this attempt; else of the newest.", required=False),
            choice("level", run_log.LEVELS, "Only lines of this level, or graver.", "info"),
            text("node", "Only of this step or node."),
            LIMIT,
            AFTER_NUMBER,
        ),
        _post(
            "/runs/{run_id}/cancel",
            "cancelRun",
            "Cancel every open request of a run: the attempt under way stops, and no other follows",
            changes.cancel_run,
            "cancelled-run",
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
            "An explanation from the records; or the page of an error code",
            reads.explain,
            "cli-explain",
        ),
        _get(
            "/status",
            "showStatus",
            "Blockers, running work, published versions",
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
            "units",
            _DATASET,
            choice("status", tuple(UNIT_STATUSES), "Only with this status."),
            text("error_code", "Only those whose last error has this code."),
            moment("since", "Only those that changed since then."),
            LIMIT,
            AFTER_ID,
        ),
        _get(
            "/units/{wal_id}",
            "showUnit",
            "A unit, its object and its history",
            reads.one_unit,
            "cli-nodd-show",
        ),
        _get(
            "/dead-letters",
            "listDeadLetters",
            "Messages that could not be read, by the hashes of their bodies",
            reads.dead_letters,
            "dead-letters",
            text("error_code", "Only with this code."),
            flag("all", "Also released ones."),
            LIMIT,
            AFTER,
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
            choice("kind", get_args(RequestKind), "Only of this kind."),
            _SOURCE,
            text("schedule", "Only of this schedule."),
            LIMIT,
            AFTER,
        ),
        _post(
            "/requests",
            "startUpdate",
            "Request an update of a source",
            changes.start,
            "cli-requests-show",
            bodies.Start,
            status=202,
            once="request",
        ),
        _get(
            "/requests/{request_id}",
            "showRequest",
            "A request, its state and its outcome",
            reads.one_request,
            "cli-requests-show",
        ),
        _get(
            "/requests/{request_id}/preview",
            "showPreview",
            "The preview of a request",
            reads.preview_of_request,
            "preview",
        ),
        _post(
            "/requests/{request_id}/cancel",
            "cancelRequest",
            "Cancel a waiting request, or stop a running one",
            changes.cancel,
            "cli-requests-show",
        ),
    ),
    "schedules": (
        _get(
            "/schedules",
            "listSchedules",
            "Schedules, with their next scheduled times and states",
            reads.schedules,
            "schedules",
        ),
        _get(
            "/schedules/{schedule_id}/instants",
            "listInstants",
            "Every scheduled time of a span, with its outcome",
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
            "Resume a schedule",
            changes.resume,
            "schedule-state",
        ),
        _post(
            "/schedules/{schedule_id}/backfill",
            "backfillSchedule",
            "Request updates for scheduled times that did not run",
            changes.backfill,
            "cli-schedule-backfill",
            bodies.Backfill,
            status=202,
        ),
    ),
    "datasets": (
        _get(
            "/datasets",
            "listDatasets",
            "How each dataset is, by all its windows",
            reads.datasets,
            "datasets",
            choice("state", HEALTH_RANK, "Only in this state of health."),
            text("domain", "Only of this domain."),
            text("find", "Only those whose name has this in it."),
            choice(
                "order", ORDERS, "What comes first: the worst, the latest, the oldest; else by name.", "name"
            ),
            ALL,
            AFTER_NAME,
        ),
        _get(
            "/datasets/{dataset_id}",
            "showDataset",
            "What readers see of a dataset, and what is withdrawn of it",
            datasets.show,
            "dataset",
            more=(410,),
        ),
        _get(
            "/datasets/{dataset_id}/coverage",
            "showCoverage",
            "The state of every window of a dataset",
            reads.dataset_coverage,
            "coverage",
            moment("start", "Only windows that end after it."),
            moment("end", "Only windows that begin before it."),
            moment("at", "Only the window of each source that was the last complete one at this time."),
            choice("state", WINDOW_STATES, "Only windows in this state."),
            text("product", "Of a feed, only this product."),
            LIMIT,
            AFTER_WINDOW,
            more=(410,),
        ),
        _get(
            "/datasets/{dataset_id}/versions",
            "listVersions",
            "Versions of a dataset, newest first: what made each, and whether it can be put back",
            datasets.versions,
            "versions",
            LIMIT,
            AFTER_NUMBER,
        ),
        _get(
            "/datasets/{dataset_id}/versions/{version}",
            "showVersion",
            "One version and its items",
            datasets.one_version,
            "version",
            LIMIT,
            AFTER_ID,
            more=(410,),
        ),
        _get(
            "/datasets/{dataset_id}/versions/{version}/diff",
            "diffVersions",
            "What differs between two versions: by files, and by columns and rows where the files are tables",
            datasets.version_diff,
            "version-diff",
            whole_number("against", "The earlier version; else the one before.", required=False),
            more=(410, 422),
        ),
        _get(
            "/datasets/{dataset_id}/items/{item_id}",
            "showItem",
            "One item of the version that readers see",
            datasets.one_item,
            "item",
            more=(410,),
        ),
        *_change(
            "rollback",
            "rollBack",
            "put the content of an earlier version back, as a new version",
            datasets.preview_rollback,
            datasets.roll_back,
            bodies.RollBack,
            whole_number("to_version", "The version whose content is put back."),
        ),
        *_change(
            "withdrawal",
            "withdraw",
            "take data down, with a tombstone in its place; with `purge` for good",
            datasets.preview_withdrawal,
            datasets.withdraw,
            bodies.Withdraw,
            *_SPAN,
            _PURGE,
        ),
        *_change(
            "retirement",
            "retire",
            "end a dataset",
            datasets.preview_retirement,
            datasets.retire,
            bodies.Retire,
            _PURGE,
        ),
        *_change(
            "lift",
            "lift",
            "let what was withdrawn be published again",
            datasets.preview_lift,
            datasets.lift,
            bodies.Lift,
            *_SPAN,
        ),
        _get(
            "/dataset-changes",
            "listDatasetChanges",
            "What people have changed about datasets, newest first, with receipts",
            datasets.list_changes,
            "dataset-changes",
            _DATASET,
            choice("kind", get_args(ChangeKind), "Only of this kind."),
            LIMIT,
            AFTER,
        ),
        _get(
            "/dataset-changes/{change_id}",
            "showDatasetChange",
            "One change, with its receipt",
            datasets.one_change,
            "dataset-change",
        ),
        _get(
            "/dataset-changes/{change_id}/lineage",
            "listLineageOfChange",
            "The OpenLineage events of a change, and their delivery",
            datasets.lineage,
            "cli-lineage-show",
        ),
        _get(
            "/dataset-changes/{change_id}/provenance",
            "showProvenanceOfChange",
            "The provenance of a change: PROV-O as JSON-LD",
            datasets.provenance,
            "provenance",
            media_type="application/ld+json",
        ),
        _post(
            "/datasets/{dataset_id}/dismissal",
            "dismissWindows",
            "Settle windows that will never have data; with `undo` they are expected again",
            changes.dismiss,
            "cli-dismiss",
            bodies.DismissWindows,
        ),
        _post(
            "/datasets/{dataset_id}/projection",
            "projectAgain",
            "Make every target show what is promoted of a dataset",
            changes.project_again,
            "cli-project",
        ),
        _post(
            "/datasets/{dataset_id}/silence",
            "silenceDataset",
            "Send no notifications about a dataset until a time; without `until` again from now on",
            changes.silence_dataset,
            "cli-incident-silence",
            bodies.Silenced,
        ),
    ),
    "standing": (
        _get(
            "/breakers",
            "listBreakers",
            "Circuit breakers of providers",
            reads.breakers,
            "cli-breaker-list",
        ),
        _post(
            "/breakers/{provider:path}/reset",
            "resetBreaker",
            "Close the circuit of a provider",
            changes.reset_breaker,
            "cli-breaker-reset",
        ),
        _post(
            "/breakers/{provider:path}/probe",
            "probeBreaker",
            "Have a provider tried by its next call, before the cool-down of its circuit is over",
            changes.probe_breaker,
            "cli-breaker-probe",
        ),
        _post(
            "/breakers/{provider:path}/hold",
            "holdBreaker",
            "Hold the circuit of a provider open until a time: no call is made",
            changes.hold_breaker,
            "cli-breaker-hold",
            bodies.HeldOpen,
        ),
        _get(
            "/quarantine",
            "listQuarantine",
            "Quarantined work and dead letters, newest first",
            reads.quarantine,
            "quarantine",
            _DATASET,
            choice("kind", ("dead-letter", "quarantine"), "Only of this kind."),
            flag("all", "Also released and resolved entries."),
            LIMIT,
            AFTER_NUMBER,
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
            "Request the release of an entry; a second person has to approve it",
            changes.release,
            "cli-quarantine-release",
            status=202,
        ),
        _get(
            "/incidents",
            "listIncidents",
            "Incidents, newest first",
            reads.incidents,
            "incidents",
            flag("all", "Also those that are resolved."),
            LIMIT,
            AFTER,
        ),
        _get(
            "/incidents/{incident_id}",
            "showIncident",
            "An incident, its subjects and its notifications",
            reads.one_incident,
            "cli-incident-show",
        ),
        _post(
            "/incidents/{incident_id}/acknowledge",
            "acknowledgeIncident",
            "Say that a person has seen it; it is not escalated",
            changes.acknowledge_incident,
            "cli-incident-ack",
        ),
        _post(
            "/incidents/{incident_id}/assign",
            "assignIncident",
            "Say which person looks after it; it is not escalated",
            changes.assign_incident,
            "cli-incident-assign",
            bodies.Assigned,
        ),
        _post(
            "/incidents/{incident_id}/retry",
            "retryIncident",
            "One more attempt at every failed run that it affects",
            changes.retry_incident,
            "cli-incident-retry",
            status=202,
        ),
        _post(
            "/incidents/{incident_id}/close",
            "closeIncident",
            "Resolve an incident by decision",
            changes.close_incident,
            "cli-incident-close",
        ),
        _post(
            "/incidents/{incident_id}/silence",
            "silenceIncident",
            "Send no notifications of an incident until a time; without `until` again from now on",
            changes.silence_incident,
            "cli-incident-silence",
            bodies.Silenced,
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
            "Set a kill switch",
            changes.set_switch,
            "cli-switch-set",
            bodies.SetSwitch,
        ),
    ),
    "people": (
        _get(
            "/approvals",
            "listApprovals",
            "Requests for approvals, newest first. A page may be short, and others follow it",
            reads.approvals,
            "approvals",
            choice(
                "state",
                ("requested", "approved", "rejected", "superseded", "revoked"),
                "In this state.",
                "requested",
            ),
            LIMIT,
            AFTER,
        ),
        _get(
            "/approvals/{request_id}",
            "showApproval",
            "One request for an approval, with its preview and its targets",
            reads.one_approval,
            "cli-approvals-show",
        ),
        _post(
            "/approvals/{request_id}/approve",
            "approve",
            "Approve a request of another person, and carry it out",
            changes.approve,
            "cli-approve",
            role="approve",
        ),
        _post(
            "/approvals/{request_id}/reject",
            "reject",
            "Reject a request of another person: it can't be approved any more",
            changes.reject,
            "cli-request",
            role="approve",
        ),
        _post(
            "/approvals/{request_id}/revoke",
            "revokeApproval",
            "End a standing approval, or one of an attempt that was not made",
            changes.revoke_approval,
            "cli-request",
            role="approve",
        ),
        _post(
            "/sources/{source_id}/standing-approval",
            "stand",
            "Approve every run of a source until a date, in advance",
            changes.stand,
            "cli-request",
            bodies.Stand,
            role="approve",
        ),
        _get(
            "/audit",
            "listAudit",
            "The audit log, newest first. A page may be short, and others follow it",
            reads.audit,
            "audit",
            text("kind", "Only entries of this kind."),
            text("subject", "Only entries about this run, dataset or scope."),
            LIMIT,
            AFTER_NUMBER,
        ),
        _get(
            "/events",
            "listEvents",
            "What was entered in the audit log since, as server-sent events: promotions and decisions. "
            "A client asks again by itself, after the last one that it has (`Last-Event-ID`)",
            events.events,
            "events",
            AFTER_NUMBER,
            media_type=events.EVENTS,
        ),
        _get("/whoami", "whoami", "The identity and the roles of the caller", reads.whoami, "whoami"),
    ),
}

OPERATIONS: tuple[Operation, ...] = tuple(
    operation._replace(tag=tag) for tag, operations in _ALL.items() for operation in operations
)


def request_bodies() -> frozenset[type[msgspec.Struct]]:
    """The types of the bodies that requests have."""
    return frozenset(operation.body for operation in OPERATIONS if operation.body is not None)
