"""What a change has to be told. Who asks is the token's subject; `actor` is only a claim beside it."""

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
        description="Why. Kept in the governance ledger, for good.",
    ),
]
Ticket = Annotated[str, Meta(min_length=1, max_length=200, description="The ticket that this belongs to.")]
Behalf = Annotated[
    str, Meta(min_length=1, max_length=200, description="On whose behalf; recorded beside who asks.")
]
Time = Annotated[
    str,
    Meta(
        pattern=f"^{TIME}$",
        description="RFC 3339.",
    ),
]


class Reason(Record, frozen=True):
    """Why something is done."""

    rationale: Why
    ticket: Ticket | None = None
    actor: Behalf | None = None


class Start(Reason, frozen=True, kw_only=True):
    """An update of one source."""

    source: Annotated[str, Meta(pattern=_ID, description="The source to bring up to date.")]
    window: (
        Annotated[
            str,
            Meta(
                min_length=1, max_length=100, description="As `kfm run --window` takes it; else the source's."
            ),
        ]
        | None
    ) = None
    correction: (
        Annotated[str, Meta(pattern=_ID, description="Redo the window as this correction: opens a revision.")]
        | None
    ) = None


class SetSwitch(Reason, frozen=True, kw_only=True):
    """A kill switch in another position."""

    position: Literal["running", "paused", "stopped"]


class Backfill(Reason, frozen=True, kw_only=True):
    """Instants of a schedule that are to run after all."""

    start: Annotated[Time, Meta(description="The first instant that is meant, or a time before it.")]
    end: Annotated[Time, Meta(description="Instants before this are meant.")]
    missed_only: Annotated[bool, Meta(description="Only those that became no request.")] = True
    dry_run: Annotated[bool, Meta(description="Tell what would be asked for, and ask for nothing.")] = False
