"""The chain and its ledgers as files that anybody can check without kfm."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.audit import anchors as anchor_file
from kfm.audit import ledgers
from kfm.audit.chain import PHASE, links
from kfm.audit.export_documents import ChainEnd, ChainExport, ExportedFile, Extract, Postmortems, Reviews
from kfm.audit.ledgers import Curtain
from kfm.model import audit
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import BackendUnavailable, ChainBroken, UsageError
from kfm.model.runs import ChainLink
from kfm.model.settings import Settings
from kfm.ports import Files, Progress

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

CHAIN = "audit-chain.jsonl"
ANCHORS = "anchors.jsonl"
VERIFIER = "verify_audit.py"
_VERIFIER_PATH = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "contracts", "verifier", VERIFIER
)


def export(
    ledger: LedgerReader,
    settings: Settings,
    files: Files,
    folder: str,
    anchors: Iterable[audit.Anchor] = (),
    *,
    internal: bool = False,
    units: bool = False,
    progress: Progress | None = None,
) -> ChainExport:
    """Write everything into a new folder, which appears whole or not at all. A broken chain is refused.

    `units` adds the history of units, which may be large.

    The anchors must have been read before: one that is made meanwhile would be beyond the end.
    """
    folder = folder.rstrip("/") or folder
    try:
        _require_new(files, folder)
        staging = _Staging(files, f"{folder}.partial")
        try:
            made = _write(ledger, settings, staging, list(anchors), internal, units, progress)
            staging.become(folder)
        except BaseException:
            staging.remove()
            raise
    except OSError as error:
        raise BackendUnavailable(
            f"{folder} can't be written: {(error.strerror or str(error)).lower()}.",
            remedy="Name a folder that can be made.",
        ) from None
    return made


def _write(
    ledger: LedgerReader,
    settings: Settings,
    staging: _Staging,
    anchors: list[audit.Anchor],
    internal: bool,
    units: bool,
    progress: Progress | None,
) -> ChainExport:
    head = ledger.chain_head()
    if progress is not None:
        progress.phase(PHASE, head[0])
    curtain = Curtain(settings, ledger, internal=internal)
    seen, walk = _Seen(curtain), audit.Walk(anchors, head)
    staging.put(CHAIN, _lines(links(ledger, progress, through=head[0] or None), walk, seen))
    if progress is not None:
        progress.done()
    verdict = walk.verdict()
    _require_sound(verdict)
    end = ChainEnd(number=verdict.head_number, hash=verdict.head_hash)
    facts: dict[str, Any] = {"environment": settings.environment, "internal": internal, "chain": end}
    staging.put(ANCHORS, map(anchor_file.line, anchors))
    for name, document in (
        ("pipeline_retry_log.json", ledgers.retry_log(ledger, curtain, **facts)),
        ("versioning_ledger.json", ledgers.versioning_ledger(ledger, curtain, seen.promoted, **facts)),
        ("postmortems.json", Postmortems(entries=tuple(seen.postmortems), **facts)),
        ("reviews.json", Reviews(entries=tuple(seen.reviews), **facts)),
    ):
        staging.put(name, [_text(document)])
    if units:
        staging.put(ledgers.FILE, ledgers.page_lines(ledger, settings, internal=internal))
    with open(_VERIFIER_PATH, "rb") as script:
        staging.put(VERIFIER, [script.read()])
    made = ChainExport(
        withheld=seen.withheld,
        anchors=verdict.anchors,
        anchored_number=verdict.anchored_number,
        unanchored_since=verdict.unanchored_since,
        files=tuple(staging.written),
        **facts,
    )
    staging.put("export.json", [_text(made)])
    return made


def _lines(passing: Iterable[ChainLink], walk: audit.Walk, seen: _Seen) -> Iterator[bytes]:
    """The chain as it is written, checked on the way."""
    for one in passing:
        if walk.step(one) is not None:
            return
        seen.note(one)
        yield seen.line(one)


def _require_sound(verdict: audit.ChainVerdict) -> None:
    if verdict.finding is not None:
        raise ChainBroken(f"Row {verdict.finding.number}: {verdict.finding.detail}. Nothing was written.")
    if verdict.unchained:
        raise UsageError(
            f"The audit log has {verdict.unchained} rows from before it was a chain.",
            remedy="The next entry takes them in: run a source, or set a switch, and export again.",
        )


def _text(document: Any) -> bytes:
    """Indented for people; sorted, so that equal content is equal bytes."""
    plain = canonical_bytes(msgspec.to_builtins(document))
    return msgspec.json.format(plain, indent=2) + b"\n"


class _Seen:
    """What is shown of the chain, and what the other documents need of it, gathered while it passes."""

    def __init__(self, curtain: Curtain) -> None:
        self._curtain = curtain
        self.withheld = 0
        self.promoted: dict[tuple[str, str], int] = {}
        self.postmortems: list[Extract] = []
        self.reviews: list[Extract] = []

    def note(self, one: ChainLink) -> None:
        kind = one.entry.kind
        if kind == "promotion":
            version = one.entry.details.get("version_id")
            self.promoted[(one.entry.subject, str(version))] = one.number
        elif kind in ledgers.POSTMORTEM_KINDS:
            self.postmortems.append(ledgers.extract(one, self._curtain))
        elif kind in ledgers.REVIEW_KINDS:
            self.reviews.append(ledgers.extract(one, self._curtain))

    def line(self, one: ChainLink) -> bytes:
        withhold = self._curtain.withholds(one.entry)
        self.withheld += withhold
        copy = audit.copied(one, withhold=withhold)
        document = {
            "number": copy.number,
            "previous": copy.previous,
            "content": copy.content,
            "hash": copy.hash,
        }
        if copy.entry is not None:
            document["entry"] = audit.entry_document(copy.entry)
        return canonical_bytes(document) + b"\n"


# --- the folder ------------------------------------------------------------------------


def _require_new(files: Files, folder: str) -> None:
    if not files.exists(folder):
        return
    try:
        there = files.listdir(folder)
    except NotADirectoryError:
        there = [folder]
    if there:
        raise UsageError(f"{folder} is there already.", remedy="Name a folder that is new or empty.")


class _Staging:
    """Files beside the folder that they will be."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self.written: list[ExportedFile] = []
        self.remove()  # what a crash left behind
        files.make_dirs(path)

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        digest, size = sha256(), 0
        writer = self._files.create(f"{self._path}/{name}")
        try:
            for chunk in chunks:
                writer.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            writer.fsync()
        finally:
            writer.close()
        self.written.append(ExportedFile(name=name, size=size, sha256=digest.hexdigest()))

    def become(self, folder: str) -> None:
        if self._files.exists(folder):
            self._files.rmdir(folder)
        self._files.fsync_dir(self._path)
        self._files.rename(self._path, folder)
        self._files.fsync_dir(os.path.dirname(os.path.abspath(folder)))

    def remove(self) -> None:
        if self._files.exists(self._path):
            for name in self._files.listdir(self._path):
                self._files.unlink(f"{self._path}/{name}")
            self._files.rmdir(self._path)
