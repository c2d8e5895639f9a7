"""Windows published together: a run for each, one lease, one promotion, one diff."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kfm.calls.runtime import HERE
from kfm.model.errors import Busy, LimitExceeded, LostLease, NotPublishedTogether, UsageError
from kfm.model.item_ids import item_id
from kfm.model.keys import key_of
from kfm.model.quantities import span
from kfm.model.records import PROMOTED_TOGETHER, GateResult, GovernanceEntry, Window
from kfm.model.runs import Promote, PromoteResult
from kfm.model.settings import SourceSettings
from kfm.model.times import rfc3339
from kfm.model.versions import Version
from kfm.model.window_rules import merges_windows
from kfm.periodic import HeldLease
from kfm.publish.manifest import diff
from kfm.runs import preparation
from kfm.runs.admission import Admission, AlreadyDone, NotAdmitted, Proposal
from kfm.runs.executor import ROUNDS_MAX, RunAtWork, RunExecutor, recover
from kfm.runs.gates import is_rewindowed
from kfm.runs.kernel import Kernel, RunReport
from kfm.runs.lease import hold
from kfm.runs.outcome import Denied
from kfm.runs.plan import RunPlan
from kfm.runs.preview import plan_of, preview
from kfm.runs.subjects import RunSubject, Start, as_configured
from kfm.runs.target_updates import project

TOGETHER_TAG = "together/1"
WINDOWS_MAX = 1_000  # one transaction begins them, and one ends them


def require_fit(source: SourceSettings) -> None:
    """UsageError where windows of a source can't be published together."""
    if source.mode == "replace":
        raise UsageError(
            f"Source {source.id} has `mode: replace`: of its windows only the newest is shown.",
            remedy="Leave --together out; windows stand beside each other with `mode: merge`.",
        )
    if not merges_windows(source):
        raise UsageError(
            f"Source {source.id} has no windows: each run publishes all of it.",
            remedy=f"`kfm run --source {source.id}` publishes it.",
        )
    if not source.idempotent:
        raise UsageError(
            f"Source {source.id} is declared `idempotent: false`: should one window fail, the others would "
            "have to be done twice.",
            remedy="Leave --together out.",
        )


def name_of(subjects: Sequence[RunSubject]) -> str:
    """What names windows that are published together."""
    listed = [[rfc3339(one.window.start_ms), rfc3339(one.window.end_ms)] for one in subjects]
    return key_of({"kfm": TOGETHER_TAG, "source_id": subjects[0].source.id, "windows": listed})


class Proposed(NamedTuple):
    """A window whose run may begin."""

    number: int  # among all that were asked for
    admission: Admission
    proposal: Proposal


class Member(NamedTuple):
    """A window whose run has begun."""

    number: int
    executor: RunExecutor
    work: RunAtWork


class Made(NamedTuple):
    """A window whose data is at hand."""

    member: Member
    prepared: preparation.PreparedVersion


class Promoted(NamedTuple):
    """What was promoted, and the answer of the transaction."""

    made: list[Made]
    requests: list[Promote]
    first: Promote
    answer: PromoteResult
    head: preparation.Head


class FailedWindow(Exception):
    """One of the windows has failed, with this."""

    def __init__(self, member: Member, problem: BaseException) -> None:
        super().__init__()
        self.member = member
        self.problem = problem


