"""The scheduler: every scheduled time is accounted for by one process, and becomes a request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import to_builtins
from msgspec.structs import replace

from kfm.model.errors import BackendUnavailable, ConfigError, KfmError, WindowError
from kfm.model.keys import key_of
from kfm.model.masked_names import names_by_dataset
from kfm.model.quantities import moment
from kfm.model.scheduled_times import (
    LEFT_TO,
    account,
    asking_again,
    asking_for,
    definition_of,
    is_ahead,
    is_held,
    left_windows,
    next_due_ms,
    taken_back,
    went_on,
)
from kfm.model.schedules import Accounting, Schedule, ScheduleState
from kfm.model.settings import SourceSettings
from kfm.model.times import holds

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.config.loader import Loaded
    from kfm.db.ledger_reader import LedgerReader
    from kfm.db.requests import RequestReader
    from kfm.db.schedules import ScheduleStates
    from kfm.model.records import Run, Window
    from kfm.model.requests import UpdateRequest


SLICES_MAX = 20  # of one schedule in one step
TROUBLE_MS = 5_000
ROWS_MAX = 200  # of earlier instants that are looked at for what they have left, in one step
WINDOWS_MAX = 1_000  # that they may have left, looked at in one step
EVER_MS = 2**53 - 1
logger = logging.getLogger(__name__)
GROUNDS_TAG = "grounds/1"
POLL_MS = 50
PATIENCE_MS = 5_000
PAGE = 500


class Scheduler:
    """All schedules of one project, seen by one process."""

    def __init__(
        self,
        states: ScheduleStates,
        requests: RequestReader,
        schedules: Sequence[Schedule],
        sources: Mapping[str, SourceSettings],
        *,
        now_ms: Callable[[], int],
        late_ms: int,
        actor: str,
        is_touched: Callable[[str, int, int], bool] | None = None,
        grounds: Callable[[], Callable[[str], str]] | None = None,
    ) -> None:
        """`is_touched`: has any run looked at this window of a source? None: windows are left as they are.
        `grounds`: what the gates of each source decide by now, as a digest; None: it never changes."""
        self._is_touched = is_touched
        self._read_grounds = grounds
        self._grounds: Callable[[str], str] | None = None  # as they were when the step began
        self._grounds_seen: dict[str, str] = {}  # of each schedule, when we looked at it last
        self._states = states
        self._requests = requests
        self._schedules = tuple(schedules)
        self._sources = sources
        self._now_ms = now_ms
        self._late_ms = late_ms
        self._actor = actor
        self._definitions = {one.id: definition_of(one) for one in schedules}
        self._adopted: set[str] = set()  # whose definition we have put in place once
        self._due_ms: dict[str, tuple[int, int]] = {}  # schedule → version of its state, when it is due
        self._said: dict[str, str] = {}
        self._disagreed: set[str] = set()

    def step(self) -> int:
        """Account for what has come; how many requests were opened. Trouble with one stops no other."""
        now_ms = self._now_ms()  # once: a ledger's clock may be far away
        self._grounds = self._read_grounds() if self._read_grounds is not None else None
        states, opened = self._states.states(), 0
        for schedule in self._schedules:
            try:
                opened += self._one(schedule, states.get(schedule.id), now_ms)
            except BackendUnavailable:
                raise  # the ledger's, not this schedule's: the caller opens it anew
            except Exception as error:  # noqa: BLE001 - a defect in one schedule is no reason to lose others
                text = error.message if isinstance(error, KfmError) else f"{type(error).__name__}: {error}"
                self._warn(schedule.id, text)
                self._due_ms[schedule.id] = (-1, now_ms + TROUBLE_MS)
        return opened

    def next_due_ms(self) -> int | None:
        """When the next step has something to do, as far as the last one saw."""
        found = min((at_ms for _, at_ms in self._due_ms.values()), default=EVER_MS)
        return found if found < EVER_MS else None

    def _one(self, schedule: Schedule, state: ScheduleState | None, now_ms: int) -> int:
        if state is not None and self._has_other_grounds(schedule, state):
            opened = self._ask_again(schedule, state, now_ms)
            if opened:
                self._due_ms.pop(schedule.id, None)
                return opened  # the next step sees the state that this has moved
        version, due_ms = self._due_ms.get(schedule.id, (None, 0))
        if now_ms < due_ms and version in (-1, state.version if state is not None else 0):
            return 0
        opened = 0
        if self._is_ours(schedule, state, now_ms):
            source = self._sources.get(schedule.source)
            if source is None:
                raise ConfigError(f"There is no source {schedule.source}.")
            if state is not None:
                state = self._by_this_clock(schedule, state, now_ms)
            for _ in range(SLICES_MAX):
                unsettled = self._requests.unsettled_of(schedule.id) if state is not None else []
                step = account(
                    schedule, source, state, unsettled, now_ms, late_ms=self._late_ms, actor=self._actor
                )
                if step is None:
                    break
                if not _is_catching_up(unsettled):  # no more than are worked off
                    step = self._with_left(schedule, source, step)
                if step.requests and self._grounds is not None:
                    step = replace(step, state=replace(step.state, grounds=self._grounds(schedule.source)))
                if not self._states.account(step):
                    # Another process was faster: the next step sees its decision.
                    self._due_ms.pop(schedule.id, None)
                    return opened
                state, opened = step.state, opened + len(step.requests)
        self._looked(schedule, state)
        return opened

    def _by_this_clock(self, schedule: Schedule, state: ScheduleState, now_ms: int) -> ScheduleState:
        """A state that a clock ahead of this one has moved goes on from the present."""
        if is_ahead(state, now_ms):
            step = taken_back(state, now_ms)
            if self._states.account(step):
                until = moment(state.cursor_ms)
                text = "schedule %s: accounted for until %s by a clock that was ahead, it goes on from now"
                logger.warning(text, schedule.id, until, extra={"schedule": schedule.id})
            return step.state
        last = self._states.instants_before(schedule.id, now_ms + 1, 1)
        return went_on(state, last[0] if last else None, now_ms)

    # --- what was left, refused or overtaken -----------------------------------------------

    def _with_left(self, schedule: Schedule, source: SourceSettings, step: Accounting) -> Accounting:
        """What earlier instants have left goes with what becomes a request: first what is open, then the cap,
        in windows, the oldest first. The rest goes with the next."""
        if not step.requests or self._is_touched is None or schedule.missed.run == "none":
            return step
        newest = max(step.requests, key=lambda one: one.instant_ms or 0)
        own = len(step.requests) - 1 if schedule.missed.run == "all" else 0
        room = max(0, schedule.missed.cap - own)
        left, reached_ms = self._left(schedule, source, step, newest, room)
        asked = [asking_for(newest, window) for window in left]
        if len(asked) < room and not self._is_refused(schedule):
            asked += [
                asking_again(one, newest.accepted_at_ms, self._actor)
                for one in self._requests.refused_of(schedule.id, room - len(asked))
                if not self._is_beside(one, step)
            ]
        state = replace(step.state, left_ms=max(step.state.left_ms, reached_ms))
        return replace(step, state=state, requests=(*asked, *step.requests))

    def _left(
        self,
        schedule: Schedule,
        source: SourceSettings,
        step: Accounting,
        newest: UpdateRequest,
        room: int,
    ) -> tuple[list[Window], int]:
        """The windows that are open, no more than there is room for, and how far all have been asked for."""
        after_ms, before_ms = step.state.left_ms, newest.instant_ms or 0
        known = self._states.instants(schedule.id, after_ms + 1, before_ms, ROWS_MAX)
        rows = [*known, *(row for row in step.instants if row.instant_ms < before_ms)]
        if len(known) == ROWS_MAX:
            rows = known
        own = {(one.window_start_ms, one.window_end_ms) for one in step.requests}
        found: dict[tuple[int, int], Window] = {}
        for number, (at_ms, window) in enumerate(left_windows(schedule, source, rows, after_ms, before_ms)):
            span = (window.start_ms, window.end_ms)
            if number == WINDOWS_MAX:
                return list(found.values()), at_ms - 1
            if span in own or span in found or self._is_closed(schedule, window):
                continue
            if len(found) == room:
                return list(found.values()), at_ms - 1
            found[span] = window
        return list(found.values()), rows[-1].last_ms if len(known) == ROWS_MAX else before_ms - 1

    def _is_closed(self, schedule: Schedule, window: Window) -> bool:
        """Has a run looked at the window, or was it asked for?"""
        assert self._is_touched is not None
        return self._is_touched(
            schedule.source, window.start_ms, window.end_ms
        ) or self._requests.is_asked_for(schedule.source, schedule.id, window.start_ms, window.end_ms)

    def _is_beside(self, refused: UpdateRequest, step: Accounting) -> bool:
        """Does the step ask for the window anyway?"""
        span = (refused.window_start_ms, refused.window_end_ms)
        return any((one.window_start_ms, one.window_end_ms) == span for one in step.requests)

    def _is_refused(self, schedule: Schedule) -> bool:
        """Was what it asked for last refused? Then so would be what was refused before."""
        last = self._requests.requests(schedule_id=schedule.id, state="done", limit=1)
        return bool(last) and last[0].outcome == "refused"

    def _has_other_grounds(self, schedule: Schedule, state: ScheduleState) -> bool:
        """Have rights, policies or switches changed since refused windows were last asked for? Each process
        acts on a change that it sees once: others may have other files."""
        if self._grounds is None or not schedule.enabled or schedule.missed.run == "none":
            return False
        now, before = self._grounds(schedule.source), self._grounds_seen.get(schedule.id)
        self._grounds_seen[schedule.id] = now
        return now not in (before, state.grounds) and not is_held(schedule, state)

    def _ask_again(self, schedule: Schedule, state: ScheduleState, now_ms: int) -> int:
        """Refused windows, when what refused them may be gone; the rest goes with later scheduled times."""
        unsettled = self._requests.unsettled_of(schedule.id)
        found = self._requests.refused_of(schedule.id, schedule.missed.cap)
        if not found or _is_catching_up(unsettled):
            return 0
        step = Accounting(
            seen=state,
            state=replace(
                state,
                version=state.version + 1,
                updated_at_ms=now_ms,
                grounds=self._grounds_seen[schedule.id],
            ),
            requests=tuple(asking_again(one, now_ms, self._actor) for one in found),
        )
        return len(found) if self._states.account(step) else 0

    def _is_ours(self, schedule: Schedule, state: ScheduleState | None, now_ms: int) -> bool:
        """Is there something for us to write?

        A definition that is not ours is replaced when we first see it. If it comes back, another process has
        another file: both then take turns, each when an instant of its own is due, or they would write the
        state for ever.
        """
        if state is None:
            self._adopted.add(schedule.id)
            return schedule.enabled
        if is_held(schedule, state):
            return False
        if state.definition != self._definitions[schedule.id]:
            if schedule.id not in self._adopted:
                self._adopted.add(schedule.id)
                return True
            if schedule.id not in self._disagreed:
                self._disagreed.add(schedule.id)
                logger.warning(
                    "schedule %s: another process has another definition of it",
                    schedule.id,
                    extra={"schedule": schedule.id},
                )
        else:
            self._adopted.add(schedule.id)
        if is_ahead(state, now_ms):
            return True
        due_ms = next_due_ms(schedule, state)
        return due_ms is not None and due_ms <= now_ms

    def _looked(self, schedule: Schedule, state: ScheduleState | None) -> None:
        """Remember when to look again; a changed state is looked at in any case."""
        if state is None:
            self._due_ms[schedule.id] = (0, EVER_MS)
            return
        due_ms = next_due_ms(schedule, state)
        self._due_ms[schedule.id] = (state.version, EVER_MS if due_ms is None else due_ms)
        if self._said.pop(schedule.id, None):
            logger.info("schedule %s: goes on", schedule.id, extra={"schedule": schedule.id})

    def _warn(self, schedule_id: str, text: str) -> None:
        """Once, however long it lasts."""
        if self._said.get(schedule_id) != text:
            self._said[schedule_id] = text
            logger.warning("schedule %s: %s", schedule_id, text, extra={"schedule": schedule_id})


def _is_catching_up(unsettled: Sequence[UpdateRequest]) -> bool:
    """Are windows that were left still to be worked off?"""
    return any(LEFT_TO in one.details and not one.is_set_aside for one in unsettled)


def make_scheduler(app: App, schedules: Sequence[Schedule]) -> Scheduler:
    store = app.kernel.store
    store.remember_names(names_by_dataset(app.settings, schedules))
    return Scheduler(
        store.schedule_states(),
        store.requests(),
        schedules,
        {source.id: source for source in app.settings.sources},
        now_ms=store.now_ms,
        late_ms=app.settings.serve.late_ms,
        actor=app.actor,
        is_touched=store.is_touched,
        grounds=_grounds_of(app),
    )


def _grounds_of(app: App) -> Callable[[], Callable[[str], str]]:
    """What the gates of each source decide by: switches, policies, its dataset as it is declared. Read once
    for a step; a digest is made when something has changed."""
    kernel, declared = app.kernel, {one.id: one.dataset for one in app.settings.sources}
    known: dict[str, tuple[object, str]] = {}

    def now() -> Callable[[str], str]:
        epoch = kernel.store.policy_epoch()

        def grounds(source_id: str) -> str:
            dataset_id = declared.get(source_id)
            dataset = kernel.dataset_now(dataset_id) if dataset_id is not None else None
            facts = (epoch, kernel.policies.bundle_id, dataset)
            if source_id not in known or known[source_id][0] != facts:
                document = {
                    "kfm": GROUNDS_TAG,
                    "policy_epoch": epoch,
                    "policies": kernel.policies.bundle_id,
                    # No gate asks for an extent, and hashed documents hold no floats.
                    "dataset": to_builtins(replace(dataset, bbox=None)) if dataset is not None else None,
                }
                known[source_id] = (facts, key_of(document))
            return known[source_id][1]

        return grounds

    return now


class Timetable:
    """When schedules begin their next runs, by their file as it is now."""

    def __init__(self, loaded: Loaded, ledger: LedgerReader) -> None:
        self._loaded = loaded
        self._ledger = ledger

    @property
    def _schedules(self) -> tuple[Schedule, ...]:
        from kfm.config.schedules import load_schedules

        try:
            return load_schedules(self._loaded)
        except KfmError as error:  # a run's end must not depend on it
            logger.warning("schedules: %s", error.message, extra={"code": error.code})
            return ()

    def next_run_ms(self, run: Run) -> int | None:
        """When the next run of a schedule that asks for such windows of its source begins; None: none does.

        A schedule that is paused begins none.
        """
        from kfm.model.schedules import due_ms, next_instant

        source = next((one for one in self._loaded.settings.sources if one.id == run.source_id), None)
        if source is None:
            return None
        fitting = [
            one
            for one in self._schedules
            if one.enabled and one.source == source.id and _asks_for(one, source, run)
        ]
        if not fitting:
            return None
        states, now_ms, found = self._ledger.schedule_reader().states(), self._ledger.now_ms(), []
        for schedule in fitting:
            state = states.get(schedule.id)
            if state is not None and state.paused_at_ms is not None:
                continue
            instant_ms = next_instant(schedule, now_ms)
            if instant_ms is not None:
                found.append(due_ms(schedule, instant_ms))
        return min(found, default=None)


def _asks_for(schedule: Schedule, source: SourceSettings, run: Run) -> bool:
    """Is the run's window one of those that the schedule asks for, at whichever instant?"""
    from kfm.model.windows import window_of

    try:
        window = window_of(schedule.window or source.window, source.time_zone, run.window_start_ms)
    except WindowError:
        return False
    return (window.start_ms, window.end_ms) == (run.window_start_ms, run.window_end_ms)


