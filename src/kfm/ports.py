"""Ports: everything outside the kernel, as protocols. Adapters implement them; `kfm.app` chooses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from kfm.model.records import Record

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.model.branches import (
        Branch,
        Commit,
        Merged,
        Moved,
        NewCommit,
        PathChange,
        Preference,
        Proposal,
        Tag,
        TreeEntry,
    )
    from kfm.model.records import (
        Found,
        GateResult,
        Invocation,
        Justification,
        Node,
        ObjectStat,
        Promotion,
        Run,
        StoredObject,
        Window,
    )
    from kfm.model.run_state import (
        BeginPass,
        Begun,
        EndedPass,
        EndPass,
        Fence,
        Head,
        KnownNodes,
        Own,
        Skips,
    )
    from kfm.model.runs import Attempt, Circumstances, LineageEvent, OutboxMessage
    from kfm.model.settings import DatasetSettings
    from kfm.model.versions import Version


# --- the system ----------------------------------------------------------------------


class Clock(Protocol):
    """Wall and monotonic time."""

    def now_ms(self) -> int:
        """Wall time, ms since the epoch."""

    def monotonic_ms(self) -> int:
        """For durations only."""

    def sleep_ms(self, delay_ms: int) -> None: ...


class Rng(Protocol):
    """Randomness."""

    def unit(self) -> float:
        """A number in [0, 1)."""


class Ids(Protocol):
    """Unique ids."""

    def new(self) -> str:
        """A fresh unique id, ordered by time (UUIDv7 text)."""


class Meter(Protocol):
    """Resource usage of this process."""

    def cpu_us(self) -> int:
        """Processor time of this process and the children it waited for, in microseconds."""

    def package_uj(self) -> int | None:
        """The processor's own energy counter (RAPL), where it can be read."""


class Liveness(Protocol):
    """Detects at once that a process of this machine is gone."""

    def claim(self, worker_id: str) -> None:
        """Show that this process is alive for as long as it is."""

    def is_dead(self, worker_id: str) -> bool:
        """True only if surely dead; False when alive or unknown."""


class Heartbeat(Protocol):
    """Renews a lease beside work that can't be interrupted for it."""

    def start(self, beat: Callable[[Ledger], None], interval_ms: int) -> Callable[[], None]:
        """Call `beat` with a store of its own until the returned function is called."""


class Progress(Protocol):
    """Progress display of long work."""

    def phase(self, name: str, total: int | None = None) -> None: ...
    def advance(self, amount: int, note: str = "") -> None: ...
    def done(self) -> None: ...


# --- evidence ------------------------------------------------------------------------


