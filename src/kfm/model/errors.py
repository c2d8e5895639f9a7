"""The errors that users see, in one tree.

The first line of a class docstring is the message; the rest is the page that
`kfm explain KFMnnn` prints. The hundreds digit of a code is the exit status of
the command (1 and 6 are both "the work failed": 1xx is kept for lint rules).
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class KfmError(Exception):
    """Something went wrong.

    The base of every error that kfm raises on purpose.
    """

    code: ClassVar[str] = "KFM600"
    exit_code: ClassVar[int] = 1
    remedy: ClassVar[str] = "Run the command again with --verbose and read the event log."

    def __init__(self, detail: str = "", *, remedy: str | None = None, **facts: Any) -> None:
        self.detail = detail
        self.facts = facts
        self._remedy = remedy
        super().__init__(self.message)

    @property
    def headline(self) -> str:
        return (type(self).__doc__ or "").strip().splitlines()[0]

    @property
    def message(self) -> str:
        return f"{self.headline} {self.detail}".strip() if self.detail else self.headline

    @property
    def own_remedy(self) -> str | None:
        """The remedy that this one was raised with; none: that of its class holds."""
        return self._remedy

    @property
    def way_out(self) -> str:
        return self._remedy or type(self).remedy

    def as_document(self) -> dict[str, Any]:
        """The JSON shape of an error: code, message, remedy, docs."""
        return {
            "code": self.code,
            "message": self.message,
            "remedy": self.way_out,
            "docs": f"docs/reference/errors.md#{self.code.lower()}",
        }


# --- 2xx: bad usage or configuration -------------------------------------------------


class UsageError(KfmError):
    """The command can't be carried out."""

    code = "KFM200"
    exit_code = 2
    remedy = "Read the command's --help."


