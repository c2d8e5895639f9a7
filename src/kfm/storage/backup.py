"""Backups and restores: the ledger as one SQLite file, objects by their hashes, anchors; the manifest last.

A backup is of one moment of the ledger, while work goes on. Whichever database the ledger is in, its file is
SQLite's, so a restore may go into either. Objects lie beside all backups once. Nothing is a backup before its
manifest is there, and a restore believes nothing that it has not compared.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kfm.audit import anchors as anchor_lines
from kfm.config.state_folder import StateFolder, open_bucket
from kfm.db import governance, moves
from kfm.db.connection import make_folder, open_ledger
from kfm.db.ledger_reader import LedgerReader
from kfm.db.moves import Side, TableDigest, ledger_tables
from kfm.db.queries import applied, check, migration_files
from kfm.db.session import Session
from kfm.db.sqlite_side import SqliteSide, SqliteTables, strip_moves
from kfm.model.audit import Anchor
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import ChainBroken, ChecksumMismatch, StoreCorrupt, StoreTooNew, UsageError
from kfm.model.quantities import counted
from kfm.model.records import Justification, Record, governance_entry, justified
from kfm.model.redaction import redact
from kfm.model.times import rfc3339
from kfm.objects.local import CHUNK_BYTES
from kfm.runs.gc import needed_objects
from kfm.storage.backup_places import (
    FOLDER,
    MANIFEST,
    BackupBucket,
    BackupFolder,
    is_bucket,
    missing_file,
    write_file,
)
from kfm.storage.ledger_copy import (
    arrive,
    copy_tables,
    digests_of_both,
    require_current,
    require_sound,
)
from kfm.storage.objects_copy import Compare, ObjectsCopy, copy_objects, sound_objects
from kfm.storage.scratch_folder import scratch_folder
from kfm.system import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfm.config.loader import Loaded
    from kfm.ports import Clock, CollectableObjects, Ids, Progress
    from kfm.storage.backup_places import BackupPlace

FORM: Literal["backup/1"] = "backup/1"
LEDGER, OBJECTS, ANCHORS = "ledger.db", "objects.txt", "anchors.jsonl"
KIND = "restore"
_LOGS = ("-wal", "-shm", "-journal")  # of SQLite, beside its file
_ALL_KINDS = ("index", "unique", "reference")


class BackupFile(Record, frozen=True):
    """One file of a backup."""

    name: str
    sha256: str
    size: int


class BackupManifest(Record, frozen=True):
    """What a backup holds. `digest` is of everything else in it."""

    kfm: Literal["backup/1"]
    backup_id: str
    made_at: str
    environment: str
    version: str
    schema: int
    database: str
    files: tuple[BackupFile, ...]
    tables: tuple[TableDigest, ...]
    objects: int
    missing: tuple[str, ...]  # objects that kept versions need and the store did not have
    chain: tuple[int, str]
    digest: str = ""

    def file(self, name: str) -> BackupFile | None:
        return next((one for one in self.files if one.name == name), None)


def manifest_digest(manifest: BackupManifest) -> str:
    document = msgspec.to_builtins(manifest)
    del document["digest"]
    return "sha256:" + hashlib.sha256(canonical_bytes(document)).hexdigest()


# --- making one --------------------------------------------------------------------------


class BackupReport(Record, frozen=True):
    """A backup that was made, and how much of it was new."""

    place: str
    manifest: BackupManifest
    copied: int
    copied_bytes: int
    there: int


class BackupMaker:
    """Makes backups of one environment at one place."""

    def __init__(
        self,
        ledger: Side,
        objects: CollectableObjects,
        place: BackupPlace,
        *,
        clock: Clock,
        ids: Ids,
        progress: Progress,
        scratch: str,
        anchors: str,
        environment: str,
        version: str,
        versions_kept: int,
        compare: Compare = "bytes",
    ) -> None:
        self._ledger = ledger
        self._objects = objects
        self._place = place
        self._clock = clock
        self._ids = ids
        self._progress = progress
        self._scratch = scratch
        self._anchors = anchors
        self._environment = environment
        self._version = version
        self._versions_kept = versions_kept
        self._compare: Compare = compare

    def run(self) -> BackupReport:
        if isinstance(self._ledger, SqliteSide):  # its copy is brought up to date, not the ledger itself
            check(applied(self._ledger.database.session))
        else:
            require_current(self._ledger, _OLDER)
        now_ms = self._clock.now_ms()
        stamp = rfc3339(now_ms)[:19].replace(":", "").replace("-", "")
        # The newest is the last by name, also of two within a second.
        backup_id = f"{stamp}.{now_ms % 1000:03d}Z-{self._ids.new()[-8:]}"
        first = self._copy_objects()
        with scratch_folder(self._scratch, "kfm-backup-") as folder:
            path = os.path.join(folder, LEDGER)
            # Before the ledger: an anchor that is made meanwhile names a row that the file has not.
            kept = _read_anchors(self._anchors)
            self._write_ledger(path)
            tables, head = self._look(path, kept)
            # Again: what was promoted while the first were copied. What is needed was there at that moment.
            second = self._copy_objects(first.sound)
            there, missing = self._listed(path, second.sound)
            files = [self._put(backup_id, folder, LEDGER)]
            files.append(self._put(backup_id, folder, OBJECTS, "".join(f"{one}\n" for one in there).encode()))
            if kept is not None:
                files.append(self._put(backup_id, folder, ANCHORS, kept))
            manifest = BackupManifest(
                kfm=FORM,
                backup_id=backup_id,
                made_at=rfc3339(now_ms),
                environment=self._environment,
                version=self._version,
                schema=migration_files()[-1][0],
                database="sqlite" if isinstance(self._ledger, SqliteSide) else "postgresql",
                files=tuple(files),
                tables=tables,
                objects=len(there),
                missing=missing,
                chain=head,
            )
            manifest = msgspec.structs.replace(manifest, digest=manifest_digest(manifest))
            self._put(backup_id, folder, MANIFEST, canonical_bytes(msgspec.to_builtins(manifest)))
        return BackupReport(
            place=self._place.name,
            manifest=manifest,
            copied=first.copied + second.copied,
            copied_bytes=first.bytes + second.bytes,
            there=first.there,
        )

    def _copy_objects(self, known: frozenset[str] = frozenset()) -> ObjectsCopy:
        compare = self._compare
        return copy_objects(self._objects, self._place.objects, self._progress, compare=compare, known=known)

    def _write_ledger(self, path: str) -> None:
        if isinstance(self._ledger, SqliteSide):
            self._progress.phase("ledger")
            self._ledger.copy_file(path)
            bring_up_to_date(path, self._clock)
        else:
            target = SqliteSide(path, self._clock, fill=True)
            try:
                with self._ledger.snapshot():
                    fill(self._ledger, target, "backup", self._clock.now_ms(), self._progress)
            finally:
                target.close()
            strip_moves(path)
        self._progress.done()

    def _look(self, path: str, kept: bytes | None) -> tuple[tuple[TableDigest, ...], tuple[int, str]]:
        tables = _digests(path, self._progress)
        head = _verify_chain(path, self._clock, kept, self._environment, self._progress)
        return tables, head

    def _listed(self, path: str, sound: frozenset[str]) -> tuple[list[str], tuple[str, ...]]:
        """What the place has of this environment's objects, and what the ledger needs and it has not."""
        with _opened(path, self._clock) as ledger:
            needed = set(needed_objects(ledger, self._versions_kept))
            needed.update(ledger.branch_reader().objects_kept(0))
        # What the store has lost, an earlier backup may have brought here.
        listed = sound | sound_objects(self._place.objects, needed - sound)
        return sorted(listed), tuple(sorted(needed - listed))

    def _put(self, backup_id: str, folder: str, name: str, data: bytes | None = None) -> BackupFile:
        path = os.path.join(folder, name)
        if data is not None:
            write_file(path, (data,))
        sha256, size = _hashed(path)
        self._place.put(f"{FOLDER}/{backup_id}/{name}", path)
        back = f"{path}.back"
        self._place.fetch(f"{FOLDER}/{backup_id}/{name}", back)
        if _hashed(back) != (sha256, size):
            raise ChecksumMismatch(f"{name} is not at {self._place.name} as it was written.")
        os.unlink(back)
        return BackupFile(name=name, sha256=sha256, size=size)


