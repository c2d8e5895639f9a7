"""Builds a release: one pass over the ledger, every file, then the folder appears."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec

from kfm import __version__
from kfm.config.loader import source_date_epoch_ms
from kfm.model.contracts import contract
from kfm.model.errors import RationaleRequired, ReleaseDiffers, SigningFailed, UsageError
from kfm.model.records import (
    Invocation,
    InvocationOutcome,
    Justification,
    Record,
    Run,
    TriggerType,
    governance_entry,
)
from kfm.model.redaction import MASK_KEY, hidden_names, mask
from kfm.model.runs import Attempt, CallRetry, ChainLink
from kfm.model.times import rfc3339
from kfm.release import release_folder
from kfm.release.attestation import Origin, Parameters, statement
from kfm.release.distributions import installed
from kfm.release.release_folder import ATTESTATION, LEDGER, MANIFEST, SBOM, SIGNATURE, checked_version
from kfm.release.sbom import sbom
from kfm.release.verification import Verified, verify
from kfm.system import sync_folder
from kfm.telemetry.aggregates import Aggregates, DatasetNames, TimeBounds, visit, visit_passes
from kfm.telemetry.documents import document_bytes, document_line
from kfm.telemetry.exporter import PublicNames

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader


ENTRY = "release"  # the kind of its governance entries
CHAIN_PAGE = 1000


State = Literal["made", "replaced", "signed", "unchanged"]
EVERYTHING = TimeBounds()
FOLDER = "releases"  # beside the configuration
SIGN_SECONDS_MAX = 300
SIGNATURE_BYTES_MAX = 1024 * 1024
STDERR_SHOWN_CHARS = 300
PIPELINES_MAX = 10_000


class ReleaseOptions(Record, frozen=True):
    """What was asked for."""

    version: str
    parent: str  # the folder that holds releases
    bounds: TimeBounds
    actor: str
    unique: str  # names what is hidden until it is finished
    epoch_ms: int | None = None  # SOURCE_DATE_EPOCH
    replace: bool = False
    rationale: str | None = None


class Made(Record, frozen=True):
    state: State
    version: str
    path: str
    digest: str  # sha256:<hex> of the attestation, which names all other files by theirs
    signed: bool
    files: dict[str, str]  # name → sha256 hex


def make(
    wanted: ReleaseOptions,
    ledger: LedgerReader,
    store: Ledger,
    names: DatasetNames,
    origin: Origin,
    sign: Callable[[bytes], bytes] | None = None,
) -> Made:
    """Make it, or find that it is there already. The making is recorded in the audit log."""
    if wanted.replace and not (wanted.rationale or "").strip():
        raise RationaleRequired("Replacing a release needs --rationale TEXT.")
    target = os.path.join(wanted.parent, wanted.version)
    with release_folder.workplace(wanted.parent, wanted.version, wanted.unique) as work:
        made = os.path.join(work, "release")
        os.mkdir(made)
        _write_all(wanted, ledger, names, origin, work, made)
        digests = release_folder.digests_of(made)
        attested = _read(os.path.join(made, ATTESTATION))
        state: State
        state, before = _compared(wanted, target, digests)
        already = os.path.lexists(os.path.join(target, SIGNATURE))
        if sign is not None and not (state == "unchanged" and already):
            signature = sign(attested)
            state = _signed(state, signature, work, made, target)
        if state == "made" and not release_folder.show(made, target):
            state, before = _compared(wanted, target, digests)
        if state == "replaced":
            release_folder.exchange(made, target, os.path.join(work, "before"))
    result = Made(
        state=state,
        version=wanted.version,
        path=target,
        digest=f"sha256:{digests[ATTESTATION]}",
        signed=os.path.lexists(os.path.join(target, SIGNATURE)),
        files=digests,
    )
    _record(result, wanted, store, before)
    return result


def _signed(state: State, signature: bytes, work: str, made: str, target: str) -> State:
    if state != "unchanged":
        release_folder.write_file(os.path.join(made, SIGNATURE), signature)
        return state
    fresh = os.path.join(work, SIGNATURE)
    release_folder.write_file(fresh, signature)
    os.rename(fresh, os.path.join(target, SIGNATURE))
    sync_folder(target)
    return "signed"


def _compared(wanted: ReleaseOptions, target: str, digests: dict[str, str]) -> tuple[State, str | None]:
    """What is to be done about what is there; and what was attested there before."""
    if not os.path.lexists(target):
        return "made", None
    there = release_folder.digests_of(target) if os.path.isdir(target) and not os.path.islink(target) else {}
    before = there.get(ATTESTATION)
    if there == digests:
        return "unchanged", before
    if not wanted.replace:
        differing = sorted(name for name in {*there, *digests} if there.get(name) != digests.get(name))
        raise ReleaseDiffers(
            f"{target} differs in {', '.join(differing[:10]) or 'everything'}.", files=differing
        )
    return "replaced", before


def _write_all(
    wanted: ReleaseOptions,
    ledger: LedgerReader,
    names: DatasetNames,
    origin: Origin,
    work: str,
    made: str,
) -> None:
    chain = last_link(ledger, wanted.bounds)
    aggregates = Aggregates(wanted.version, origin.environment, wanted.bounds)
    members: dict[str, str] = {}
    with ExitStack() as stack:
        streams = {}
        for name in (RUNS, ATTEMPTS, RETRIES, CALLS):
            members[LEDGER + name] = os.path.join(work, name)
            streams[name] = stack.enter_context(release_folder.durable(members[LEDGER + name]))
        exporter = Exporter(streams)
        visit(ledger, wanted.bounds, names, aggregates, exporter)
        visit_passes(ledger, wanted.bounds, names, aggregates)
    for name, document in aggregates.documents().items():
        release_folder.write_file(os.path.join(made, name), document_bytes(document))
    # The last time that the ledger knows of, so that making it again tomorrow makes the same.
    last_ms = max(aggregates.last_ms or 0, chain.entry.recorded_at_ms if chain else 0)
    created_ms = last_ms if wanted.epoch_ms is None else wanted.epoch_ms
    bill = msgspec.json.encode(sbom(installed(), created_ms, origin.kfm_version))
    release_folder.write_file(os.path.join(made, SBOM), msgspec.json.format(bill, indent=2) + b"\n")
    members |= {name: os.path.join(made, name) for name in os.listdir(made)}
    release_folder.write_zip(os.path.join(made, MANIFEST), members)
    asked = Parameters(
        version=wanted.version, since=_text(wanted.bounds.since_ms), until=_text(wanted.bounds.until_ms)
    )
    attestation = statement(asked, origin, chain, exporter.pipelines, release_folder.digests_of(made))
    release_folder.write_file(os.path.join(made, ATTESTATION), document_bytes(attestation))


def last_link(ledger: LedgerReader, bounds: TimeBounds) -> ChainLink | None:
    """The last entry of the audit log within the bounds that is not itself about a release.

    Making a release is recorded: if that counted, no release could be made twice alike.
    """
    end, _ = ledger.chain_head()
    while end > 0:
        start = max(0, end - CHAIN_PAGE)
        for link in reversed(ledger.chain(start, end - start)):
            before_end = bounds.until_ms is None or link.entry.recorded_at_ms < bounds.until_ms
            if link.entry.kind != ENTRY and before_end:
                return link
        end = start
    return None


def _record(made: Made, wanted: ReleaseOptions, store: Ledger, before: str | None) -> None:
    """Once for each content and each signature, also if an earlier call could show it but not record it."""
    entries = store.governance(kind=ENTRY, subject=made.version, limit=1)
    same = bool(entries) and entries[0].details.get("digest") == made.digest
    if same and made.state == "unchanged" and entries[0].details.get("signed") == made.signed:
        return
    entry = governance_entry(
        ENTRY,
        made.version,
        store.now_ms(),
        Justification(actor=wanted.actor, rationale=wanted.rationale),
        digest=made.digest,
        replaced=f"sha256:{before}" if before and made.state == "replaced" else None,
        signed=made.signed,
    )
    store.append_governance([entry])


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _text(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)


def make_release(
    app: App,
    version: str,
    *,
    to: str | None = None,
    bounds: TimeBounds = EVERYTHING,
    sign: str | None = None,
    replace: bool = False,
    rationale: str | None = None,
) -> Made:
    """Make releases/<version>/ from what the ledger holds."""
    assert app.store is not None, "a release is recorded"
    wanted = ReleaseOptions(
        version=checked_version(version),
        parent=os.path.abspath(to) if to else app.loaded.resolve(FOLDER),
        bounds=bounds,
        actor=app.actor,
        unique=app.ids.new(),
        epoch_ms=source_date_epoch_ms(),
        replace=replace,
        rationale=rationale and app.loaded.discretion.said(rationale),
    )
    origin = Origin(
        kfm_version=__version__,
        environment=app.settings.environment,
        policies=app.policies.bundle_id,
    )
    return make(wanted, app.ledger, app.store, _names(app), origin, _signer(sign) if sign else None)


def _names(app: App) -> DatasetNames:
    assert app.store is not None
    key = app.store.mark(MASK_KEY) or app.store.ensure_mark(MASK_KEY, app.ids.new() + app.ids.new())
    public = PublicNames(app.settings, app.store)
    return DatasetNames(
        hidden=lambda dataset_id: public(dataset_id) != dataset_id,
        mask=lambda name: mask(name, key),
        hidden_units=lambda dataset: public.of_units(dataset) != dataset,
        hidden_pipeline=hidden_names(app.settings.datasets) or (lambda _name: False),
    )


def _signer(command: str) -> Callable[[bytes], bytes]:
    try:
        words: Sequence[str] = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--sign can't be read: {error}.") from None
    if not words:
        raise UsageError("--sign names no command.")

    def sign(attestation: bytes) -> bytes:
        try:
            done = subprocess.run(
                words, input=attestation, capture_output=True, timeout=SIGN_SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            raise SigningFailed(f"`{words[0]}` did not end within {SIGN_SECONDS_MAX} s.") from None
        except OSError as error:
            raise SigningFailed(
                f"`{words[0]}` can't be run: {(error.strerror or str(error)).lower()}."
            ) from None
        if done.returncode != 0:
            message = " ".join(done.stderr.decode("utf-8", "replace").split())[:STDERR_SHOWN_CHARS]
            raise SigningFailed(
                f"`{words[0]}` ended with {done.returncode}{': ' + message if message else '.'}"
            )
        if not 0 < len(done.stdout) <= SIGNATURE_BYTES_MAX:
            raise SigningFailed(f"`{words[0]}` printed {len(done.stdout)} bytes, which is no signature.")
        return done.stdout

    return sign


def verify_release(path: str) -> Verified:
    """Check a release's folder; neither configuration nor ledger is needed."""
    return verify(path, _problem)