class Emitter(Protocol):
    """Makes the lineage events of a transaction. Pure: a transaction that is retried gets the same events."""

    def started(self, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent | None: ...
    def ended(self, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent | None: ...
    def refused(self, invocation: Invocation, known: Circumstances, at_ms: int) -> tuple[LineageEvent, ...]:
        """For an invocation that was refused or failed before any attempt: a start and an end."""


class Collector(Protocol):
    """Takes outbox messages of one topic."""

    def deliver(self, messages: Sequence[OutboxMessage]) -> int:
        """How many of them, in order, have safely arrived. Raises BackendUnavailable if none could."""

    def close(self) -> None: ...


class Notifier(Protocol):
    """Sends one change of an incident. A plugin of `kfm.notifiers` makes one."""

    def notify(self, change_id: str, body: bytes) -> None:
        """Return once it has surely arrived; raise anything otherwise. The same may come twice."""

    def close(self) -> None: ...


class TelemetrySpan(Protocol):
    """An open span of a trace."""

    def note(self, **attributes: str | int | bool) -> None: ...


class Telemetry(Protocol):
    """Spans and metrics. Never fails and never delays the work that it watches."""

    def span(
        self, name: str, *, trace_id: str | None = None, lasted_ms: int = 0, **attributes: str | int | bool
    ) -> AbstractContextManager[TelemetrySpan]:
        """A span inside the one that is open; with a trace id (32 hex digits) it begins that trace.

        `lasted_ms`: what it tells of began that long ago.
        """

    def add(self, metric: str, amount: int = 1, **labels: str) -> None: ...
    def observe(self, metric: str, value: float, **labels: str) -> None: ...
    def totals(self, tallies: Any) -> None:
        """What the ledger has counted (`telemetry.exposition.Tallies`), in place of what was given before."""

    def close(self) -> None: ...


# --- files and objects ---------------------------------------------------------------


class Writer(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None: ...
    def fsync(self) -> None: ...
    def close(self) -> None: ...


class Reader(Protocol):
    """A stream of bytes."""

    def read(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class Files(Protocol):
    """The few POSIX calls that durable writing needs; tests simulate a power cut in it.

    Errors are the usual OSError subclasses.
    """

    def below(self, folder: str) -> Files:
        """The same disk; below this folder no link is followed on the way to a file."""

    def create(self, path: str) -> Writer:
        """A new file; FileExistsError if there is one."""

    def open(self, path: str) -> Reader: ...
    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int:
        """When it was last written or touched."""

    def times_ns(self, path: str) -> tuple[int, int]:
        """When it was last written or touched; when anything of it was last changed, its links included."""

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


class ObjectAttributes(Record, frozen=True):
    """What a bucket tells readers with an object's bytes."""

    content_type: str | None = None
    cache_control: str | None = None
    content_disposition: str | None = None


NewObject = tuple[str, bytes, ObjectAttributes | None]  # key, bytes


class CollectorLease(Protocol):
    """The right to take objects away: while it is held no run begins."""

    fence: int

    def check(self) -> None:
        """Called between any two steps; raises once it has passed on."""

    def confirm(self) -> None:
        """The same, asked of the ledger now."""


class CollectableObjects(Objects, Protocol):
    """A store that tells how old objects are, and takes away what is old and was not staged again."""

    def stored(self) -> Iterator[StoredObject]: ...
    def delete_old(
        self, names: Sequence[str], before_ms: int, lease: CollectorLease
    ) -> Iterator[dict[str, bool]]:
        """In their order, some at once: each with whether it went."""

    def leftovers(self, before_ms: int) -> list[tuple[str, int]]:
        """What ended processes have left since before then, with sizes."""

    def tidy(self, before_ms: int) -> int:
        """Remove those; how many there were."""


@runtime_checkable
class ManyPuts(Protocol):
    """A bucket that takes many small objects at once."""

    def put_many(self, objects: Sequence[NewObject], *, if_none_match: bool = False) -> None:
        """Returns once all are there; what raises leaves some of them."""


class Bucket(Protocol):
    """A few operations on S3, GCS, Azure or a stand-in. Only the conditional put decides races."""

    def get(self, key: str) -> tuple[bytes, str] | None:
        """A small object and its ETag."""

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
        attributes: ObjectAttributes | None = None,
    ) -> bool:
        """False if the condition did not hold: nothing was written."""

    def put_stream(
        self, key: str, chunks: Iterable[bytes], *, attributes: ObjectAttributes | None = None
    ) -> None:
        """A large object, visible only once it is whole. Unconditional: for content-addressed keys."""

    def head(self, key: str) -> ObjectStat | None: ...
    def list(self, prefix: str) -> Iterator[ObjectStat]:
        """Everything whose key begins with the prefix."""

    def delete(self, key: str) -> None:
        """A key that is not there is fine."""

    def copy(self, key: str, to: str) -> bool:
        """Within the bucket, by the server; replaces what is there. False if there is no such key."""

    def read(
        self, key: str, *, offset: int = 0, if_match: str | None = None
    ) -> AbstractContextManager[tuple[ObjectStat, Iterator[bytes]]]:
        """Stream from an offset; ChecksumMismatch if the ETag is another by now."""


# --- upstream ------------------------------------------------------------------------


class Response(Protocol):
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]  # lower-case names
    address: str  # the one that answered, at the end of all redirects

    def chunks(self) -> Iterator[bytes]: ...


class SentResponse(Response, Protocol):
    """The answer to what was sent."""

    def decoded(self) -> Iterator[bytes]:
        """Its bytes without their content encoding."""


T = TypeVar("T")


class Retrying(Protocol):
    """A call that is about to be retried, for listeners."""

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
        allow: Collection[str] = (),
    ) -> AbstractContextManager[Response]:
        """Errors name the address as `shown` and hold none of the secrets. `allow` has the hosts and ranges
        that may be reached although they are not public."""


class HttpSender(Protocol):
    """Sending over HTTP to an address of the configuration: no redirects, no proxies."""

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_ms: int,
        *,
        shown: str | None = None,
        secrets: Collection[str] = (),
    ) -> AbstractContextManager[SentResponse]: ...
    def close(self) -> None: ...


class Download(Protocol):
    """An open upstream object."""

    offset: int  # where the bytes begin: the asked offset, or 0 where resuming was not possible
    found: Found  # with what the answer told about size and validators

    def chunks(self) -> Iterator[bytes]: ...