class TogetherExecutor:
    """Executes requests for windows of one source as one: their runs begin in one transaction, are made one
    after the other under one lease, and end in one promotion. Where one is refused or fails, none is
    promoted; with `leaves_out` that one is left out."""

    def __init__(
        self,
        kernel: Kernel,
        subjects: Sequence[RunSubject],
        start: Start,
        on_ended: Callable[[RunReport], None] = lambda _report: None,
    ) -> None:
        require_few(subjects)
        self._kernel = kernel
        self._subject = subjects[0]  # for what is the same for all
        self._leaves_out = start.leaves_out
        tied = replace(start, together=name_of(subjects))
        self._executors = [RunExecutor(kernel, one, in_folder(tied, one)) for one in subjects]
        self._on_ended = on_ended
        self._reports: dict[int, RunReport] = {}
        self._open: list[Member] = []  # that have no end yet

    def run(self) -> list[RunReport]:
        """A report for each window, in their order; none for those that another one kept from beginning."""
        try:
            recover(self._kernel)
            members = self._admit()
            if members:
                self._work(members)
        finally:
            if self._kernel.providers is not None:
                self._kernel.providers.give_back()
        return [self._reports[number] for number in sorted(self._reports)]

    # --- admission -------------------------------------------------------------------

    def _admit(self) -> list[Member]:
        """All runs begin, or none."""
        for _ in range(ROUNDS_MAX):
            proposed = self._propose()
            if not proposed:
                return []
            first, *others = proposed
            together = tuple(one.proposal.admit for one in others)
            answer = self._kernel.store.admit(
                replace(first.proposal.admit, together=together), self._kernel.liveness.is_dead
            )
            runs = (answer.run, *answer.together) if answer.answer == "admitted" else (None,)
            try:
                entered = [
                    one.admission.admitted(one.proposal, answer, run)
                    for one, run in zip(proposed, runs, strict=False)
                ]
            except NotAdmitted as refused:  # the dataset is busy: for all
                self._tell(first.number, self._executors[first.number].not_admitted(refused))
                return []
            if answer.answer == "admitted":
                return [
                    Member(one.number, self._executors[one.number], self._executors[one.number].take_on(each))
                    for one, each in zip(proposed, entered, strict=True)
                    if each is not None
                ]
        raise Busy("The ledger kept changing while these windows were being decided.")

    def _propose(self) -> list[Proposed]:
        """The windows whose runs may begin; none, where one may not and is not left out."""
        proposed = []
        for number, executor in enumerate(self._executors):
            if number in self._reports:  # known from an earlier round
                continue
            admission = executor.admission()
            try:
                one = executor.propose(admission)
            except NotAdmitted as refused:
                self._tell(number, executor.not_admitted(refused))
                if not self._leaves_out:
                    return []
                continue
            if isinstance(one, AlreadyDone):
                self._tell(number, executor.already_done(one))
            else:
                proposed.append(Proposed(number, admission, one))
        return proposed

    # --- the work --------------------------------------------------------------------

    def _work(self, members: list[Member]) -> None:
        """Whatever happens, each run gets an end: what holds the lock no longer comes last."""
        lead, self._open = members[0].work.entered, list(members)
        lease = hold(self._kernel, self._subject, lead.run, lead.policy_epoch)
        try:
            with lease.beating(), HERE.stopped_by(lease.check):
                made = [one for each in members if (one := self._make(each, lease)) is not None]
                promoted = self._promote(made, lead.run.run_id)
            if promoted is not None:  # the lease is over: what is left may take its time
                self._promoted(promoted)
        except (Exception, KeyboardInterrupt) as problem:  # noqa: BLE001 - reported once, where the runs end
            self._end_all(problem)

    def _make(self, member: Member, lease: HeldLease) -> Made | None:
        """The data of one window; None: it failed, and is left out."""
        _, executor, work = member
        lease.begin_anew()
        try:
            with executor.watched(work.entered) as watched:
                executor.begin(work)
                prepared = executor.prepare(work, lease)
                watched.note(outcome="complete")
        except (Exception, KeyboardInterrupt) as problem:
            if not self._is_left_out(problem, lease):
                raise FailedWindow(member, problem) from problem
            self._fail(member, problem)
            return None
        work.nodes.rest()
        work.log.rest()
        return Made(member, prepared)

    def _is_left_out(self, problem: BaseException, lease: HeldLease) -> bool:
        """Not where a stop ended it: that is for all."""
        return self._leaves_out and isinstance(problem, Exception) and lease.error is None

    def _promote(self, made: list[Made], holder: str) -> Promoted | None:
        """One transaction ends all; None: nothing is left of them."""
        kernel, subject = self._kernel, self._subject
        for one in made:
            work, about = one.member.work, f"{subject.dataset.id} by run {one.member.work.run_id}"
            work.log.step("promote", about, fence=work.fence, together=len(made))
        for _ in range(ROUNDS_MAX):
            # In this order: a switch thrown after the epoch was read moves the epoch.
            epoch = kernel.store.policy_epoch()
            head = kernel.store.head(subject.dataset.id)
            described = as_configured(kernel, subject) or subject
            gates = self._gates(made)
            made = [one for one in made if one.member.number in gates]
            if not made:
                return None
            version, version_id = preparation.merged(
                (one.prepared for one in made),
                head,
                described,
                rewindowed=is_rewindowed(kernel.ledger, subject.source),
            )
            if version is not None:
                preparation.require_objects(version, head, kernel.objects)
            requests = self._requests(made, gates, epoch, head, version, version_id)
            first = promoting(requests)
            others = tuple(
                replace(one, entries=self._entries(each.member, one, first.run_id))
                for each, one in zip(made, requests, strict=True)
                if one is not first
            )
            answer = kernel.store.promote(replace(first, together=others, holder=holder))
            made[0].member.executor.require_landed(made[0].member.work, answer)
            if answer.answer in ("promoted", "unchanged"):
                return Promoted(made, requests, first, answer, head)
        raise Busy("Policies or the head kept changing while these windows were being promoted.")

    def _gates(self, made: Sequence[Made]) -> dict[int, tuple[GateResult, ...]]:
        """What the gates say of each, by number; without what they refuse, if that is left out."""
        found = {}
        for one in made:
            try:
                found[one.member.number] = one.member.executor.gates(one.member.work, one.prepared)
            except Denied as problem:
                if not self._leaves_out:
                    raise FailedWindow(one.member, problem) from problem
                self._fail(one.member, problem)
        return found

    def _requests(
        self,
        made: Sequence[Made],
        gates: dict[int, tuple[GateResult, ...]],
        epoch: int,
        head: preparation.Head,
        version: Version | None,
        version_id: str,
    ) -> list[Promote]:
        """The part of each run: who changed nothing finds its result in the version of the others."""
        changed = changed_ids(version, head)
        found = []
        for member, prepared in made:
            mine = version if prepared.item is not None and prepared.item.id in changed else None
            one = member.executor.promotion(
                member.work, prepared, gates[member.number], epoch, head, mine, version_id
            )
            found.append(one)
        if version is None or any(one.version is not None for one in found):
            return found
        # Only the dataset's description has changed.
        return [replace(found[0], version=version), *found[1:]]

    def _entries(self, member: Member, request: Promote, promoted_with: str) -> tuple[GovernanceEntry, ...]:
        """The audit log has one promotion, with the run that it is recorded with, and names the others."""
        if request.version is None:
            return ()
        entered, version_id = member.work.entered, request.version_id
        return (member.executor.entry(PROMOTED_TOGETHER, entered, version_id, promoted_with=promoted_with),)

    def _promoted(self, promoted: Promoted) -> None:
        first, answer, head = promoted.first, promoted.answer, promoted.head
        changes = () if first.version is None else tuple(diff(head[1] if head else None, first.version))
        shown = tuple(project(self._kernel, self._subject.dataset.id))
        for (member, prepared), request in zip(promoted.made, promoted.requests, strict=True):
            number, executor, work = member
            self._open.remove(member)
            report = executor.promoted(work, prepared, request, answer, changes if request is first else ())
            report = replace(report, projections=shown if request is first else ())
            self._tell(number, executor.end(work, executor.shown(work, report)))

    # --- ends without a promotion ----------------------------------------------------

    def _end_all(self, problem: BaseException) -> None:
        """The window that failed has its own error, the others that they were not published without it."""
        failed = problem.member if isinstance(problem, FailedWindow) else None
        cause = problem.problem if isinstance(problem, FailedWindow) else problem
        others = [one for one in self._open if one is not failed]
        if failed is not None:
            self._fail(failed, cause)
            window = failed.work.entered.subject.window
            if not isinstance(cause, LostLease):
                cause = NotPublishedTogether(f"{span(window.start_ms, window.end_ms)} did not succeed.")
        for one in others:
            self._fail(one, cause)

    def _fail(self, member: Member, problem: BaseException) -> None:
        """The lock stays for the others; the last of them gives it back."""
        number, executor, work = member
        self._open.remove(member)
        executor.keep_lock(bool(self._open))
        self._tell(number, executor.end(work, executor.failed(work, problem)))

    def _tell(self, number: int, report: RunReport) -> None:
        self._reports[number] = self._executors[number].answered(report)
        self._on_ended(report)


