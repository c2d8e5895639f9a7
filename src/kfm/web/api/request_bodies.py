"""Bodies of changes. The token identifies the caller; `actor` is only a claim, recorded beside it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from kfm.model.plan_cells import CHARS_MAX
from kfm.model.records import Record
from kfm.model.replays import Mode
from kfm.web.api.operations import TIME

_ID = r"^[A-Za-z0-9][A-Za-z0-9._:/@+~-]{0,199}$"
Why = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4000,
        pattern=r"\S",
        description="Why. Kept permanently in the audit log.",
    ),
]
Ticket = Annotated[str, Meta(min_length=1, max_length=200, description="The ticket that this belongs to.")]
Behalf = Annotated[
    str, Meta(min_length=1, max_length=200, description="On whose behalf; recorded beside the caller.")
]
Time = Annotated[
    str,
    Meta(
        pattern=f"^{TIME}$",
        description="RFC 3339.",
    ),
]


Span = Annotated[
    str, Meta(min_length=1, max_length=100, description="A span of time, as 2026-10-27/P1D; else all of it.")
]
Purge = Annotated[bool, Meta(description="Also remove old versions and their bytes, for good.")]


Digest = Annotated[
    str,
    Meta(
        pattern="^sha256:[0-9a-f]{64}$",
        description="Of the list that was shown. If it is another one now, nothing is done: 409.",
    ),
]
Cells = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=CHARS_MAX,
        description="Of what was chosen only these, between commas: window:SOURCE@START, "
        "instant:SCHEDULE@TIME or units:DATASET/PRODUCT@FROM/TO.",
    ),
]
PlanName = Annotated[
    str, Meta(min_length=1, max_length=200, pattern=r"\S", description="What people call it.")
]
Rate = Annotated[
    float, Meta(ge=0.001, le=1_000_000, description="At most so many units a second; else as fast as can be.")
]
Name = Annotated[str, Meta(pattern=_ID)]


class Reason(Record, frozen=True):
    """The reason of a change."""

    rationale: Why
    ticket: Ticket | None = None
    actor: Behalf | None = None


class Silenced(Reason, frozen=True, kw_only=True):
    """A silence."""

    until: Time | None = None  # None: the silence ends now


class HeldOpen(Reason, frozen=True, kw_only=True):
    """How long a circuit is held open."""

    until: Annotated[Time, Meta(description="At most a day ahead; then one call tests the provider.")]


class Assigned(Reason, frozen=True, kw_only=True):
    """Who looks after an incident."""

    person: Annotated[
        str, Meta(min_length=1, max_length=200, pattern=r"\S", description="Who looks after it from now on.")
    ]


class DismissWindows(Reason, frozen=True, kw_only=True):
    """Windows of a dataset that will never have data."""

    window: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=100,
            description="As `kfm run --window` takes it. One that spans several means each that has no data.",
        ),
    ]
    source: Annotated[str, Meta(pattern=_ID, description="Only of this source.")] | None = None
    product: Annotated[str, Meta(pattern=_ID, description="Of a feed, only this product.")] | None = None
    platform: (
        Annotated[str, Meta(pattern=_ID, description="Of a feed, only this satellite, site or region.")]
        | None
    ) = None
    undo: Annotated[bool, Meta(description="Expect these windows again.")] = False


class Start(Reason, frozen=True, kw_only=True):
    """An update of one source."""

    source: Annotated[str, Meta(pattern=_ID, description="The source to update.")]
    window: (
        Annotated[
            str,
            Meta(
                min_length=1, max_length=100, description="As `kfm run --window` takes it; else the source's."
            ),
        ]
        | None
    ) = None
    at: (
        Annotated[Time, Meta(description="The window that was the last complete one at this time; else now.")]
        | None
    ) = None
    machine: Annotated[
        bool,
        Meta(description="A machine asks, also with the token of a person: it waits for a promised attempt."),
    ] = False
    correction: (
        Annotated[str, Meta(pattern=_ID, description="Redo the window as this correction: opens a revision.")]
        | None
    ) = None


class SetSwitch(Reason, frozen=True, kw_only=True):
    """A position of a kill switch."""

    position: Literal["running", "paused", "stopped"]


class Reconcile(Reason, frozen=True, kw_only=True):
    """A comparison of a bucket's listing with the ledger."""

    bucket: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=300,
                description="A bucket of the feed, as noaa-goes19 or gs://NAME; else its first.",
            ),
        ]
        | None
    ) = None
    prefix: (
        Annotated[str, Meta(min_length=1, max_length=300, description="Only keys that begin so.")] | None
    ) = None
    start: Annotated[Time, Meta(description="Only keys with this time or a later one.")] | None = None
    end: Annotated[Time, Meta(description="Only keys with an earlier time.")] | None = None
    limit: (
        Annotated[
            int, Meta(ge=1, le=100_000, description="Look at so many objects at most; else at 100,000.")
        ]
        | None
    ) = None
    open: Annotated[bool, Meta(description="Take in what is missing, as a backfill.")] = False


