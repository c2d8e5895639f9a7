"""Ports: everything outside the kernel, as protocols. Adapters implement them; `kfm.app` chooses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from kfm.model.attempts import Attempt, Backlog, CallRetry, ChainLink, Circumstances, Letter, LineageEvent
from kfm.model.audit import SealedPage
from kfm.model.branches import (
    Branch,
    Commit,
    Merged,
    Moved,
    PathChange,
    Preference,
    Proposal,
    Swept,
    Tag,
    TreeEntry,
    Why,
)
from kfm.model.breaker import Breaker
from kfm.model.catalogue import CatalogueItem, CollectionFigures, Owed, Search
from kfm.model.quarantine import Ahead, Approval, QuarantineEntry, RetryState, Waiting
from kfm.model.records import (
    Found,
    GateResult,
    GovernanceEntry,
    Invocation,
    Lock,
    Manifest,
    Node,
    ObjectStat,
    Promotion,
    Record,
    Run,
    Switch,
    Unit,
    Window,
    Work,
)
from kfm.model.replays import Chosen, Receipt, Replay, ReplayPlan, Selection, Stepped
from kfm.model.requests import Burst, BurstState, RequestKind, RequestOutcome, RequestState, UpdateRequest
from kfm.model.schedules import Accounting, Instant, ScheduleState
from kfm.model.settings import DatasetSettings
from kfm.model.transactions import (
    Admit,
    Admitted,
    Approve,
    Approved,
    Fail,
    Judge,
    Promote,
    Promoted,
    Reaped,
    Reject,
    Step,
)
from kfm.model.units import (
    Claim,
    Claimed,
    DeadMessage,
    Exchanged,
    Finish,
    Finished,
    IntakeBatch,
    IntakeReport,
    IntakeUnit,
    KnownContent,
    Lane,
    Move,
    Stored,
    UnitFilter,
)

if TYPE_CHECKING:
    from kfm.model.audit import Seal
    from kfm.model.incidents import Incident, Notification
    from kfm.model.run_state import (
        BeginPass,
        Begun,
        EndedPass,
        EndPass,
        Fence,
        Head,
        KnownNodes,
        Pass,
        PassFigures,
        Skips,
    )


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, ms since the epoch."""

    def monotonic_ms(self) -> int:
        """For durations only."""

    def sleep_ms(self, delay_ms: int) -> None: ...


class Rng(Protocol):
    def unit(self) -> float:
        """A number in [0, 1)."""


class Ids(Protocol):
    def new(self) -> str:
        """A fresh unique id, ordered by time (UUIDv7 text)."""


class Meter(Protocol):
    """What this process has used."""

    def cpu_us(self) -> int:
        """Processor time of this process and the children it waited for, in microseconds."""

    def package_uj(self) -> int | None:
        """The processor's own energy counter (RAPL), where it can be read."""


# --- evidence ------------------------------------------------------------------------


