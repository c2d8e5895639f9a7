"""Run-state: what is kept of each node of a pipeline, whether it must run again, and pipeline runs."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.energy import Energy
from kfm.model.errors import SchemaViolation, UsageError
from kfm.model.keys import node_attempt_id, uuid5, uuid_bytes
from kfm.model.records import Lock, Node, NodeOutcome, Output, Record
from kfm.model.runs import LineageEvent, check_summary
from kfm.model.times import parse_rfc3339, rfc3339

STORE_MARK = "run_state"  # the ledger's mark that names the store of an environment
MAIN = "main"  # the branch that a pass works on, if nothing else is said
NOTHING_CHECKED = {"checks": 0, "passed": 0, "failed": 0}
PassState = Literal["running", "success", "partial", "failed", "cancelled"]
SkipScope = Literal["branch", "run"]


class Head(NamedTuple):
    """What a branch knows of a node: the newest success whose outputs stand there."""

    run_id: str
    inputs_hash: str
    code_sha: str | None
    outputs_hash: str
    outputs: str  # JSON; read only where needed
    rerun: str | None = None  # why it must not be trusted: it, or what it reads from, was reverted
    dataset_id: str = ""


class Own(NamedTuple):
    """What a run has recorded of a node."""

    outcome: NodeOutcome
    inputs_hash: str
    code_sha: str | None
    outputs_hash: str
    outputs: str | None  # None: skipped, and the run that made them has another record of the node since
    attempt: int
    skipped_because: str | None


Graph = tuple[tuple[str, tuple[str, ...]], ...]


class Pass(Record, frozen=True):
    """One execution of a pipeline's graph on a branch."""

    run_id: str
    pipeline_id: str
    branch: str
    state: PassState
    started_at_ms: int
    worker_id: str
    fence: int
    attempt: int = 1
    ended_at_ms: int | None = None
    graph: Graph = ()  # node → what it reads from, in order
    counts: dict[str, int] = {}
    commit: str | None = None  # what it left on the branch
    error_code: str | None = None


class Fence(msgspec.Struct, frozen=True):
    """The lock under which a record is written; a process that lost it writes nothing."""

    scope: str
    fence: int


def pipeline_scope(pipeline_id: str, branch: str) -> str:
    """The lock of a pass over a whole pipeline."""
    return f"pipeline:{pipeline_id}@{branch}"


def node_scope(node: str, branch: str) -> str:
    """The lock of a node that runs alone."""
    return f"node:{node}@{branch}"


class KnownNodes(NamedTuple):
    """What the store has on the nodes of a pass."""

    own: dict[str, Own]  # of this very run
    heads: dict[str, Head]  # of the branch


class Skips(msgspec.Struct, frozen=True):
    """The nodes that a pipeline run skipped, all in one: only their ids differ."""

    run_id: str
    branch: str
    pipeline_id: str
    rows: list[tuple[str, str, str | None, str, str]]  # node, inputs hash, code, the run that made it, reason
    restored: Sequence[Head] = ()  # results of earlier runs: the branch shall show them again
    # All that the branch knew between these two names when its head was this: copied as it is.
    whole: tuple[str, str, str | None] | None = None


class BeginPass(Record, frozen=True):
    run_id: str
    pipeline_id: str
    branch: str
    graph: Graph
    worker_id: str
    lease_ms: int
    scope: str
    from_branch: str | None = None  # where the branch begins, if it is new
    fence: int | None = None  # the lock that a governed run holds already
    lone: str = ""  # the one node that this is about: others of its run come by themselves, under own locks
    parent: "Parent | None" = None  # the governed run that it is a part of
    emit: "BeginEvents | None" = None  # asked inside the transaction


class Begun(Record, frozen=True):
    """The start of a pipeline run; none if another process holds the lock (`held_by`), or if that of the
    governed run that it is a part of was lost."""

    fence: int = 0
    attempt: int = 0
    held_by: Lock | None = None
    lost: bool = False
    started_at_ms: int = 0
    branch_head: str | None = None  # where the branch is, after what was reverted has been taken back


class EndPass(Record, frozen=True):
    run_id: str
    pipeline_id: str
    scope: str
    fence: int
    branch: str
    state: PassState
    counts: dict[str, int]
    author: str
    error_code: str | None = None
    commits: bool = True  # what its nodes made goes onto the branch
    releases: bool = True  # the lock; a governed run keeps its own
    policy_epoch: int | None = None  # nothing is committed if it has moved since
    lone: str = ""
    emit: "EndEvents | None" = None  # asked inside the transaction