def _problem(schema: str, document: Any) -> str | None:
    """What a document breaks of its schema."""
    import jsonschema_rs
    import msgspec

    text = contract(f"schemas/{schema}.schema.json")
    validator = jsonschema_rs.validator_for(msgspec.json.decode(text), validate_formats=True)
    for error in validator.iter_errors(document):
        place = "/".join(str(part) for part in error.instance_path)
        return f"{place or 'the document'}: {error.message}"[:STDERR_SHOWN_CHARS]
    return None


RUNS, ATTEMPTS, RETRIES, CALLS = "runs.jsonl", "attempts.jsonl", "retries.jsonl", "calls.jsonl"


class PublicInvocation(Record, frozen=True):
    """An invocation without who made it and why: that is between them and the audit log."""

    invocation_id: str
    run_id: str | None
    dataset_id: str
    trigger_type: TriggerType
    outcome: InvocationOutcome | None
    requested_at_ms: int


class Exporter:
    """Writes what passes by. A run is written with its last attempt; one without any is not listed."""

    def __init__(self, streams: dict[str, BinaryIO]) -> None:
        self._streams = streams
        self.pipelines: set[tuple[str, str]] = set()  # (pipeline, version): what the runs were made with

    def attempt(self, attempt: Attempt, run: Run) -> None:
        self._write(ATTEMPTS, attempt)
        if not attempt.node:
            if len(self.pipelines) < PIPELINES_MAX:
                self.pipelines.add((run.pipeline_id, run.pipeline_version))
            if attempt.attempt == run.attempts:
                self._write(RUNS, run)

    def retry(self, retry: CallRetry, run: Run) -> None:  # noqa: ARG002 - the visitor's signature
        self._write(RETRIES, retry)

    def call(self, invocation: Invocation, dataset_id: str) -> None:
        self._write(
            CALLS,
            PublicInvocation(
                invocation_id=invocation.invocation_id,
                run_id=invocation.run_id,
                dataset_id=dataset_id,
                trigger_type=invocation.trigger_type,
                outcome=invocation.outcome,
                requested_at_ms=invocation.requested_at_ms,
            ),
        )

    def _write(self, name: str, record: Record) -> None:
        self._streams[name].write(document_line(record))