class Emitter(Protocol):
    """Makes the lineage events of a transaction. Pure: a transaction that is retried gets the same events."""

    def started(self, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent | None: ...
    def ended(self, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent | None: ...
    def refused(self, invocation: Invocation, known: Circumstances, at_ms: int) -> tuple[LineageEvent, ...]:
        """For a call that was refused or failed before there was an attempt: a start and an end."""


class Collector(Protocol):
    """Where letters of one topic are delivered."""

    def deliver(self, letters: Sequence[Letter]) -> int:
        """How many of them, in order, have safely arrived. Raises BackendUnavailable if none could."""

    def close(self) -> None: ...


class Notifier(Protocol):
    """Tells somebody of one change of an incident. What a plugin of `kfm.notifiers` makes."""

    def notify(self, change_id: str, body: bytes) -> None:
        """Return once it has surely arrived; raise anything otherwise. The same may come twice."""

    def close(self) -> None: ...


class Span(Protocol):
    def note(self, **attributes: str | int | bool) -> None: ...


class Telemetry(Protocol):
    """Spans and metrics. Never fails and never delays the work that it watches."""

    def span(
        self, name: str, *, trace_id: str | None = None, lasted_ms: int = 0, **attributes: str | int | bool
    ) -> AbstractContextManager[Span]:
        """A span inside the one that is open; with a trace id (32 hex digits) it begins that trace.

        `lasted_ms`: what it tells of began that long ago.
        """

    def add(self, metric: str, amount: int = 1, **labels: str) -> None: ...
    def observe(self, metric: str, value: float, **labels: str) -> None: ...
    def close(self) -> None: ...


# --- bytes on this machine -----------------------------------------------------------


class Writer(Protocol):
    def write(self, data: bytes) -> None: ...
    def fsync(self) -> None: ...
    def close(self) -> None: ...


class Reader(Protocol):
    def read(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class Files(Protocol):
    """The few POSIX calls that durable writing needs; `tests` cut its power.

    Errors are the usual OSError subclasses.
    """

    def create(self, path: str) -> Writer:
        """A new file; FileExistsError if there is one."""

    def open(self, path: str) -> Reader: ...
    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int:
        """When it was last written or touched."""

    def touch(self, path: str) -> None:
        """It counts as written now; FileNotFoundError if it is not there."""

    def listdir(self, path: str) -> list[str]:
        """Names, sorted; FileNotFoundError if there is no such folder."""

    def make_dirs(self, path: str) -> None:
        """The folder and its parents; existing ones are fine. New entries are durable after return."""

    def mkdir(self, path: str) -> None:
        """One folder; FileExistsError if there is one."""

    def rename(self, old: str, new: str) -> None: ...
    def link(self, old: str, new: str) -> None:
        """A hard link; FileExistsError if `new` exists."""

    def symlink(self, target: str, path: str) -> None: ...
    def readlink(self, path: str) -> str: ...
    def unlink(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def fsync_dir(self, path: str) -> None: ...


class Staging(Protocol):
    """One object on its way into the object store."""

    def write(self, data: bytes) -> None: ...
    def commit(self) -> tuple[str, int]:
        """Make it durable and reachable under its hash; returns (sha256 hex, size)."""

    def keep_partial(self) -> None:
        """Leave what was written for a later attempt to resume from."""

    def abort(self) -> None: ...


class Objects(Protocol):
    """Immutable bytes under their SHA-256."""

    def stage(self, resume_key: str | None = None) -> tuple[Staging, int]:
        """Begin an object. With a resume key, bytes kept by an earlier attempt are copied in
        (and hashed) first; the second value is how many."""

    def has(self, sha256: str) -> bool: ...
    def size_of(self, sha256: str) -> int | None:
        """None if it is not there."""

    def open(self, sha256: str) -> Reader: ...
    def local_path(self, sha256: str) -> str | None:
        """A path that can be hard-linked, where there is one."""

    def delete(self, sha256: str) -> None: ...
    def all(self) -> Iterator[str]: ...


class CollectableObjects(Objects, Protocol):
    """Objects from which old ones can be removed while others are being staged."""

    def size(self, sha256: str) -> int: ...
    def modified_ms(self, sha256: str) -> int | None:
        """When these bytes were last staged; None if they are not there."""

    def delete_if_older(self, sha256: str, before_ms: int) -> bool:
        """Remove the object unless it was staged since; True if it is gone."""

    def leftovers(self, before_ms: int) -> list[tuple[str, int]]:
        """Temporary and partial files begun before then, with their sizes."""

    def tidy(self, before_ms: int) -> int:
        """Remove those; returns how many."""


class Bucket(Protocol):
    """A few operations on S3, GCS, Azure or a stand-in. Only the conditional put decides races."""

    def get(self, key: str) -> tuple[bytes, str] | None:
        """A small object and its ETag."""

    def put(self, key: str, data: bytes, *, if_match: str | None = None, if_none_match: bool = False) -> bool:
        """False if the condition did not hold: nothing was written."""

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> None:
        """A large object, visible only once it is whole. Unconditional: for content-addressed keys."""

    def head(self, key: str) -> ObjectStat | None: ...
    def list(self, prefix: str) -> Iterator[ObjectStat]:
        """Everything whose key begins with the prefix."""

    def delete(self, key: str) -> None:
        """A key that is not there is fine."""

    def read(
        self, key: str, *, offset: int = 0, if_match: str | None = None
    ) -> AbstractContextManager[tuple[ObjectStat, Iterator[bytes]]]:
        """Stream from an offset; ChecksumMismatch if the ETag is another by now."""


# --- upstream ------------------------------------------------------------------------


class Response(Protocol):
    status: int
    headers: Mapping[str, str]  # lower-case names

    def chunks(self) -> Iterator[bytes]: ...


T = TypeVar("T")


class Retrying(Protocol):
    """What is told before a call is tried again."""

    @property
    def attempt(self) -> int: ...
    @property
    def delay_ms(self) -> int: ...
    @property
    def error_class(self) -> str | None: ...
    @property
    def error(self) -> Exception: ...


class Guard(Protocol):
    """Runs one external call with the call tier's retries. The call gets its timeout in ms."""

    def __call__(
        self,
        call: Callable[[int], T],
        *,
        on_retry: Callable[[Retrying], None] | None = None,
        until_ms: int | None = None,
    ) -> T:
        """No further try begins after `until_ms` on the monotonic clock; the present one is not cut short."""


class Providers(Protocol):
    """Whether those whom work calls are left alone just now."""

    def ask(self, providers: Sequence[str]) -> None:
        """Raises CircuitOpen if one is. Where a probe is due, it is this process's from now on."""

    def released_ms(self, providers: Sequence[str], name: str, due_ms: int = 0) -> int:
        """When a piece of waiting work may begin: not while one is left alone, nor all at once after it.
        `due_ms` is when it first fell due; without it its name gives it a place among those that wait."""

    def give_back(self) -> None:
        """Let others make the probes that were asked for and not made."""


class Http(Protocol):
    """Reading over HTTP. There is no way to send anything but GET and HEAD."""

    def open(
        self,
        method: Literal["GET", "HEAD"],
        url: str,
        headers: Mapping[str, str],
        timeout_ms: int,
        *,
        shown: str | None = None,
        secrets: Collection[str] = (),
    ) -> AbstractContextManager[Response]:
        """Errors name the address as `shown` and hold none of the secrets."""


class Download(Protocol):
    offset: int  # where the bytes begin: the asked offset, or 0 where resuming was not possible
    found: Found  # with what the answer told about size and validators

    def chunks(self) -> Iterator[bytes]: ...


class Source(Protocol):
    """One place that data comes from. Both methods only read."""

    def discover(self, window: Window) -> list[Found]: ...
    def open(self, found: Found, offset: int) -> AbstractContextManager[Download]: ...


# --- governance ----------------------------------------------------------------------


class PolicyEngine(Protocol):
    """Cedar, or anything that decides as it does."""

    @property
    def bundle_id(self) -> str:
        """SHA-256 of all policy texts: which policies were in force."""

    @property
    def texts(self) -> Mapping[str, str]:
        """Policy id → the policy as it was written."""

    def decide(
        self, action: str, dataset: DatasetSettings, principal: str, context: Mapping[str, Any]
    ) -> list[GateResult]:
        """One result per policy gate (care, sovereignty, licence, custom)."""


# --- publishing ----------------------------------------------------------------------


class Projection(Protocol):
    """A copy of the promoted head somewhere readers look."""

    name: str

    def project(
        self,
        dataset_id: str,
        head: Callable[[], tuple[Promotion, Manifest] | None],
        known: Callable[[int], str | None] | None = None,
    ) -> int | None:
        """Make the target show the head. `head` reads the database's current head and must be
        called after the projection's own fence is in place. `known` tells the version that this
        database promoted with a sequence: what a target shows is replaced only if it came from here.
        Returns the sequence now shown."""


# --- the store -----------------------------------------------------------------------


class Liveness(Protocol):
    """Can tell at once that a process of this machine is gone."""

    def claim(self, worker_id: str) -> None:
        """Show that this process is alive for as long as it is."""

    def is_dead(self, worker_id: str) -> bool:
        """True only if surely dead; False when alive or unknown."""


class Heart(Protocol):
    """Beats beside work that can't be interrupted to renew a lease."""

    def start(self, beat: Callable[[Store], None], interval_ms: int) -> Callable[[], None]:
        """Call `beat` with a store of its own until the returned function is called."""


class Progress(Protocol):
    """Where people watch long work."""

    def phase(self, name: str, total: int | None = None) -> None: ...
    def advance(self, amount: int, note: str = "") -> None: ...
    def done(self) -> None: ...


class LedgerReader(Protocol):
    """What any command may read. A dry-run gets no more than this."""

    def latest_run(self, work_base: str) -> Run | None: ...
    def latest_success(self, work: Work) -> Run | None:
        """The run that published this source's window last, whatever its pipeline's version."""

    def run_of_correction(self, work_base: str, correction: str) -> Run | None: ...
    def run(self, run_id: str) -> Run | None: ...
    def is_touched(self, source_id: str, start_ms: int, end_ms: int) -> bool:
        """Has any run looked at this window of a source?"""

    def run_by_key(self, idempotency_key: str) -> Run | None: ...
    def runs(
        self,
        *,
        dataset_id: str | None = None,
        source_id: str | None = None,
        status: str | None = None,
        since_ms: int = 0,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[Run]:
        """Newest first; `before` is (start_time_ms, run_id) of the last one of the page before."""

    def invocations(self, *, run_id: str | None = None, limit: int = 50) -> list[Invocation]: ...
    def head(self, dataset_id: str) -> tuple[Promotion, Manifest] | None: ...
    def heads(self) -> list[Promotion]: ...
    def promotions(self, dataset_id: str, limit: int = 50) -> list[Promotion]: ...
    def promotion(self, dataset_id: str, sequence: int) -> Promotion | None: ...
    def manifest(self, version_id: str) -> Manifest | None: ...
    def lock(self, scope: str) -> Lock | None: ...
    def locks(self) -> list[Lock]: ...
    def switches(self) -> list[Switch]: ...
    def breaker(self, provider: str) -> Breaker:
        """The provider's breaker, closed if nobody had trouble with it."""

    def breakers(self) -> list[Breaker]: ...
    def policy_epoch(self) -> int: ...
    def forces(self, work_base: str) -> int: ...
    def governance(
        self, *, kind: str | None = None, subject: str | None = None, limit: int = 50
    ) -> list[GovernanceEntry]: ...
    def links(self, subject: str, limit: int = 50) -> list[ChainLink]:
        """The governance ledger's entries about one subject with their places in the chain, newest first."""

    def projected(self) -> dict[tuple[str, str], int]:
        """(dataset_id, target) → last sequence known to be shown there."""

    def states(self, dataset_id: str) -> dict[str, Any]: ...
    def events(self, run_id: str) -> list[tuple[str, Any]]: ...
    def oldest_running_ms(self) -> int | None: ...
    def invocation(self, invocation_id: str) -> Invocation | None: ...
    def invocations_since(self, after: int, limit: int = 1000) -> list[tuple[int, Invocation]]:
        """The calls whose row number is above, with it."""

    def count_runs(self, since_ms: int = 0) -> int: ...
    def troubled_runs(self, after: tuple[int, str], limit: int = 1000) -> list[Run]:
        """Runs that were tried more than once, or whose calls were, by start and id, behind that place."""

    def attempts(self, run_id: str) -> list[Attempt]:
        """Of the run and its nodes, in the order in which they began."""

    def attempts_since(self, after: int, limit: int = 1000) -> list[tuple[int, Attempt, Run]]:
        """The attempts whose row number is above, with it and their run: for whoever counts them all."""

    def retries(self, run_id: str) -> list[CallRetry]: ...
    def pass_attempts_since(self, after: int, limit: int = 1000) -> list[tuple[int, PassFigures]]:
        """Attempts at passes with a greater number, in order; what they count may still grow."""

    def pass_attempts(self, run_id: str) -> list[PassFigures]: ...
    def retries_since(self, after: int, limit: int = 1000) -> list[tuple[int, CallRetry]]: ...
    def inputs(self, fingerprint: str) -> tuple[Found, ...] | None:
        """What was discovered when upstream had this fingerprint."""

    def policy_texts(self, bundle_id: str) -> dict[str, str] | None:
        """Policy id → its text, of policies that were in force once."""

    def letters(self, subject: str) -> list[Letter]: ...
    def backlog(self, topic: str) -> Backlog: ...
    def chain(self, after: int = 0, limit: int = 1000) -> list[ChainLink]:
        """The governance ledger in its own order."""

    def chain_head(self) -> tuple[int, str]:
        """Where the governance ledger says that it ends: the number and hash of its last row."""

    def events_between(self, first: int, last: int, limit: int = 1000) -> list[Letter]:
        """Rows of the outbox by their numbers, both included."""

    def events_posted(self, after: int = 0) -> int:
        """How many rows the outbox has above that number."""

    def retry_state(self, run_id: str) -> RetryState | None: ...
    def waiting(self, until_ms: int, limit: int = 100) -> list[Waiting]:
        """Failed runs whose automatic attempt is due by then, the earliest first."""

    def unjudged(self, limit: int = 100) -> list[Run]:
        """Runs whose process died before anybody decided what becomes of them."""

    def held(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        dataset_id: str | None = None,
        subject: str | None = None,
        limit: int = 50,
    ) -> list[QuarantineEntry]:
        """Newest first."""

    def held_one(self, held_id: str) -> QuarantineEntry | None: ...
    def ahead(self) -> Ahead:
        """How much is held and since when, and which automatic attempt comes next."""

    def halted(self, dataset_id: str) -> QuarantineEntry | None:
        """A run of this dataset that a CARE or sovereignty rule halted, and nobody has released since."""

    def approval(self, request_id: str) -> Approval | None: ...
    def approvals(
        self, *, state: str | None = None, subject: str | None = None, limit: int = 50
    ) -> list[Approval]:
        """Newest first."""

    def incidents(self, *, state: str | None = None, limit: int = 50) -> list[Incident]:
        """Newest first."""

    def find_incidents(self, start: str, limit: int = 2) -> list[Incident]:
        """Those whose id, or whose cause, begins so."""

    def incident_subjects(self, cause: str, limit: int = 100) -> list[str]:
        """The runs that suffer from it."""

    def hook_backlog(self, hook: str) -> Backlog:
        """What a hook has still to be told."""

    def hook_deliveries(self, cause: str) -> list[Notification]:
        """Each change of a cause and each hook that it was offered to, in their order."""

    def unit_reader(self) -> WalReader: ...
    def replay_reader(self) -> ReplayReader: ...
    def unsettled_requests(self) -> dict[str, int]:
        """How many requests have no end yet, by state."""

    def request_reader(self) -> RequestReader: ...
    def schedule_reader(self) -> ScheduleReader: ...
    def unit_figures(self) -> list[tuple[str, str, int, int | None]]:
        """(dataset, name, amount, newest time) of the units' counters."""

    def catalogue(self) -> CatalogueReader: ...
    def branch_reader(self) -> StoredBranchReader:
        """The branches that are tables here."""

    def mark(self, name: str) -> str | None:
        """A value that the environment was given once."""

    def now_ms(self) -> int:
        """The clock that leases live by."""

    def close(self) -> None: ...


class Store(LedgerReader, Protocol):
    """Atomic operations: each method is one transaction, and its answer says whether it landed."""

    def admit(self, request: Admit, dead: Callable[[str], bool]) -> Admitted: ...
    def record_invocation(
        self,
        invocation: Invocation,
        entries: Iterable[GovernanceEntry] = (),
        known: Circumstances | None = None,
    ) -> None:
        """A call that started nothing. With `known`, it also emits lineage events."""

    def step(self, request: Step) -> bool:
        """False if the run has passed to another."""

    def keep_policies(self, bundle_id: str, texts: Mapping[str, str]) -> None: ...
    def claim_letters(self, topic: str, limit: int, claim_ms: int) -> list[Letter]:
        """The oldest that are due, not due again before the claim ends."""

    def letters_delivered(self, numbers: Sequence[int]) -> None: ...
    def letters_put_back(self, numbers: Sequence[int], not_before_ms: int) -> None: ...
    def hasten_letters(self, topic: str) -> None:
        """All that wait are due now, also those that are claimed: somebody wants them sent."""

    def close_incident(self, cause: str, entry: GovernanceEntry) -> bool:
        """Resolve an incident because a person says so; False if it is over already."""

    def claim_for_hook(self, hook: str, limit: int, claim_ms: int) -> list[Letter]:
        """The oldest changes of incidents that are due at this hook, not due again before the claim ends."""

    def hook_delivered(self, hook: str, numbers: Sequence[int]) -> None: ...
    def hook_put_back(self, hook: str, numbers: Sequence[int], not_before_ms: int) -> None: ...
    def hasten_hook(self, hook: str) -> None:
        """All that waits for it is due now."""

    def settle_hooks(self, names: Sequence[str]) -> int:
        """Be done with the changes that each of these hooks has had; how many there were."""

    def seal(self, actor: str, limit: int = 1000, stream: str = "outbox") -> Seal | None:
        """Enter one root for the rows of a stream that no seal covers yet; None if there are none."""

    def ensure_mark(self, name: str, value: str) -> str:
        """The value that the environment has; this one, if it had none."""

    def renew(self, scope: str, fence: int, lease_ms: int) -> int | None:
        """The policy epoch if the lease still is ours, else None."""

    def promote(self, request: Promote) -> Promoted: ...
    def fail(self, request: Fail) -> bool: ...
    def reap(self, dead: Callable[[str], bool]) -> list[Reaped]: ...
    def judge(self, request: Judge) -> bool:
        """Decide about a run that has ended already; False if the world has moved."""

    def request_approval(self, approval: Approval, entry: GovernanceEntry) -> None: ...
    def approve(self, request: Approve) -> Approved:
        """Approve and carry out; not if it is not as it was asked for, or somebody is at work on it."""

    def reject(self, request: Reject) -> bool:
        """Reject what was asked for; False if it was decided on meanwhile, or is the asker's own."""

    def branch_store(self) -> BranchStore: ...
    def units(self) -> Wal: ...
    def bursts(self) -> Bursts: ...
    def replicas(self) -> Replicas: ...
    def replays(self) -> Replays: ...
    def requests(self) -> Requests: ...
    def schedule_states(self) -> ScheduleStates: ...
    def raise_projected(self, dataset_id: str, target: str, sequence: int) -> None: ...
    def begin_collection(self, worker_id: str, lease_ms: int, dead: Callable[[str], bool]) -> int | Lock: ...
    def end_collection(self, fence: int, entry: GovernanceEntry) -> None: ...
    def change_breaker(
        self,
        provider: str,
        decide: Callable[[Breaker, int], Breaker],
        entries: Iterable[GovernanceEntry] = (),
    ) -> tuple[Breaker, Breaker]:
        """Compare and set: what was found, and what stands now. `decide` is pure and gets the time that
        leases live by; it may be asked more than once."""

    def set_switch(self, switch: Switch, entry: GovernanceEntry) -> int: ...
    def append_governance(self, entries: Iterable[GovernanceEntry]) -> None: ...


# --- run-state -----------------------------------------------------------------------


class RunStates(Protocol):
    """Where the records of nodes are kept: the one place of an environment that decides."""

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> KnownNodes:
        """What a pass begins with; it may hold more nodes than were asked for."""

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Head | None:
        """The newest success on the branch with this hash and this code, unless it was reverted."""

    def record(
        self,
        fence: Fence,
        nodes: Sequence[Node] = (),
        skips: Skips | None = None,
        documents: Sequence[tuple[str, str]] = (),
        events: Sequence[LineageEvent] = (),
    ) -> bool:
        """All of it, durable on return; False if the lock has passed to another: then none of it."""

    def one(self, run_id: str, dataset_id: str) -> Node | None: ...
    def of_run(self, run_id: str) -> Iterator[Node]: ...
    def history(self, dataset_id: str, *, branch: str | None = None, limit: int = 50) -> list[Node]:
        """Newest first."""

    def document(self, name: str) -> str | None:
        """What an inputs_hash was made of, where it was kept."""


class Passes(Protocol):
    """Executions of pipelines, and the checksums that they remember."""

    def begin(self, request: BeginPass, dead: Callable[[str], bool]) -> Begun: ...
    def end(self, request: EndPass, skips: Skips | None = None) -> EndedPass: ...
    def get(self, run_id: str) -> Pass | None: ...
    def passes(
        self, *, pipeline_id: str | None = None, branch: str | None = None, limit: int = 50
    ) -> list[Pass]: ...
    def checksums(self, first: str, last: str) -> dict[str, tuple[int, int, int, str]]: ...
    def keep_checksums(self, seen: dict[str, tuple[int, int, int, str]]) -> None: ...


class ProjectFiles(Protocol):
    """The files of a project, by their paths relative to it."""

    def match(self, pattern: str) -> list[str]:
        """Sorted; a plain path matches itself if it is there."""

    def stat(self, path: str) -> tuple[int, int, int] | None:
        """Size, modification time in ns, inode; None if it is not there."""

    def checksum(self, path: str) -> str:
        """sha256:<hex> of its bytes."""


class Signs(Protocol):
    """What identifies the content of something far away, without fetching it."""

    def of(self, uri: str) -> Mapping[str, Any]:
        """`uri` and an ETag, a version, a commit or a time of modification."""


class BranchReader(Protocol):
    """Questions. A ref is a branch, a tag or the beginning of a commit's id, with `~N` for N commits earlier;
    RefNotFound if it names nothing."""

    def branches(self) -> list[Branch]:
        """By name."""

    def branch(self, name: str) -> Branch | None: ...
    def tags(self) -> list[Tag]: ...
    def resolve(self, ref: str) -> Commit: ...
    def log(self, ref: str, *, limit: int = 50, first_parent: bool = True) -> list[Commit]:
        """Newest first: a branch's own line, or all that it came from."""

    def entries(self, ref: str, prefix: str = "") -> Iterator[tuple[str, TreeEntry]]:
        """In the order of paths; read as they are asked for."""

    def lookup(self, ref: str, paths: Iterable[str]) -> dict[str, TreeEntry]:
        """Those of the paths that are there."""

    def diff(self, old: str, new: str, prefix: str = "") -> Iterator[PathChange]:
        """The paths that differ, in order; read as they are asked for."""

    def propose(self, source: str, into: str) -> Proposal:
        """What a merge would start from: both heads as they are now, and their common ancestors."""


class Branches(BranchReader, Protocol):
    """Changes. Each is one transaction, with the entry of the governance ledger that `why` asks for."""

    def create(self, name: str, at: str | None = None, *, why: Why | None = None) -> Branch:
        """At a ref; without one, a branch without entries. RefExists if the name is taken."""

    def delete(self, name: str, *, why: Why, expected: str | None = None) -> Branch | Moved: ...
    def commit(
        self,
        branch: str,
        changes: Mapping[str, TreeEntry | None],
        *,
        message: str,
        author: str,
        expected: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Commit | Moved:
        """Entries to put and, as None, paths to remove. Moved if `expected` is not the head (any more).
        What changes nothing makes no commit: the answer is the head."""

    def merge(
        self,
        proposal: Proposal,
        *,
        message: str,
        author: str,
        gated: bool = False,
        prefer: Preference | None = None,
        why: Why | None = None,
    ) -> Merged | Moved:
        """Carry out what was proposed, if both branches are still there. All of it, or nothing."""

    def revert(
        self,
        branch: str,
        ref: str,
        *,
        message: str,
        author: str,
        expected: str | None = None,
        gated: bool = False,
        prefer: Preference | None = None,
        why: Why | None = None,
    ) -> Merged | Moved:
        """Take back what one commit did."""

    def tag(self, name: str, ref: str, *, message: str, author: str, why: Why | None = None) -> Tag: ...
    def delete_tag(self, name: str, *, why: Why) -> Tag: ...
    def protect(self, name: str, on: bool, *, why: Why) -> Branch: ...


class StoredBranchReader(BranchReader, Protocol):
    """Branches whose garbage is ours to collect."""

    def garbage(self, before_ms: int) -> Swept:
        """What no ref reaches and is older. Reads only."""

    def objects_kept(self, before_ms: int) -> Iterator[str]:
        """Every object (SHA-256) of the commits that a sweep would leave; some more than once."""


class BranchStore(StoredBranchReader, Branches, Protocol):
    def sweep(self, before_ms: int) -> Swept:
        """Remove the commits and trees that no ref reaches and that are older."""


class QueueMessage(Record, frozen=True, gc=False):
    """One message of a queue. The receipt is what acknowledges it."""

    receipt: str
    body: bytes
    message_id: str
    receives: int = 1  # how often it was handed out, as far as the queue knows


class Queue(Protocol):
    """A queue of announcements. At least once, in any order."""

    @property
    def name(self) -> str:
        """The logical name, which units keep."""

    @property
    def ended(self) -> bool:
        """Silence means that nothing is left. False: an input that is still open, and may only be slow."""

    def receive(self, limit: int, wait_ms: int) -> list[QueueMessage]:
        """Up to `limit` messages; waits that long if there are none. Raises BackendUnavailable."""

    def acknowledge(self, receipts: Sequence[str]) -> list[str]:
        """These are durable elsewhere. Those that could not be acknowledged come back, and come again."""

    def put_back(self, receipts: Sequence[str]) -> None:
        """Nothing was done with these: let others have them at once, as far as the queue can."""

    def close(self) -> None: ...


class Certificates(Protocol):
    """Where topics keep the certificates that they sign with."""

    def fetch(self, url: str) -> bytes:
        """The bytes at exactly this address, which the caller has checked. Raises UpstreamUnavailable;
        unless its fact `transient` is true, the answer is final."""


class Upstream(Protocol):
    """The announced objects themselves: never fetched whole unless a policy asks."""

    def head(self, object_uri: str) -> ObjectStat | None:
        """None if there is no such object."""

    def read(self, object_uri: str, start: int, length: int) -> bytes:
        """A range; fewer bytes at the end of the object."""

    def stream(self, object_uri: str) -> Iterator[bytes]: ...
    def list(self, provider: str, bucket: str, prefix: str) -> Iterator[ObjectStat]: ...


class WalReader(Protocol):
    """The units, to be looked at."""

    def unit(self, wal_id: str) -> Unit | None: ...
    def stored(self, wal_id: str) -> Stored | None:
        """The unit, and what the ledger keeps beside it."""

    def history_of(self, wal_id: str) -> list[Move]: ...
    def letters_of(self, wal_id: str) -> list[Letter]:
        """Those that tell of the ends of its attempts, and of others that ended with it, in their order."""

    def contents(self, wal_ids: Sequence[str]) -> dict[str, KnownContent]: ...
    def totals(self) -> dict[tuple[str, str], tuple[int, int | None]]:
        """(dataset, name) → amount and the newest time, from counters."""

    def find_units(self, wanted: UnitFilter) -> list[Unit]:
        """The newest first."""

    def oldest_open(self, dataset: str) -> Stored | None:
        """The unit that waits or is worked on and is of the earliest time."""

    def pages_between(self, first: int, last: int, limit: int) -> list[SealedPage]:
        """Pages of the history by their numbers, as they are stored."""

    def pages_written(self, after: int = 0) -> int: ...
    def dead_messages(self, state: str = "held", error_code: str = "", limit: int = 100) -> list[DeadMessage]:
        """Without their bodies, the newest first."""

    def dead_message(self, envelope_hash: str) -> list[DeadMessage]:
        """Its records, each with its body."""

    def lanes(self) -> list[Lane]:
        """Where units wait, each with the time at which its first is due."""

    def unit_counts(self) -> dict[tuple[str, str], int]:
        """(dataset, status) → units, from counters, not by counting."""


class Wal(WalReader, Protocol):
    """Each method is one transaction."""

    def take_in(self, intake: IntakeBatch) -> IntakeReport: ...
    def turn(self, finish: Finish | None, claim: Claim | None) -> tuple[Finished, list[Claimed]]:
        """End what was worked on and take what comes next. Effects and statuses land together."""

    def exchange(self, finish: Finish | None, claim: Claim | None, fresh: Sequence[IntakeUnit]) -> Exchanged:
        """A turn that also takes in what is new, and claims of that what the claim has room for."""

    def reap_units(
        self, unit_random: float, dead: Callable[[str], bool] | None = None, *, lineage: bool = True
    ) -> int:
        """Units whose lease has lapsed, or whose worker is known to be gone, fail and are tried again."""

    def release_dead(self, envelope_hash: str, entry: GovernanceEntry) -> int:
        """Nobody has to look at it any more; how many records it has."""

    def fold_counts(self, limit: int = 10_000) -> int:
        """Add deltas up; how many there were."""


class UnitImporter(Protocol):
    """A ledger that takes over records of another one."""

    def bring_in(self, units: Sequence[Unit], actor: str, rationale: str) -> int:
        """As they are, those that are not known yet, in one transaction; how many."""


class StacReplica(Protocol):
    """An external STAC API with transactions. Raises UpstreamUnavailable or CollectorRefused."""

    def ensure_collection(self, body: dict[str, Any]) -> None:
        """Made if it is not there, replaced if it is."""

    def put_item(self, body: dict[str, Any]) -> None:
        """Made or replaced."""

    def delete_item(self, collection_id: str, item_id: str) -> None:
        """Also if there is none."""

    def revisions(self, collection_id: str, ids: Sequence[str]) -> dict[str, int | None]:
        """Item → its `kfm:revision`, of those that are there; None: it has none."""

    def items(self, collection_id: str) -> Iterator[tuple[str, int | None]]:
        """All of a collection, each with its `kfm:revision`."""

    def close(self) -> None: ...


class Replicas(Protocol):
    """Which items each replica has still to be told of. Each method is one transaction."""

    def claim(self, replica: str, limit: int, claim_ms: int) -> list[Owed]:
        """The longest due; nobody else has them before the claim ends."""

    def delivered(self, replica: str, done: Iterable[tuple[Owed, int]]) -> None:
        """Each with the revision that was sent. What is wanted since then, or came of a claim that was over,
        is due again."""

    def put_back(
        self, replica: str, owed: Iterable[Owed], not_before_ms: int, *, charged: bool = True
    ) -> None:
        """For later. What was not tried is not charged."""

    def again(self, replica: str, items: Iterable[tuple[str, str, int]]) -> None:
        """(collection, item, revision): deliver these once more, whatever was sent before."""

    def backlog(self, replica: str) -> int: ...
    def now_ms(self) -> int:
        """The time that claims live by."""


class Bursts(Protocol):
    """Arrivals that sources follow, gathered until their window closes. Each method is one transaction."""

    def close_due(self, window_ms: int, period: Callable[[str, int], Window]) -> int:
        """Close the windows that have been open long enough; how many bursts that made."""

    def claim(self, limit: int, claim_ms: int) -> list[Burst]:
        """Open ones; not handed out again before the claim ends."""

    def settle(
        self, burst: Burst, state: BurstState, run_id: str | None = None, not_before_ms: int = 0
    ) -> None:
        """What became of it; one that stays open comes again, not before that time."""

    def recent(self, limit: int = 50) -> list[Burst]:
        """The newest first."""


class ReplayReader(Protocol):
    """Replays, and which units one would be about."""

    def select(self, selection: Selection, limit: int) -> list[Chosen]:
        """In the order of their ids; ask for one more to see whether there are more."""

    def replay(self, replay_id: str) -> Replay | None: ...
    def replays(self, limit: int = 50) -> list[Replay]:
        """The newest first."""

    def find(self, start: str, limit: int = 2) -> list[str]:
        """Ids of replays that begin so."""

    def receipts(self, replay_id: str, after: str = "", limit: int = 1000) -> list[Receipt]: ...
    def tally(self, replay_id: str) -> dict[str, int]:
        """Receipt → how many; '' are those that wait."""

    def since(self, replay_id: str) -> dict[str, int]:
        """Status now → how many of those that were replayed."""

    def moved(self, replay_id: str, limit: int = 1000) -> list[str]:
        """Units without a receipt that are not as they were planned."""


class Replays(ReplayReader, Protocol):
    """Each method is one transaction."""

    def request(
        self, plan: ReplayPlan, approval: Approval, entry: GovernanceEntry, *, rationale: str
    ) -> list[str]:
        """Freeze the plan and ask for a second person; nothing, if units changed since: those come back."""

    def begin(
        self, plan: ReplayPlan, *, rationale: str, requested_by: str, entry: GovernanceEntry
    ) -> list[str]:
        """Freeze the plan, unless it was begun before; nothing, if units changed since: those come back."""

    def step(
        self,
        replay: Replay,
        limit: int,
        *,
        after: str = "",
        stopped: Collection[str] = (),
        ended: Callable[[dict[str, int], int], GovernanceEntry],
    ) -> Stepped:
        """The next units come back, each with its receipt, in one transaction. One process at a time."""


class CatalogueReader(Protocol):
    """Our own catalogue, to be searched."""

    def find_items(self, search: Search) -> list[CatalogueItem]: ...
    def item(self, collection_id: str, item_id: str) -> CatalogueItem | None: ...
    def collections(self) -> list[CollectionFigures]:
        """Those that have an item to be seen. Extents cover all that were ever to be seen."""

    def collection_ids(self) -> list[str]:
        """Also of those that have none any more."""


Key = tuple[str, str]  # run, node


class Shelf(Protocol):
    """Records by (run, node), as they were put. Who may write, and when, is decided by whoever calls;
    `branch` says where to look: a shelf that does not keep them by branch needs no such word."""

    names_commits: bool  # a record can say which commit its outputs are in

    def prepare(self, nodes: Sequence[Node]) -> Any:
        """Whatever can be done before the others have to wait. Nobody can see any of it yet."""

    def put(self, prepared: Any) -> None:
        """Insert or replace: all of them or none, durable on return."""

    def get(self, keys: Collection[Key], branch: str | None = None) -> dict[Key, Node]:
        """Those that are there."""

    def present(self, keys: Collection[Key], branch: str | None = None) -> set[Key]: ...
    def of_run(self, run_id: str, branch: str | None = None) -> Iterator[Node]:
        """In the order of their ids."""

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Node | None:
        """The newest success with this hash and this code, unless it was reverted."""

    def history(self, dataset_id: str, branch: str | None, limit: int) -> list[Node]:
        """Newest first."""

    def revert(self, branch: str, dataset_ids: Collection[str]) -> None:
        """The successes of these nodes on this branch are not to be found by `made` any more."""

    def rows(self) -> Iterator[Node]:
        """All that there are, by run and node."""

    def reverted(self) -> set[Key]:
        """Those of them that `made` does not find any more."""

    def take_back(self, keys: Collection[Key]) -> None:
        """Mark records as reverted, one by one: another store had them so."""


class StandingShelf(Shelf, Protocol):
    """Records on branches that the ledger does not keep: what stands there is asked of them."""

    def require_open(self, branch: str) -> None:
        """BranchProtected if no pass may work there."""

    def head(self, branch: str) -> str | None:
        """Where the branch is."""

    def standing(self, branch: str) -> tuple[set[Key], dict[str, Node]]:
        """All records of a branch by their keys, and of each node its newest success."""


class Committing(BranchReader, Protocol):
    """What keeping records on a branch asks of it."""

    def create(self, name: str, at: str | None = None) -> Branch: ...
    def commit(
        self,
        branch: str,
        changes: Mapping[str, TreeEntry | None],
        *,
        message: str,
        author: str,
        expected: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Commit | Moved: ...


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

    def settle(self, request: UpdateRequest, ending: RequestOutcome) -> bool:
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