class ConfigError(KfmError):
    """The configuration is not valid.

    The message names the file, the line and, where there is one, the nearest
    word that would have been right.
    """

    code = "KFM201"
    exit_code = 2
    remedy = "Correct the named line; `kfm config check` reads it again."

    def __init__(
        self,
        detail: str = "",
        *,
        remedy: str | None = None,
        file: str | None = None,
        line: int | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(detail, remedy=remedy, **facts)
        self.file = file
        self.line = line

    @classmethod
    def at(cls, file: object, line: int, sentence: str) -> Self:
        """A mistake in one line of a file."""
        return cls(f"{file}:{line}: {sentence}", file=str(file), line=line)

    @classmethod
    def of_file(cls, file: object, sentence: str) -> Self:
        """A mistake that no line of the file shows: it is too large, or can't be read."""
        return cls(f"{file}: {sentence}", file=str(file))

    @property
    def place(self) -> dict[str, Any]:
        """File and line, as far as they are known."""
        known = {"file": self.file, "line": self.line}
        return {name: value for name, value in known.items() if value is not None}

    def as_document(self) -> dict[str, Any]:
        return {**super().as_document(), **self.place}


class ConfigNotFound(ConfigError):
    """No configuration file was found."""

    code = "KFM202"
    remedy = "Make one with `kfm init`, or name one with --config or KFM_CONFIG."


class SecretNotFound(ConfigError):
    """A secret that the configuration refers to was not found.

    Secrets are never written into a configuration: they are named as
    `env:NAME` or `file:PATH` and read when they are needed.
    """

    code = "KFM203"
    remedy = "Set the environment variable or create the file that the reference names."


class WindowError(UsageError):
    """The window is not valid.

    A window is an ISO 8601 duration (`P1D`, `PT6H`, `P1M`), which means the
    last complete one, a start and a duration (`2026-01-01/P1D`), or a start
    and an end. It must not begin in the future.
    """

    code = "KFM204"
    remedy = "Write it as P1D, PT6H, 2026-01-01/P1D or 2026-01-01/2026-01-08."


class ExtraMissing(UsageError):
    """This needs an extra that is not installed."""

    code = "KFM205"
    remedy = "Where kfm is installed: `pip install 'kfm-kernel[EXTRA]'`; pip keeps the kfm that is there."


class UnhashableInput(UsageError):
    """An input can't be hashed, so nothing was run.

    Hashed documents hold text, whole numbers within ±(2^53-1), true, false,
    null, lists, objects with text keys, and finite floats (as tagged decimal
    text). The message names the field.
    """

    code = "KFM206"
    remedy = "Turn the named field into text, a whole number or a finite float."


class ContractError(ConfigError):
    """A data contract can't be read."""

    code = "KFM207"
    remedy = "Correct the contract; the page on contracts lists what is supported."


class PolicyError(ConfigError):
    """A policy file can't be read."""

    code = "KFM208"
    remedy = "Correct the policy; `kfm gate test` checks policies against fixtures."


class PlanError(UsageError):
    """The plan file can't be used."""

    code = "KFM209"
    remedy = "Make a new plan with `kfm diff --plan FILE`."


class PipelineError(ConfigError):
    """The pipeline definition is not valid."""

    code = "KFM210"
    remedy = (
        "Correct the file; `kfm pipeline check FILE` checks a pipeline of nodes. A source names a function "
        "with one parameter, the context: path/to/file.py:function."
    )


class PluginConflict(ConfigError):
    """Two plugins have the same name."""

    code = "KFM211"
    remedy = "Uninstall one of the two packages that are named."


class MalformedJson(UsageError):
    """The JSON is not valid or is ambiguous.

    Refused are also NaN, whole numbers beyond ±(2^53-1), one key twice in an
    object, half surrogate pairs, and nesting beyond the limit.
    """

    code = "KFM212"
    remedy = "Correct the document as the message says."


class WebhookMalformed(UsageError):
    """The webhook body is not valid.

    It is an unambiguous JSON object: no name twice, no NaN, UTF-8. Signed with
    X-KFM-Signature it has `source_id`, `trigger`, `event_type` and `sent_at`,
    may have `request_uuid`, `dry_run`, `metadata` and `integrity`, and nothing
    else.
    """

    code = "KFM220"
    remedy = "Correct the sender as the detail says; `kfm webhook sign` makes a valid body."


class RefNotFound(UsageError):
    """There is no such branch, tag or commit.

    A ref is the name of a branch, the name of a tag, or the beginning of a
    commit's id (at least four characters, as many as make it unique);
    `~2` behind it means two commits earlier.
    """

    code = "KFM230"
    remedy = "`kfm branch list` names the branches and tags, `kfm branch log REF` the commits."


class RefNameInvalid(UsageError):
    """The name is not valid.

    Names of branches and tags have letters, digits and `. _ - + = @`, in parts
    between slashes; no part begins or ends with a dot or begins with a dash,
    two dots are never adjacent, and none ends with `.lock`.
    """

    code = "KFM231"
    remedy = "Choose a plain name, like `main` or `runs/2026-03-14`."


class RefExists(UsageError):
    """A branch or tag of that name exists already; it was not changed."""

    code = "KFM232"
    remedy = "Choose another name; `kfm branch list` shows those in use."


# --- 3xx: refused by governance or a guardrail ---------------------------------------


class Refused(KfmError):
    """Refused by governance."""

    code = "KFM300"
    exit_code = 3
    remedy = "Ask the person or team that the message names; `kfm status` shows what it is blocked by."


class GateDenied(Refused):
    """A policy gate refused this run.

    The record of the invocation names the gate and the ids of the policies that
    decided. A refusal consumes neither key nor budget: once the cause is
    lifted, the same command runs. A rule is lifted by declaring or recording
    what it asks for, never by a force; the page on policies lists every
    shipped rule, and `kfm gate test` applies the policies to examples.
    """

    code = "KFM301"
    remedy = "Do what the rule asks for, then run the same command."


class Halted(Refused):
    """A CARE or sovereignty rule was violated; the run was halted and the dataset paused.

    A review entry and a postmortem entry were written to the audit
    log. Nothing was promoted. Until a second person has approved the release
    of the halted run, no run of the dataset begins, even if the pause is lifted.
    """

    code = "KFM302"
    remedy = (
        "Review it; a second person approves its release (`kfm quarantine resume RUN --rationale TEXT`, "
        "`kfm approvals approve`), then lift the pause with "
        "`kfm switch set running --dataset ID --rationale TEXT`."
    )


class ContractViolated(Refused):
    """The staged data breaks its contract; nothing was promoted.

    The event log of the run names every failed check, with the first places
    where it fails. No force passes a contract.
    """

    code = "KFM303"
    remedy = "Correct the data or its contract, then run the same command."


class RationaleRequired(Refused):
    """This needs a rationale."""

    code = "KFM304"
    remedy = "Give --rationale TEXT, and --ticket ID where the message asks for it."


class BudgetSpent(Refused):
    """The retry budget of this run is spent.

    The first attempts need no reason. Each later one needs a rationale and a
    ticket, which are kept in the audit log.
    """

    code = "KFM305"
    remedy = "Run it again with --rationale TEXT and --ticket ID."


class PlanDrifted(Refused):
    """The plan is out of date; nothing was done.

    A plan of a run says what would be published, a plan of a replay which
    units would come back, each with its version. If that has changed since it
    was made, it is not carried out in part.
    """

    code = "KFM306"
    remedy = "Make a new plan, with `kfm diff` or `kfm replay dry-run`, read it, apply that."


class PersonNeeded(Refused):
    """The last attempt may have acted outside; a person has to see what it did.

    Its source is declared `idempotent: false`, or its pipeline made a call
    that is declared idempotent=False, and the attempt did not succeed. Doing
    that twice may do harm, so no machine tries it again.
    """

    code = "KFM314"
    remedy = "See what it has done outside; then run it again with --now --rationale TEXT."


class WorkQuarantined(Refused):
    """The work is quarantined, and its inputs are unchanged.

    A machine tries it again once upstream has changed. A person may do so
    before, or request its release.
    """

    code = "KFM315"
    remedy = "Correct the cause (`kfm quarantine list`); a person runs it again with --now --rationale TEXT."


class SwitchThrown(Refused):
    """Blocked by a kill switch."""

    code = "KFM307"
    remedy = "Lift it with `kfm switch set running … --rationale TEXT`."


class RightsMissing(Refused):
    """The rights of this dataset are not declared, so it is not published.

    A licence and a CARE label travel with every published record. Without
    them nothing is published.
    """

    code = "KFM308"
    remedy = "Declare rights.license and rights.care.label for the dataset."


class SecretInData(Refused):
    """The data holds a secret of this configuration, so none of it was kept.

    Before bytes are stored they are searched for every value that an
    `env:NAME` or `file:PATH` of the configuration stands for: as it is, in
    base64, in hex, quoted. Upstream may repeat the key it was asked with, or a
    pipeline may write it to its output. The secret is exposed: replace it.
    """

    code = "KFM309"
    remedy = "Replace the secret, and remove it from the data: with a pipeline, or where upstream repeats it."


class ReleaseDiffers(Refused):
    """This release exists already, with other content; it was not changed.

    A published release is not changed without a record. The ledger has
    advanced since it was made, or its files were edited: `kfm release --verify`
    shows which.
    """

    code = "KFM310"
    remedy = "Choose another version, or replace it with --replace --rationale TEXT."


class NotApproved(Refused):
    """Not approved.

    A requester can't approve their own request: a second person does, and an
    account and a token of one person count as one. An approval covers exactly
    the state that was requested, and only once. What no approval could lift,
    such as blocked data or withdrawn consent, can't be requested.
    """

    code = "KFM311"
    remedy = "`kfm quarantine show ID` shows what is quarantined and which requests are open."


class DataWithdrawn(Refused):
    """This data was withdrawn, so it is not published.

    A person took it down. No run, retry, replay or force brings it back;
    lifting the withdrawal does, and that is kept in the audit log, too.
    """

    code = "KFM350"
    remedy = "`kfm dataset show ID` shows what is withdrawn, why, and how that is lifted."


class ContentGone(Refused):
    """That version holds content that was withdrawn, purged or collected, so it can't be put back."""

    code = "KFM351"
    remedy = "Choose another version: `kfm dataset show ID` lists those that can be put back."


class RoleMissing(Refused):
    """Permission denied: the caller lacks the required role.

    The configuration says under `people:` who may read, operate and approve.
    The caller is identified by the token in KFM_TOKEN, else by the account
    that runs the command; an unknown token is refused, whatever the account
    may do. The refusal is in the audit log.
    """

    code = "KFM312"
    remedy = "Ask a person who has the role; `kfm whoami` shows who you are here, and how that is known."


class ReplayTooLarge(Refused):
    """The replay exceeds the limit of units per replay; nothing was done.

    The limit is `ingest.replays_max`. It keeps a selection that was meant to be
    small from replaying everything that ever failed.
    """

    code = "KFM313"
    remedy = "Narrow the selection, or take a part of it with --limit; the rest is another replay."


class WebhookRefused(Refused):
    """The webhook was refused: its signature, its source or its time is not valid.

    The same answer is given where there is no such source, so that it does not
    reveal which exist. The reason is in `webhook_failures.jsonl` in the state
    folder, by the hash of the body.
    """

    code = "KFM320"
    remedy = (
        "Compare the sender's secret with `webhook.secrets` of the source, and its clock with ours; "
        "`kfm webhook send` shows a request that passes."
    )


class WebhookReused(Refused):
    """Duplicate request: it was accepted before.

    A `request_uuid` (or the id of a Standard Webhook, or the body itself) is
    good for one use at its source. The answer names the request that used it
    and, once there is one, its run.
    """

    code = "KFM321"
    remedy = "None is needed if it was sent twice. For another update send another `request_uuid`."


class BranchProtected(Refused):
    """The branch is protected: it changes only by a merge or a revert that passes its gates.

    Nothing was written. Commit to another branch and merge that one.
    """

    code = "KFM330"
    remedy = "Work on a separate branch, then `kfm branch merge NAME --into BRANCH --rationale TEXT`."


# --- 4xx: a backend is unavailable or refuses us -------------------------------------


LEDGER = "ledger"  # the fact `backend` of an error of the ledger's own database


class BackendUnavailable(KfmError):
    """A backend is unavailable."""

    code = "KFM400"
    exit_code = 4
    remedy = "Run `kfm doctor`."


def outage_of(error: BaseException) -> dict[str, str]:
    """For the `extra` of a log record about an error: what is unavailable, if it is the ledger."""
    backend = error.facts.get("backend") if isinstance(error, BackendUnavailable) else None
    return {"outage": backend} if backend else {}


class StoreTooNew(BackendUnavailable):
    """The database was made by a newer kfm.

    Each ledger says which migration a kfm must know to write to it. An older
    one is refused when it starts; one that was at work when the ledger was
    upgraded is refused by its next transaction, of which nothing is kept, and
    ends. What it had begun is taken over when its leases have lapsed.
    """

    code = "KFM401"
    remedy = "Upgrade kfm on this machine, and start it again; this one has changed nothing since."


class StoreUnsafe(BackendUnavailable):
    """The database can't be used safely here.

    kfm refuses a SQLite library with the WAL-reset bug, a durability setting
    weaker than WAL + FULL, a PostgreSQL server without fsync or synchronous
    commit, and a SQLite file on a network file system.
    """

    code = "KFM402"
    remedy = "Move the state to a local disk, or upgrade the library, as the message says."


class StoreBusy(BackendUnavailable):
    """The database did not become free in time."""

    code = "KFM403"
    remedy = "Another process has held it for unusually long: `kfm status` names the work in flight."


class UpstreamUnavailable(BackendUnavailable):
    """The upstream source is unavailable or refused the request."""

    code = "KFM404"
    remedy = "Try again later; `kfm doctor` tests the address."


class StoreCorrupt(BackendUnavailable):
    """Stored data is corrupt: what was read is not what was written.

    An object is replaced when the same bytes come again: by the run that fetches
    them, or by the node that makes them (`kfm pipeline run … --verify`).
    `kfm doctor --deep` reads every object and names the damaged ones, each with
    its way out.
    """

    code = "KFM405"
    remedy = "Stop, copy the state folder, and run `kfm doctor --deep`."


class TargetUnavailable(BackendUnavailable):
    """A publishing target can't be written; the version is promoted, and the target is updated later."""

    code = "KFM406"
    remedy = "Make the target writable, then run `kfm project`."


class CollectorRefused(BackendUnavailable):
    """A lineage collector or a notification hook rejected an event; the event is kept.

    It answered that the event itself is at fault (HTTP 400, 413, 422 and the
    like). The event, and what follows it about the same run or cause, waits a
    day before it is offered again; everything else goes on.
    """

    code = "KFM407"
    remedy = "Read the collector's log; `kfm lineage show RUN --events` prints the event."


class CircuitOpen(BackendUnavailable):
    """Circuit open: the provider failed repeatedly.

    After several failures in a row (three, unless `providers` says otherwise) the
    provider is not called for its cool-down (300 seconds); then a single probe tests
    whether it has recovered. A call that is refused here was not made and counts as
    no attempt. `not_before_ms` is the time from which the next one may be made.
    """

    code = "KFM408"
    remedy = "Try again at the time that is named; earlier calls are refused."


class CallTimedOut(BackendUnavailable, TimeoutError):
    """A call timed out.

    The limit is the call's own `timeout=` or `attempt_timeout=`, or what was
    left to the call around it; the message says which. Code in a process of
    its own was killed. Code in a thread can't be: it was abandoned, runs on
    until it ends by itself, and the call is not tried again.
    """

    code = "KFM409"
    remedy = "Give the call more time, or find out why the provider is slow."


class ObjectMissing(UpstreamUnavailable):
    """The announced object does not exist.

    A store may show an object a little later than it announces it, and
    removes some again soon. So the unit is retried within its retry budget;
    after that it waits for a replay.
    """

    code = "KFM410"
    remedy = "If upstream has removed it for good, leave the unit; else replay it when the object is back."


class AddressRefused(UpstreamUnavailable):
    """The address is not public, and the configuration does not name it.

    Upstream redirects into a private network, or its name leads there. What
    answers at such an address was not meant for publication, so nothing is
    sent to it. A source whose own address is private needs no permission; a
    name that only leads to a private address does, since its name server may
    let it lead elsewhere tomorrow.
    """

    code = "KFM411"
    remedy = "If the data really is there, name the host or its range under the source's `allow`."


class LedgerMoved(BackendUnavailable):
    """The ledger is moving, or has moved, to another database.

    Nothing is written here any more: `kfm store copy` has put a fence into this
    database, for every process and every version of kfm. Work that was under
    way is tried again on the new ledger once its lease is over.
    """

    code = "KFM412"
    remedy = (
        "Set `store` to the address of the new ledger, and start what works with it again. If the copy was "
        "interrupted, run `kfm store copy --to ADDRESS` again, with the address that is named here; with "
        "--abandon it is given up."
    )


class LedgerBehind(BackendUnavailable):
    """The ledger has to be migrated first.

    On a server no process makes a change by itself that processes of the kfm
    before can't live with: `kfm migrate --plan` shows what is to be done, and
    who is at work.
    """

    code = "KFM413"
    remedy = "Run `kfm migrate --plan`, then `kfm migrate`."


class BranchesUnavailable(BackendUnavailable):
    """The branch server is unavailable or refused the request.

    The message has the server's answer. A change is there wholly or not at
    all; `kfm branch log NAME` shows which.
    """

    code = "KFM430"
    remedy = "Check `lakefs` in the configuration, and whether the server runs; then try again."


# --- 5xx: busy -----------------------------------------------------------------------


class Busy(KfmError):
    """Already running."""

    code = "KFM500"
    exit_code = 5
    remedy = "Wait until it ends; `kfm status` shows it."


class LockHeld(Busy):
    """The lock is held by another run."""

    code = "KFM501"


class WaitsUntil(Busy):
    """An attempt is promised for a later time.

    A failed run is tried again by itself, not before the time that its
    retry rules or its provider name. Without a terminal, `kfm run` is a
    machine and obeys that time.
    """

    code = "KFM503"
    remedy = "None is needed. A person who can't wait gives --now --rationale TEXT."


class DataNotYet(WaitsUntil):
    """Not yet: the data has not come.

    Upstream gave an answer that its source lists under `not_yet`. The window
    is asked for again, slowly, until its time is over; then it is overdue.
    No attempt was spent.
    """

    code = "KFM504"
    remedy = (
        "None is needed: `kfm serve`, or `kfm schedule run-due`, asks again. "
        "`kfm requests list` shows what waits."
    )


class OlderAtWork(Busy):
    """Processes of an older kfm are at work in the ledger.

    A migration would take away what they need. From migration 47 on they
    would notice and end; what they have claimed would wait for its lease.
    """

    code = "KFM505"
    remedy = "Stop them, or let them be stopped: `kfm migrate --stop-older --rationale TEXT`."


class LostLease(Busy):
    """The lease was lost; nothing this run did after that is visible.

    Another run has taken over, or the run was abandoned, since its function
    did not end in time after a stop; then the ledger has the run as cancelled.
    """

    code = "KFM502"
    remedy = "None is needed: the successor continues. `kfm runs` shows it."


class BranchMoved(Busy):
    """The branch moved while this was being prepared; nothing was written."""

    code = "KFM530"
    remedy = "Look at the branch (`kfm branch log NAME`), then try again."


# --- 6xx: the work failed ------------------------------------------------------------


class WorkFailed(KfmError):
    """The work failed."""

    code = "KFM601"


class IllegalTransition(KfmError):
    """Illegal state transition."""

    code = "KFM602"
    remedy = "This is a defect in kfm or in an extension: please report it."


class SchemaViolation(KfmError):
    """A record does not match its schema; nothing was written."""

    code = "KFM603"
    remedy = "This is a defect in kfm or in an extension: please report it."


class LimitExceeded(KfmError):
    """A limit was exceeded."""

    code = "KFM604"
    remedy = "Raise the named limit in the configuration if the size is expected."


class ChecksumMismatch(KfmError):
    """Checksum mismatch: the bytes received are not the bytes announced."""

    code = "KFM605"
    remedy = "The source changed while it was read, or is damaged: run again."


class PathConflict(KfmError):
    """Two pieces of work would publish the same path."""

    code = "KFM606"
    remedy = (
        "Give one of the sources another `path` template; where it is one source that was renamed, name its "
        "former id in `formerly`."
    )


class PipelineFailed(KfmError):
    """The pipeline function raised an error."""

    code = "KFM607"
    remedy = "Read the event log of the run; the traceback is there."


class UnserialisableValue(KfmError):
    """A node returned a value that can't be stored.

    A node's result is stored, so that other nodes can read it after the process has ended.
    """

    code = "KFM611"
    remedy = "Return plain values or bytes, or write a file with ctx.publisher.write_file."


class NodesFailed(KfmError):
    """Nodes of the pipeline failed."""

    code = "KFM612"
    remedy = "`kfm graph RUN` shows which; correct the cause and run again: completed nodes are not repeated."


class RunTimedOut(KfmError, TimeoutError):
    """The run took longer than it may.

    The limit is `limits.run_seconds`, or `run_seconds` of the source. Its
    functions were told, as by a stop; the attempt has failed and is retried
    within its budget.
    """

    code = "KFM613"
    remedy = "Find out what takes so long; where it has to, raise `run_seconds` of the source."


class NotPublishedTogether(KfmError):
    """Another window failed, and these windows are published together or not at all.

    A backfill with `--together` is one promotion. Its windows were made one after
    the other; one of them failed or was refused, so that none is published. This
    one did not fail: its attempt is not counted.
    """

    code = "KFM614"
    remedy = (
        "Correct the window that failed and ask for all of them again, or leave out what fails with "
        "`--leave-out-failed`."
    )


class DryRunViolated(KfmError):
    """Something changed during a dry-run.

    A dry-run reads and compares; it must leave the state, the published tree and
    every backend as they were.
    """

    code = "KFM608"
    remedy = "Look for a pipeline that writes without its publisher, or for another process that writes."


class ChainBroken(KfmError):
    """The audit log's hash chain is broken.

    Its entries are chained by their hashes, and one of them does not fit: it
    was edited, deleted, moved or added by something other than kfm, or the
    chain is not the one that was anchored. The rows before the named one are
    intact.
    """

    code = "KFM609"
    remedy = "Copy the database as it is now, then compare with a backup; `kfm audit verify` shows more."


class SigningFailed(KfmError):
    """The signing command failed; nothing was made.

    It is run without a shell, gets the attestation on its standard input, and
    must print the signature on its standard output and end with 0.
    """

    code = "KFM610"
    remedy = "Try the command by hand: COMMAND < attestation.intoto.json."


class DataOverdue(KfmError):
    """Expected data has not come by its time.

    An incident of kind `overdue` has this code: a window of a source was expected, and is neither
    published nor dismissed. Nothing failed.
    """

    code = "KFM640"
    remedy = (
        "See whether upstream has it; then ask for the window again with `kfm run --source ID --window W`."
    )


class TakenDown(KfmError):
    """Data was taken down.

    An incident of kind `withdrawn` has this code, from the take-down until every target shows it.
    """

    code = "KFM641"
    remedy = "`kfm project` brings the targets up to date."


class MergeConflict(KfmError):
    """Both sides changed the same paths in different ways; nothing was written.

    Each path is named with its conflict: both added it, both changed
    it, one changed what the other removed, or it would have to be a file and a
    folder at once. A merge or a revert is done wholly or not at all.
    """

    code = "KFM630"
    remedy = "Change the named paths on the source branch until they agree, or give --prefer source|target."


class Cancelled(KfmError):
    """The run was cancelled."""

    code = "KFM930"
    exit_code = 130
    remedy = "Run it again when you are ready; finished work is not repeated."

    @property
    def headline(self) -> str:
        return f"The {self.facts.get('stopped', 'run')} was cancelled."


def code_on_record(error: KfmError) -> str:
    """The code that a run keeps: one for every run that was stopped on purpose."""
    return "CANCELLED" if isinstance(error, Cancelled | SwitchThrown) else error.code


def all_errors() -> list[type[KfmError]]:
    """Every error class, by code."""

    def below(cls: type[KfmError]) -> list[type[KfmError]]:
        return [cls, *(leaf for child in cls.__subclasses__() for leaf in below(child))]

    return sorted(below(KfmError), key=lambda cls: cls.code)