class Source(Protocol):
    """One place that data comes from. Both methods only read.

    A source whose upstream answers for each window may have an attribute `answers_empty`, which is true: then
    a discovery of nothing is upstream's own word that there is nothing. Else it is an absence.
    """

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
        head: Callable[[], tuple[Promotion, Version] | None],
        known: Callable[[int], str | None] | None = None,
    ) -> int | None:
        """Make the target show the head. `head` reads the database's current head and must be
        called after the projection's own fence is in place. `known` tells the version that this
        database promoted with a sequence: what a target shows is replaced only if it came from here.
        Returns the sequence now shown."""


@runtime_checkable
class PublishedVersions(Protocol):
    """What this database promoted, by sequence: as `known` is given to a projection by kfm itself."""

    def __call__(self, sequence: int, /) -> str | None: ...
    def version(self, sequence: int) -> Version | None:
        """The version that the target was given with this sequence; None: it was none, or emptied."""


@runtime_checkable
class PurgingProjection(Protocol):
    """A projection that can remove old versions for good. Of one that can't a receipt says so."""

    name: str

    def purge(
        self,
        dataset_id: str,
        gone: Sequence[Promotion],
        blobs: Collection[str],
        check: Callable[[], None] = lambda: None,
    ) -> int:
        """Remove these versions, and these blobs, which no kept version needs. Called only when the target
        shows a newer version, and again until it has succeeded: what is gone already is fine. `check` is
        called before each removal, and raises once another process may be at work. Returns how much was
        removed."""


# --- pipelines and run-state ---------------------------------------------------------


class RunStates(Protocol):
    """Where the records of nodes are kept: the one place of an environment that decides."""

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> KnownNodes:
        """What a pass begins with; it may hold more nodes than were asked for."""

    def own(self, run_id: str) -> dict[str, Own]:
        """What a run has recorded of its nodes."""

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Head | None:
        """The newest success on the branch with this hash and this code, unless it was reverted."""

    def was_reverted(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> bool:
        """Is a success on the branch with this hash and this code on record that was reverted?"""

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


class PipelineRuns(Protocol):
    """Records of pipeline runs, and the checksums of files that they keep."""

    def begin(self, request: BeginPass, dead: Callable[[str], bool]) -> Begun: ...
    def end(self, request: EndPass, skips: Skips | None = None) -> EndedPass: ...
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


class InputVersions(Protocol):
    """Versions of remote inputs: what identifies their content, without fetching it."""

    def of(self, uri: str) -> Mapping[str, Any]:
        """`uri` and an ETag, a version, a commit or a time of modification."""


Key = tuple[str, str]  # run, node


class RunStateBackend(Protocol):
    """Where node records are kept, by (run, node), unchanged. The caller decides who may write, and when;
    `branch` is where to look: a backend that does not keep them by branch ignores it."""

    names_commits: bool  # a record can say which commit its outputs are in

    def prepare(self, nodes: Sequence[Node]) -> Any:
        """Work that can be done before the lock is taken. None of it is visible yet."""

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


# --- branches ------------------------------------------------------------------------


class BranchReader(Protocol):
    """Read access to branches. A ref is a branch, a tag or the beginning of a commit's id,
    with `~N` for N commits earlier; RefNotFound if it names nothing."""

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


class BranchWriter(BranchReader, Protocol):
    """Commits on branches; also inside a transaction."""

    def create(self, name: str, at: str | None = None) -> Branch: ...
    def commit(self, new: NewCommit) -> Commit | Moved:
        """Moved if `expected` is not the head (any more). What changes nothing makes no commit: the
        answer is the head."""


class Branches(BranchWriter, Protocol):
    """Branches that can be changed. Each change is one transaction, with the governance entry of `why`."""

    def create(self, name: str, at: str | None = None, *, why: Justification | None = None) -> Branch:
        """At a ref; without one, a branch without entries. RefExists if the name is taken."""

    def delete(self, name: str, *, why: Justification, expected: str | None = None) -> Branch | Moved: ...
    def merge(
        self,
        proposal: Proposal,
        *,
        message: str,
        author: str,
        gated: bool = False,
        prefer: Preference | None = None,
        why: Justification | None = None,
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
        why: Justification | None = None,
    ) -> Merged | Moved:
        """Take back what one commit did."""

    def tag(
        self, name: str, ref: str, *, message: str, author: str, why: Justification | None = None
    ) -> Tag: ...
    def delete_tag(self, name: str, *, why: Justification) -> Tag: ...
    def protect(self, name: str, on: bool, *, why: Justification) -> Branch: ...


# --- announced objects ---------------------------------------------------------------


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