class Stand(Reason, frozen=True, kw_only=True):
    """A standing approval of a source."""

    until: str


class Planned(Reason, frozen=True, kw_only=True):
    """A change of a dataset: exactly the one that was previewed."""

    digest: Annotated[
        str,
        Meta(pattern="^sha256:[0-9a-f]{64}$", description="Of the preview. Another plan is refused: 409."),
    ]


class RollBack(Planned, frozen=True, kw_only=True):
    """A rollback."""

    to_version: Annotated[int, Meta(ge=1, description="The version whose content is put back.")]


class Lift(Planned, frozen=True, kw_only=True):
    """The end of a withdrawal of this span, source and target."""

    window: Span | None = None
    source: Annotated[str, Meta(pattern=_ID, description="Only what came from this source.")] | None = None
    target: Annotated[str, Meta(pattern=_ID, description="Only at this target.")] | None = None


class Withdraw(Lift, frozen=True, kw_only=True):
    """A withdrawal of a span of time, of a source, from a target; or of all of the dataset."""

    purge: Purge = False


class Retire(Planned, frozen=True, kw_only=True):
    """The end of a dataset."""

    purge: Purge = False


class Backfill(Reason, frozen=True, kw_only=True):
    """Requests for scheduled times that did not run."""

    start: Annotated[Time, Meta(description="The first scheduled time, or a time before it.")]
    end: Annotated[Time, Meta(description="The end of the span, exclusive.")]
    cells: Cells | None = None
    digest: Digest | None = None
    name: PlanName | None = None
    missed_only: Annotated[bool, Meta(description="Only scheduled times without a request.")] = True
    dry_run: Annotated[bool, Meta(description="List the scheduled times, and create no requests.")] = False


class ReplayPlanned(Reason, frozen=True, kw_only=True):
    """The units that come back: a list that is frozen, and carried out as it is."""

    datasets: Annotated[list[Name], Meta(max_length=1_000, description="Of these datasets.")] = []
    units: Annotated[list[Name], Meta(max_length=10_000, description="These units.")] = []
    cells: (
        Annotated[Cells, Meta(description="Units of these cells, units:DATASET/PRODUCT@FROM/TO.")] | None
    ) = None
    statuses: Annotated[
        list[Literal["pending", "in_progress", "succeeded", "failed", "quarantined"]],
        Meta(max_length=5, description="With one of these; else whatever the mode is about."),
    ] = []
    error_codes: Annotated[
        list[Name], Meta(max_length=1_000, description="With one of these last errors.")
    ] = []
    event_time_start: Annotated[Time, Meta(description="Announced at this time or later.")] | None = None
    event_time_end: Annotated[Time, Meta(description="Announced before this time.")] | None = None
    created_after: Annotated[Time, Meta(description="Taken in at this time or later.")] | None = None
    created_before: Annotated[Time, Meta(description="Taken in before this time.")] | None = None
    attempts_max: Annotated[int, Meta(ge=0, description="Tried at most so often.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000_000, description="At most so many units.")] | None = None
    mode: Annotated[
        Mode, Meta(description="Failed units; also quarantined ones; also what had succeeded.")
    ] = "failed-only"
    reason: Annotated[
        str,
        Meta(
            pattern=_ID,
            description="The kind of replay: none, incident, backfill, test, or one of the settings.",
        ),
    ] = "none"
    name: PlanName | None = None
    digest: Digest | None = None
    run: Annotated[bool, Meta(description="Carry it out at once; else it is kept.")] = False
    rate: Rate | None = None


class ReplayRun(Reason, frozen=True, kw_only=True):
    """How fast a service carries a replay out."""

    rate: Rate | None = None


class AskedForMissing(Reason, frozen=True, kw_only=True):
    """Windows without data past their time: exactly the list that was shown."""

    digest: Digest
    dataset: Annotated[str, Meta(pattern=_ID, description="Of this dataset.")] | None = None
    source: Annotated[str, Meta(pattern=_ID, description="Of this source.")] | None = None
    cells: Cells | None = None
    start: Annotated[Time, Meta(description="Only windows that end after it.")] | None = None
    end: Annotated[Time, Meta(description="Only windows that begin before it.")] | None = None
    state: (
        Annotated[
            Literal["overdue", "failed", "quarantined", "refused", "missing", "empty"],
            Meta(description="Only in this state; else in those that `kfm run --missing` is about."),
        ]
        | None
    ) = None
    name: PlanName | None = None