class EndedPass(Record, frozen=True):
    landed: bool
    commit: str | None = None
    epoch_moved: bool = False


# --- the document --------------------------------------------------------------------------

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
Digest = Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0)]


class RunStateDocument(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A node's record as others read it: one row of a table, or one object on a branch."""

    dataset_id: Name
    run_id: Name
    lakefs_branch: Name
    inputs_hash: Digest
    validation_summary: dict[str, Any]
    outcome: NodeOutcome
    recorded_at: str
    attempt: Annotated[int, msgspec.Meta(ge=1)] = 1
    output_commit: str | None = None
    outputs: tuple[Output, ...] = ()
    skipped_because: str | None = None
    code_sha: str | None = None
    pipeline_id: str | None = None
    duration_ms: Count | None = None
    error_code: str | None = None
    error_message: str | None = None
    reason: str | None = None


_FIELDS = tuple(name for name in Node.__struct_fields__ if name != "recorded_at_ms")


def to_document(node: Node) -> dict[str, Any]:
    """Plain values by the names that everybody knows them by; what was not said is left out."""
    plain: dict[str, Any] = msgspec.to_builtins(
        RunStateDocument(
            recorded_at=rfc3339(node.recorded_at_ms), **{name: getattr(node, name) for name in _FIELDS}
        )
    )
    return plain


def from_document(document: Mapping[str, Any]) -> Node:
    try:
        read = msgspec.convert(dict(document), RunStateDocument)
    except msgspec.ValidationError as error:
        raise SchemaViolation(f"run-state: {error}.") from None
    check_summary(read.validation_summary)
    if (read.outcome == "skipped") != (read.skipped_because is not None):
        raise SchemaViolation("run-state: a skipped node, and no other, names the run that made its result.")
    return Node(
        recorded_at_ms=parse_rfc3339(read.recorded_at), **{name: getattr(read, name) for name in _FIELDS}
    )


# --- outputs -------------------------------------------------------------------------------

_OUTPUTS = msgspec.json.Decoder(tuple[Output, ...])
NO_OUTPUTS = "[]"


def outputs_text(outputs: Sequence[Output]) -> str:
    return msgspec.json.encode(outputs).decode()


def outputs_of(text: str) -> tuple[Output, ...]:
    return _OUTPUTS.decode(text)


def is_sole_object(outputs: str, digest: str, size: int | None) -> bool:
    """These outputs, whose hash is the digest, are one object of this size: seen in the text of many at once,
    where reading each would take longer than all else."""
    return outputs.endswith(f'"checksum":"{digest}","size":{size},"kind":"object","asset":null}}]')


def outputs_hash(outputs: Sequence[Output]) -> str:
    """What a dependant sees of a node's outputs: one that is alone speaks for itself."""
    if len(outputs) == 1:
        return outputs[0].checksum
    named = sorted((each.name, each.checksum) for each in outputs)
    return "sha256:" + sha256(canonical_bytes([list(pair) for pair in named])).hexdigest()


def shows_result_of(skipped: Node, maker: Node) -> bool:
    """The maker's record still is of the result that the other skipped the node for. A run that is resumed
    overwrites its record: with what it made of other inputs, with a failure, with a skip."""
    return (
        maker.outcome == "success"
        and maker.inputs_hash == skipped.inputs_hash
        and maker.code_sha == skipped.code_sha
    )


# --- the decision --------------------------------------------------------------------------

Verdict = Literal["run", "skip", "done"]
UNCHANGED = "unchanged"  # why nearly every node is skipped
INPUTS_CHANGED, CODE_CHANGED = "inputs changed", "code changed"
REVERTED = "its outputs were reverted"


class NodeDecision(msgspec.Struct, frozen=True):
    """Run it; skip it, since another run made its result; or leave it: this run has done it already."""

    verdict: Verdict
    reason: str
    made_by: str | None = None  # the run whose result it is
    outputs_hash: str = ""
    outputs: str = NO_OUTPUTS
    earlier: bool = False  # a newer run of it made something else, which stands on the branch now


Missing = Callable[[str], str | None]  # outputs → which of them is gone or altered, in words
# The newest success of a node with this hash and this code.
Elsewhere = Callable[[str, str, str | None], Head | None]
Reverted = Callable[[str, str, str | None], bool]  # was such a success reverted


def decide(
    node: str,
    inputs_hash: str,
    code_sha: str | None,
    own: Own | None,
    head: Head | None,
    missing: Missing,
    elsewhere: Elsewhere,
    scope: SkipScope = "branch",
    asked: str | None = None,
    reverted: Reverted = lambda _node, _inputs_hash, _code_sha: False,
) -> NodeDecision:
    """Must this node run? `asked`: the reason, if it is to run in any case."""
    if asked is not None:
        return NodeDecision("run", asked)
    gone = None
    if (
        own is not None
        and own.outcome in ("success", "skipped")
        and own.outputs is not None
        and own.inputs_hash == inputs_hash
        and own.code_sha == code_sha
    ):
        gone = missing(own.outputs)
        if gone is None:
            return NodeDecision(
                "done", "done already in this run", own.skipped_because, own.outputs_hash, own.outputs
            )
    if scope == "branch" and head is not None:
        if head.rerun is not None:
            return NodeDecision("run", head.rerun)
        if stands(head, inputs_hash, code_sha):
            gone = missing(head.outputs)
            if gone is None:
                return NodeDecision("skip", UNCHANGED, head.run_id, head.outputs_hash, head.outputs)
        older = elsewhere(node, inputs_hash, code_sha)
        if older is not None and missing(older.outputs) is None:
            why = "unchanged since an earlier run"
            return NodeDecision("skip", why, older.run_id, older.outputs_hash, older.outputs, earlier=True)
    why = _why(inputs_hash, own, head if scope == "branch" else None, gone)
    # The branch knows what a revert has brought back: other inputs than these, which had their result.
    if why in (INPUTS_CHANGED, CODE_CHANGED) and reverted(node, inputs_hash, code_sha):
        why = REVERTED
    return NodeDecision("run", why)


def stands(head: Head, inputs_hash: str, code_sha: str | None) -> bool:
    """What the branch knows was made of these inputs by this code, unless it was reverted."""
    return head.inputs_hash == inputs_hash and head.code_sha == code_sha and head.rerun is None


def _why(inputs_hash: str, own: Own | None, head: Head | None, gone: str | None) -> str:
    if gone is not None:
        return gone
    if own is not None and own.outcome in ("failed", "partial"):
        return f"{own.outcome} before"
    known = own or head
    if known is None:
        return "first run"
    return INPUTS_CHANGED if known.inputs_hash != inputs_hash else CODE_CHANGED


# Run ids that people choose need not be UUIDs; OpenLineage knows runs by nothing else.
_NAMED_RUNS = "6b3e0f5c-8f0f-5d6b-9a53-3f2f4f1d7c11"
PASS = "pass"

TryState = Literal["running", "success", "partial", "failed", "cancelled", "aborted"]


class Parent(NamedTuple):
    """The governed run that a pass is a part of."""

    job: str
    dataset_id: str


class PassTry(NamedTuple):
    """One attempt at a pass."""

    run_id: str
    pipeline_id: str
    branch: str
    attempt: int
    started_at_ms: int
    parent: Parent | None = None


class PassEnd(NamedTuple):
    """How it went. `skipped` and `failed` name nodes; all others have records that tell of them."""

    state: TryState
    ended_at_ms: int
    counts: Mapping[str, int] = {}
    skipped: Sequence[str] = ()
    failed: Sequence[str] = ()
    commit: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class NodeDone(NamedTuple):
    """A node that was executed, with what only the pass knows of it."""

    node: Node
    document: bytes = b""  # what its inputs_hash was made of
    energy: Energy | None = None


class PassFigures(Record, frozen=True):
    """A row of the ledger: one attempt at a pass, and the records that it wrote."""

    run_id: str
    attempt: int
    pipeline_id: str
    branch: str
    state: TryState
    started_at_ms: int
    ended_at_ms: int | None = None
    success: int = 0
    failed: int = 0
    partial: int = 0
    skipped: int = 0
    worked_ms: int = 0  # of the nodes that were executed, one after the other
    dataset_id: str | None = None  # of the governed run that it was a part of


Left = tuple[PassTry, str]  # an attempt whose process is gone, and the code that says why
BeginEvents = Callable[[PassTry, Sequence[Left]], Sequence[LineageEvent]]
EndEvents = Callable[[str | None, int], Sequence[LineageEvent]]  # the commit, and when


def run_uuid(run_id: str) -> str:
    """A run's id where only UUIDs are known."""
    try:
        uuid_bytes(run_id)
    except UsageError:
        return uuid5(_NAMED_RUNS, run_id)
    return run_id


def pass_id(run_id: str, attempt: int) -> str:
    """The lineage run of one attempt at a pass. A governed run has its own beside it."""
    return node_attempt_id(run_uuid(run_id), attempt, PASS)


def pass_node_id(run_id: str, attempt: int, node: str) -> str:
    """The lineage run of one node of that attempt: it executes a node once at most."""
    return uuid5(pass_id(run_id, attempt), node)