def fill(
    source: Any,
    target: Side,
    move_id: str,
    now_ms: int,
    progress: Progress,
    enter: Callable[[Session], None] = lambda _: None,
) -> None:
    """All rows of a source that does not change into an empty ledger, compared; it is live in the end, with
    what is entered into it in the same transaction."""
    arrive(target, move_id, "a backup", now_ms)
    copy_tables(source, target, move_id, progress)
    both = digests_of_both(source, target, ledger_tables(), progress)
    for here, there in both:
        if here != there:
            raise StoreCorrupt(f"The table {here.table} did not arrive as it is.")
    target.relax(on=True)
    target.tighten(moves.progress_of(target.database.session)["rebuild"], _ALL_KINDS)
    target.relax(on=False)
    target.check_references()
    positions = source.positions()

    def live(session: Session) -> None:
        target.settle(positions)
        moves.unmark(session)
        moves.set_state(session, move_id, "live")
        enter(session)

    target.write(live)


# --- restoring one -----------------------------------------------------------------------


class RestoreReport(Record, frozen=True):
    """What was restored, after all of it was compared; or would be."""

    place: str
    manifest: BackupManifest
    rows: int
    objects: ObjectsCopy
    anchors: Literal["restored", "kept", "none"]  # kept: there is a file of them, which may know more


