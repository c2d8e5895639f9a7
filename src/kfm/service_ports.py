"""What the service needs of a store: requests that are accepted once, schedules that are accounted for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kfm.core.holding import Approval
from kfm.core.records import GovernanceEntry
from kfm.core.requests import Ending, RequestKind, RequestState, UpdateRequest
from kfm.core.schedule_states import Accounting, Instant, ScheduleState


class RequestReader(Protocol):
    def request(self, request_id: str) -> UpdateRequest | None: ...
    def requests(
        self,
        *,
        state: RequestState | None = None,
        kind: RequestKind | None = None,
        source_id: str | None = None,
        schedule_id: str | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[UpdateRequest]:
        """The newest first; `before` is (accepted_at_ms, request_id) of the last one of the page before."""

    def find(self, start: str, limit: int = 2) -> list[UpdateRequest]:
        """Those whose id begins so."""

    def of_run(self, run_id: str, limit: int = 50) -> list[UpdateRequest]:
        """Those that a run answered, the oldest first."""

    def unsettled_of(self, schedule_id: str) -> list[UpdateRequest]:
        """Those of a schedule that have no end yet, the oldest first."""

    def preview(self, digest: str) -> str | None:
        """The plan that was kept under this digest."""

    def next_due_ms(self) -> int | None:
        """When the next request that waits may begin."""


class Requests(RequestReader, Protocol):
    """Each method is one transaction."""

    def accept(
        self, wanted: Sequence[UpdateRequest], entry: GovernanceEntry | None = None
    ) -> list[UpdateRequest | None]:
        """Make them durable, all in one commit. For each: None if it is new, else what has its id already.

        The entry is made with them if any is new.
        """

    def claim(
        self, worker_id: str, claim_ms: int, dead: Callable[[str], bool], limit: int = 1
    ) -> list[UpdateRequest]:
        """Some that are due, ours from now on; also of those whose runner is dead or let its claim lapse.
        None of a dataset that a request is running for: it would only find the door shut."""

    def renew(self, request: UpdateRequest, claim_ms: int) -> UpdateRequest | None:
        """Ours for longer, as it stands now; None: it is not ours any more."""

    def settle(self, request: UpdateRequest, ending: Ending) -> bool:
        """The end of what we claimed; False: it was not ours any more."""

    def reopen(self, request: UpdateRequest, not_before_ms: int, reason: str, *, tried: bool = True) -> bool:
        """Give back what we claimed, for later. What nobody has tried to do does not count as a try."""

    def await_approval(
        self, request: UpdateRequest, plan: tuple[str, str], approval: Approval, entry: GovernanceEntry
    ) -> bool:
        """Keep the preview (digest, text) and ask for a second person; ours no more until he agrees."""

    def keep_preview(self, request_id: str, plan: tuple[str, str]) -> None:
        """What is about to be changed, before it is."""

    def cancel(self, request_id: str, reason: str, entry: GovernanceEntry | None = None) -> bool:
        """What waits never begins; what runs is told to stop. False: it has ended."""


class ScheduleReader(Protocol):
    def states(self) -> dict[str, ScheduleState]: ...
    def instants(self, schedule_id: str, start_ms: int, end_ms: int, limit: int = 1000) -> list[Instant]:
        """Rows that touch a span, in order."""

    def instants_before(self, schedule_id: str, before_ms: int, limit: int) -> list[Instant]:
        """Rows that begin before a moment, the newest first."""


class ScheduleStates(ScheduleReader, Protocol):
    """Each method is one transaction."""

    def account(self, accounting: Accounting) -> bool:
        """All of it, or nothing if the state is not what was seen any more."""

    def set_paused(self, seen: ScheduleState | None, state: ScheduleState, entry: GovernanceEntry) -> bool:
        """Pause or resume; False if the state is not what was seen any more."""

    def backfill(
        self,
        instants: Sequence[Instant],
        requests: Sequence[UpdateRequest],
        entry: GovernanceEntry,
    ) -> list[UpdateRequest]:
        """Open requests for instants that became none; those that were new."""