def run_due(
    app: App, schedules: Sequence[Schedule], on_ended: Callable[[UpdateRequest, bool], None]
) -> list[UpdateRequest]:
    """Account for the scheduled times that have come, work off the requests that are due, promised attempts
    included, and return when each of these has ended or was put off. `on_ended` gets each as it ends, and
    whether an attempt was made in vain."""
    from kfm.runs.derived_changes import follow_changes
    from kfm.service.overdue import mark_overdue
    from kfm.service.runner import recover

    make_scheduler(app, schedules).step()
    follow_changes(app)
    recover(app)
    due = _due(app)
    ended = work_off(app, due, on_ended) if due else []
    mark_overdue(app)
    return ended


def _due(app: App) -> list[UpdateRequest]:
    """Also those whose runner has died."""
    reader, now_ms = app.ledger.request_reader(), app.ledger.now_ms()
    found = reader.due(now_ms, PAGE)
    for one in reader.requests(state="running", limit=PAGE):
        if not holds(one.claim_until_ms, now_ms) or app.liveness.is_dead(one.claimed_by or ""):
            found.append(one)
    # The order in which they are claimed.
    return sorted(found, key=lambda one: (one.not_before_ms, one.accepted_at_ms, one.instant_ms or 0))


def work_off(
    app: App, due: list[UpdateRequest], on_ended: Callable[[UpdateRequest, bool], None]
) -> list[UpdateRequest]:
    """Run what is due until each of these requests has ended or was put off; those that ended."""
    from kfm.service.runner import ServiceOptions, ServiceThreads

    service = ServiceThreads(
        app.loaded, ServiceOptions(schedules=False, worker=False, changes=False), app.another
    )
    reader, ended = app.ledger.request_reader(), []
    waiting = {one.request_id: one for one in due}
    service.start()
    try:
        while waiting:
            app.clock.sleep_ms(POLL_MS)
            for before in list(waiting.values()):
                now = reader.request(before.request_id) or before
                if (
                    now.is_settled
                    or now.state == "awaiting-approval"
                    or _is_put_off(now, app.ledger.now_ms())
                ):
                    del waiting[now.request_id]
                    ended.append(now)
                    on_ended(now, now.state == "open" and now.tries > before.tries)
    finally:
        service.stop()
        service.join()
    return ended


def _is_put_off(request: UpdateRequest, now_ms: int) -> bool:
    """Its dataset is paused, or busy for long, or a circuit is open: a later call runs it."""
    return request.state == "open" and request.not_before_ms > now_ms + PATIENCE_MS
