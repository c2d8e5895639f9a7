"""Bodies of changes. The token identifies the caller; `actor` is only a claim, recorded beside it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from kfm.model.records import Record
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
    missed_only: Annotated[bool, Meta(description="Only scheduled times without a request.")] = True
    dry_run: Annotated[bool, Meta(description="List the scheduled times, and create no requests.")] = False