class Restorer:
    """Restores a backup into a place that has no ledger. Killed and run again it goes on."""

    def __init__(
        self,
        place: BackupPlace,
        objects: CollectableObjects,
        *,
        ledger_path: str | None,
        open_target: Any,
        clock: Clock,
        progress: Progress,
        scratch: str | None,
        anchors: str,
        environment: str,
        by: Justification,
    ) -> None:
        """`ledger_path`: where the file is to be; None: the ledger is on a server, `open_target` opens it,
        and `scratch` is for files meanwhile."""
        self._place = place
        self._objects = objects
        self._ledger_path = ledger_path
        self._open_target = open_target
        self._clock = clock
        self._progress = progress
        self._scratch = scratch
        self._anchors = anchors
        self._environment = environment
        self._by = by

    def manifest(self, backup_id: str | None) -> BackupManifest:
        """The manifest of that backup, or of this environment's newest; sound."""
        found = self._place.backups()
        if not found:
            raise UsageError(
                f"There is no backup at {self._place.name}.",
                remedy="Name the place that `kfm backup` was given.",
            )
        if backup_id is not None and backup_id not in found:
            raise UsageError(
                f"There is no backup {backup_id} at {self._place.name}.",
                remedy=f"There are: {', '.join(found[-5:])}.",
            )
        others = []
        for one in [backup_id] if backup_id is not None else reversed(found):
            manifest = self._read_manifest(one)
            if manifest.environment == self._environment:
                break
            others.append(manifest.environment)
        else:
            raise UsageError(
                f"The backup is of the environment {others[0]}; this one is {self._environment}."
                if backup_id is not None
                else f"There is no backup of the environment {self._environment} at {self._place.name}; "
                f"there are some of: {', '.join(sorted(set(others)))}.",
                remedy="Use the configuration of that environment, or set KFM_ENV.",
            )
        if manifest.schema > migration_files()[-1][0]:
            raise StoreTooNew(f"The backup {manifest.backup_id} was made by kfm {manifest.version}.")
        return manifest

    def _read_manifest(self, backup_id: str) -> BackupManifest:
        data = self._place.read(f"{FOLDER}/{backup_id}/{MANIFEST}")
        if data is None:
            raise missing_file(MANIFEST)
        try:
            manifest = msgspec.json.decode(data, type=BackupManifest)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise StoreCorrupt(
                f"The manifest of {backup_id} can't be read: {error}.", remedy=_OTHER
            ) from None
        if manifest_digest(manifest) != manifest.digest or manifest.backup_id != backup_id:
            raise StoreCorrupt(f"The manifest of {backup_id} is not as it was written.", remedy=_OTHER)
        return manifest

    def run(self, backup_id: str | None = None, *, dry_run: bool = False) -> RestoreReport:
        """Everything is fetched and compared before the ledger is there; with `dry_run` that is all."""
        manifest = self.manifest(backup_id)
        with scratch_folder(None if dry_run else self._beside(), "kfm-restore-") as folder:
            names = self._fetch(manifest, OBJECTS, folder).decode().split()
            self._require_empty(manifest, names)
            kept = self._fetch(manifest, ANCHORS, folder) if manifest.file(ANCHORS) else None
            path = os.path.join(folder, LEDGER)
            self._fetch(manifest, LEDGER, folder, whole=False)
            # One of an older schema has other columns; its file is as it was written.
            is_current = manifest.schema == migration_files()[-1][0]
            if is_current and _digests(path, self._progress) != manifest.tables:
                raise StoreCorrupt(
                    "The rows of the ledger are not those that the manifest tells of.", remedy=_OTHER
                )
            head = _verify_chain(path, self._clock, kept, self._environment, self._progress)
            if head != manifest.chain:
                raise ChainBroken("The audit log does not end where the manifest says.", remedy=_OTHER)
            copied = copy_objects(self._place.objects, self._objects, self._progress, names, dry_run=dry_run)
            if copied.lost:
                raise StoreCorrupt(
                    f"Missing or damaged at {self._place.name}: {counted(len(copied.lost), 'object')} of the "
                    f"backup, sha256:{min(copied.lost)} for one.",
                    remedy=_AGAIN,
                )
            anchors = self._put_anchors(kept, dry_run=dry_run)
            if not dry_run:
                self._land(manifest, path)
        return RestoreReport(
            place=self._place.name,
            manifest=manifest,
            rows=sum(one.rows for one in manifest.tables),
            objects=copied,
            anchors=anchors,
        )

    def _beside(self) -> str | None:
        """Where the file of the ledger can be renamed from: on its own file system."""
        if self._ledger_path is None:
            return self._scratch
        folder = os.path.dirname(os.path.abspath(self._ledger_path))
        make_folder(folder)
        return folder

    def _require_empty(self, manifest: BackupManifest, names: Sequence[str]) -> None:
        """No ledger; no objects but those of this backup, which an interrupted restore has left."""
        if self._ledger_path is not None:
            is_empty = not os.path.exists(self._ledger_path) or os.path.getsize(self._ledger_path) == 0
        else:
            target: Side = self._open_target()
            try:
                begun = None if target.is_empty() else moves.latest(target.database.session)
                is_empty = target.is_empty() or (
                    begun is not None and begun.state == "copying" and begun.move_id == manifest.backup_id
                )
            finally:
                target.close()
        if not is_empty:
            raise UsageError(
                "There is a ledger already: a restore never replaces one.",
                remedy="Restore into an empty place: set `state` and `store`, or move what is there away.",
            )
        self._require_no_log()
        known = set(names)
        if other := next((one for one in self._objects.all() if one not in known), None):
            raise UsageError(
                f"The object store has objects that are not of this backup: sha256:{other}, for one.",
                remedy="Restore into an empty place, or move what is there away.",
            )

    def _require_no_log(self) -> None:
        """SQLite takes a log beside a file for the file's own, and writes its pages over what is restored."""
        if self._ledger_path is None:
            return
        left = [path for one in _LOGS if os.path.lexists(path := f"{self._ledger_path}{one}")]
        if left:
            raise UsageError(
                f"Beside the ledger's place lies what a ledger has left there: {', '.join(left)}. SQLite "
                "would write it over the restored one.",
                remedy="It belongs to a ledger that was moved away or removed: move it to where that one is, "
                "or remove it, and restore again. Nothing was restored.",
            )

    def _fetch(self, manifest: BackupManifest, name: str, folder: str, *, whole: bool = True) -> bytes:
        """A file of the backup, as the manifest tells of it."""
        told = manifest.file(name)
        if told is None:
            raise missing_file(name)
        path = os.path.join(folder, name)
        self._progress.phase(name)
        self._place.fetch(f"{FOLDER}/{manifest.backup_id}/{name}", path)
        if _hashed(path) != (told.sha256, told.size):
            raise StoreCorrupt(f"{name} of the backup is not as it was written.", remedy=_OTHER)
        self._progress.done()
        if not whole:
            return b""
        with open(path, "rb") as file:
            return file.read()

    def _put_anchors(self, kept: bytes | None, *, dry_run: bool) -> Literal["restored", "kept", "none"]:
        if os.path.exists(self._anchors):
            return "kept"
        if kept is None:
            return "none"
        if not dry_run:
            anchor_lines.put(self._anchors, kept)
        return "restored"

    def _land(self, manifest: BackupManifest, path: str) -> None:
        """The ledger, last of all and in one act."""
        if self._ledger_path is None:
            bring_up_to_date(path, self._clock)
            source, target = SqliteTables(path), self._open_target()
            try:
                enter = partial(self._enter, manifest)
                fill(source, target, manifest.backup_id, self._clock.now_ms(), self._progress, enter)
            finally:
                source.close()
                target.close()
            return
        bring_up_to_date(path, self._clock, partial(self._enter, manifest))
        self._require_no_log()  # again: the objects took their time
        with suppress(FileNotFoundError):
            os.unlink(self._ledger_path)  # an empty one
        os.rename(path, self._ledger_path)
        sync_folder(os.path.dirname(os.path.abspath(self._ledger_path)))

    def _enter(self, manifest: BackupManifest, session: Session) -> None:
        details = {"backup": manifest.backup_id, "made_at": manifest.made_at}
        entry = governance_entry(KIND, self._environment, session.now_ms(), self._by, **details)
        governance.append(session, [entry])