def promoting(requests: Sequence[Promote]) -> Promote:
    """The run that the version is recorded with: the first that changes something."""
    return next((one for one in requests if one.version is not None), requests[0])


def changed_ids(version: Version | None, head: preparation.Head) -> set[str]:
    """The items that a version has otherwise than the head."""
    if version is None:
        return set()
    return {after.id for _, after in version.changed_items(head[1] if head else None) if after is not None}


def in_folder(start: Start, subject: RunSubject) -> Start:
    """Windows must not write over each other's artifacts."""
    if start.artifacts_dir is None:
        return start
    name = item_id(subject.source.id, subject.window, None)
    return replace(start, artifacts_dir=f"{start.artifacts_dir}/{name}")


def require_few(subjects: Sequence[RunSubject]) -> None:
    if len(subjects) > WINDOWS_MAX:
        raise LimitExceeded(
            f"These are {len(subjects):,} windows, and at most {WINDOWS_MAX:,} are published together.",
            remedy="Narrow the list with --from and --to.",
        )


def preview_together(
    kernel: Kernel, subjects: Sequence[RunSubject], start: Start
) -> tuple[list[RunReport], RunPlan | None]:
    """The preview of each window, and the plan of all that would be published; None: nothing would."""
    require_few(subjects)
    reports = [preview(kernel, one, in_folder(start, one)) for one in subjects]
    planned = [one for one in reports if one.outcome == "planned"]
    left = [one for one in reports if one.outcome not in ("planned", "noop")]
    if not planned or (left and not start.leaves_out):
        return reports, None
    made = [one.prepared for one in planned]
    first, last = subjects[0].window, subjects[-1].window
    whole = Window(start_ms=first.start_ms, end_ms=last.end_ms, spec=f"{first.spec} …")
    plan = plan_of(
        kernel,
        replace(subjects[0], window=whole),
        [one.item for one in made if one.item is not None],
        key_of({"kfm": TOGETHER_TAG, "fingerprints": [one.fingerprint for one in made]}),
        kernel.ledger.head(subjects[0].dataset.id),
        planned[0].gates,
        arrived_ms=made[0].arrived_ms,
    )
    return reports, plan