_OLDER = (
    "A backup changes nothing in a database. Back it up with the kfm that made it, or with pg_dump; then the "
    "next command that writes brings it up to date: `kfm run`, for one."
)
_AGAIN = (
    "All backups at a place share their objects: another one helps only if it does not need these. Where the "
    "store that was backed up is still there, `kfm backup` to the same place replaces what is damaged. "
    "Nothing was restored."
)
_OTHER = "Restore another backup: `--backup ID`. Nothing was restored."


def bring_up_to_date(path: str, clock: Clock, enter: Callable[[Session], None] = lambda _: None) -> None:
    """A copied file gets this kfm's schema, and what is entered into it; its source stays as it is."""
    side = SqliteSide(path, clock, fill=False)
    try:
        side.prepare(clock.now_ms())
        side.write(enter)
    finally:
        side.close()
    strip_moves(path)


@contextmanager
def _opened(path: str, clock: Clock) -> Iterator[LedgerReader]:
    ledger = open_ledger(f"sqlite:{path}", "/", clock)
    try:
        yield ledger
    finally:
        ledger.close()


def _digests(path: str, progress: Progress) -> tuple[TableDigest, ...]:
    tables = SqliteTables(path)
    progress.phase("comparing", len(ledger_tables()))
    try:
        tables.check_pages()
        found = []
        for table in ledger_tables():
            found.append(moves.digest(tables, table))
            progress.advance(1)
        return tuple(found)
    finally:
        progress.done()
        tables.close()


def _verify_chain(
    path: str, clock: Clock, kept: bytes | None, environment: str, progress: Progress
) -> tuple[int, str]:
    anchors: list[Anchor] = anchor_lines.parse(kept, ANCHORS) if kept is not None else []
    with _opened(path, clock) as ledger:
        require_sound(ledger, anchor_lines.of_environment(anchors, environment), progress)
        return ledger.chain_head()


def _hashed(path: str) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while data := file.read(CHUNK_BYTES):
            digest.update(data)
            size += len(data)
    return digest.hexdigest(), size


def _read_anchors(path: str) -> bytes | None:
    if anchor_lines.read(path) is None:
        return None
    with open(path, "rb") as file:
        return file.read()


# --- of a configuration --------------------------------------------------------------------


def open_place(loaded: Loaded, address: str, options: Mapping[str, str]) -> BackupPlace:
    """Where backups are: a folder, or a bucket by its address."""
    folder = StateFolder.of(loaded)
    if is_bucket(address):
        return BackupBucket(redact(address), open_bucket(loaded, address, options))
    return BackupFolder(os.path.abspath(address), folder.files.private(), folder.ids)


def require_apart(loaded: Loaded, address: str) -> None:
    """Refuse a place that goes with what is backed up, or that readers of a target see."""
    settings = loaded.settings
    if is_bucket(address):
        place = address.rstrip("/")
        own = [("the object store", settings.objects)]
        own += [("a published target", target.url) for target in settings.publish]
        # A place keeps its objects in `objects/`: they would be the store's own.
        shares = settings.objects is not None and settings.objects.rstrip("/") == f"{place}/objects"
        within = next((what for what, url in own if url and _holds(url.rstrip("/"), place)), None)
        within = within or ("the object store" if shares else None)
    else:
        place = os.path.realpath(address)
        own = [("the state folder", settings.state)]
        own += [("a published target", target.path) for target in settings.publish]
        paths = ((what, os.path.realpath(loaded.resolve(path))) for what, path in own if path)
        within = next((what for what, path in paths if _holds(path, place)), None)
    if within is not None:
        raise UsageError(
            f"{redact(address)} lies in {within} of this configuration.",
            remedy="Name a place apart from it, best on another disk: a backup is for the day on which the "
            "state is lost, and holds what was withdrawn from readers.",
        )


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(f"{outer.rstrip('/')}/")


def make_backup(
    loaded: Loaded, to: str, options: Mapping[str, str], progress: Progress, *, quick: bool = False
) -> BackupReport:
    from kfm import __version__

    require_apart(loaded, to)
    folder = StateFolder.of(loaded)
    ledger = folder.open_side()
    try:
        return BackupMaker(
            ledger,
            folder.objects(loaded),
            open_place(loaded, to, options),
            clock=folder.clock,
            ids=folder.ids,
            progress=progress,
            scratch=folder.path,
            anchors=loaded.resolve(loaded.settings.audit.anchors),
            environment=loaded.settings.environment,
            version=__version__,
            versions_kept=loaded.settings.limits.versions_kept,
            compare="sizes" if quick else "bytes",
        ).run()
    finally:
        ledger.close()


def restore(
    loaded: Loaded,
    place: str,
    options: Mapping[str, str],
    progress: Progress,
    *,
    backup_id: str | None,
    rationale: str | None,
    dry_run: bool,
) -> RestoreReport:
    folder = StateFolder.of(loaded)
    if not dry_run:
        make_folder(folder.path)
    return Restorer(
        open_place(loaded, place, options),
        folder.objects(loaded),
        ledger_path=folder.ledger_path,
        open_target=lambda: folder.open_side(fill=True),
        clock=folder.clock,
        progress=progress,
        scratch=folder.path,
        anchors=loaded.resolve(loaded.settings.audit.anchors),
        environment=loaded.settings.environment,
        by=justified(loaded.discretion.said, loaded.identity().subject, rationale),
    ).run(backup_id, dry_run=dry_run)
