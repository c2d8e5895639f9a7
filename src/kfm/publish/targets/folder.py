"""The published tree on a local disk.

    <dataset>/current -> versions/00000012-0123456789ab
    <dataset>/versions/00000012-0123456789ab/…
    <dataset>/.tickets/<id>/

There is no lock, so no dead or stalled writer can hold one. A projector makes a ticket *before* it
reads the head, and removes all other tickets before it moves the pointer out of its own. A removed
folder can never hold a name again, so the move of a fenced projector fails. A projector that shows
version n has removed every ticket that was there after n was promoted; a later ticket reads a head >= n.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable

from kfm.model.errors import StoreCorrupt, TargetUnavailable
from kfm.model.records import Manifest, Promotion
from kfm.ports import Files, Ids, Objects
from kfm.publish.targets.tree import (
    Linking,
    VersionBuilder,
    file_sha256,
    is_head,
    is_known,
    remove_tree,
    require_folder_name,
    sequence_of,
    version_name,
)

ATTEMPTS_MAX = 50
TICKET_KILL_TRIES_MAX = 10

HeadReader = Callable[[], tuple[Promotion, Manifest] | None]
History = Callable[[int], str | None]  # sequence → the version that this database promoted with it


class _Fenced(Exception):
    """Another projector removed our ticket: begin again, and read the head again."""


class LocalTree:
    """Projects heads into a folder on this machine."""

    def __init__(
        self,
        name: str,
        files: Files,
        objects: Objects,
        ids: Ids,
        path: str,
        *,
        linking: Linking = "versions",
    ) -> None:
        self.name = name
        self._files = files
        self._objects = objects
        self._ids = ids
        self._path = path.rstrip("/") or "/"
        self._linking = linking

    def project(self, dataset_id: str, head: HeadReader, known: History | None = None) -> int | None:
        """Make `current` show the head; returns the sequence that it shows."""
        folder = self._folder(dataset_id)
        try:
            shown = self._shown_already(folder, head)
            for _ in range(0 if shown is not None else ATTEMPTS_MAX):
                with contextlib.suppress(_Fenced):
                    return self._attempt(folder, head, known)
        except OSError as error:
            raise TargetUnavailable(
                f"{self.name}: {error.strerror or error} ({error.filename or folder})."
            ) from error
        if shown is None:
            raise TargetUnavailable(
                f"{self.name}: fenced {ATTEMPTS_MAX} times by others at work on {folder}."
            )
        return shown or None

    def _folder(self, dataset_id: str) -> str:
        return f"{self._path}/{require_folder_name(dataset_id)}"

    def _shown_already(self, folder: str, head: HeadReader) -> int | None:
        """The common case: nothing to do, so nothing is written. 0: nothing was ever promoted."""
        found = head()
        if found is None:
            return 0
        if not self._stands(folder, found[0]):
            return None
        self._files.fsync_dir(folder)  # the process that moved the pointer may have died before this
        with contextlib.suppress(FileNotFoundError):
            self._kill_others(folder, "")  # other projectors at work here show an older one, or died
        return found[0].sequence

    # --- one attempt ---

    def _attempt(self, folder: str, head: HeadReader, known: History | None) -> int | None:
        self._files.make_dirs(f"{folder}/versions")
        self._files.make_dirs(f"{folder}/.tickets")
        mine = self._ids.new()
        ticket, building = f"{folder}/.tickets/{mine}", f"{folder}/versions/.building-{mine}"
        self._files.mkdir(ticket)
        try:
            found = head()  # only now: whatever is promoted from here on removes our ticket
            if found is None:
                return None
            return self._show(folder, ticket, building, found, head, known)
        finally:
            self._drop_ticket(ticket)
            if self._files.exists(building):
                remove_tree(self._files, building)

    def _show(
        self,
        folder: str,
        ticket: str,
        building: str,
        found: tuple[Promotion, Manifest],
        head: HeadReader,
        known: History | None,
    ) -> int:
        promotion, manifest = found
        shown = self._shown(folder)
        if shown is not None and known is not None and not is_known(shown, known):
            raise self._foreign(shown, promotion.sequence)
        if shown == version_name(promotion) and not self._stands(folder, promotion):
            shown = None  # it is gone, or was altered: built and shown again
        if shown is not None and sequence_of(shown) >= promotion.sequence:
            self._require_same_history(shown, head)
            self._files.fsync_dir(folder)
            return sequence_of(shown)
        try:
            self._build(folder, building, promotion, manifest, shown)
            self._kill_others(folder, ticket)
            self._point(folder, ticket, version_name(promotion))
        except FileNotFoundError as error:
            raise _Fenced from error
        except StoreCorrupt as error:
            if is_head(promotion, head):
                raise
            raise _Fenced from error  # so old by now that its objects were collected
        self._files.fsync_dir(folder)
        return promotion.sequence

    def _build(
        self, folder: str, building: str, promotion: Promotion, manifest: Manifest, shown: str | None
    ) -> None:
        final = f"{folder}/versions/{version_name(promotion)}"
        if not self._holds(final, promotion):
            earlier = f"{folder}/versions/{shown}" if shown else None
            VersionBuilder(self._files, self._objects, building, earlier, self._linking).build(manifest)
            self._settle(folder, building, promotion)
        self._files.fsync_dir(f"{folder}/versions")  # also when another process made it

    def _settle(self, folder: str, building: str, promotion: Promotion) -> None:
        """Give a version its name, unless another projector was quicker: versions are immutable."""
        final = f"{folder}/versions/{version_name(promotion)}"
        for is_last in (False, True):
            try:
                return self._files.rename(building, final)
            except OSError as error:
                if self._holds(final, promotion):
                    return None
                if not self._files.exists(building):
                    raise _Fenced from error
                if is_last:
                    raise
            self._trash(folder, version_name(promotion))  # what stands there is not that version any more
        return None

    def _kill_others(self, folder: str, mine: str) -> None:
        for name in self._files.listdir(f"{folder}/.tickets"):
            if f"{folder}/.tickets/{name}" != mine:
                self._drop_ticket(f"{folder}/.tickets/{name}")
                self._trash(folder, f".building-{name}")

    def _trash(self, folder: str, name: str) -> bool:
        """Remove a folder of versions. Renamed before it is emptied: a version is whole or gone."""
        trash = f"{folder}/versions/.trash-{self._ids.new()}"
        try:
            self._files.rename(f"{folder}/versions/{name}", trash)
        except FileNotFoundError:
            return False
        with contextlib.suppress(OSError):  # its owner may still be writing; what is left goes another time
            remove_tree(self._files, trash)
        return True

    def _drop_ticket(self, ticket: str) -> None:
        """Remove a ticket for good. Its owner puts one link into it at most once, so this ends."""
        for _ in range(TICKET_KILL_TRIES_MAX):
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(f"{ticket}/current")
            try:
                self._files.rmdir(ticket)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            else:
                return
        raise TargetUnavailable(f"{self.name}: {ticket} can't be removed.")

    def _point(self, folder: str, ticket: str, version: str) -> None:
        self._files.symlink(f"versions/{version}", f"{ticket}/current")
        self._files.rename(f"{ticket}/current", f"{folder}/current")

    # --- what is shown ---

    def stands(self, dataset_id: str, promotion: Promotion) -> bool:
        """Does `current` lead to this version? False if its folder is gone, or another's by now."""
        return self._stands(self._folder(dataset_id), promotion)

    def _stands(self, folder: str, promotion: Promotion) -> bool:
        name = version_name(promotion)
        return self._shown(folder) == name and self._holds(f"{folder}/versions/{name}", promotion)

    def _holds(self, version: str, promotion: Promotion) -> bool:
        """Is the version in this folder? Its manifest is looked at, not each of its files."""
        return file_sha256(self._files, f"{version}/manifest.json") == promotion.version_id.removeprefix(
            "sha256:"
        )

    def _shown(self, folder: str) -> str | None:
        """The name of the version that `current` shows."""
        try:
            target = self._files.readlink(f"{folder}/current")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise TargetUnavailable(f"{self.name}: {folder}/current is not ours; move it away.") from error
        name = target.removeprefix("versions/")
        try:
            sequence_of(name)
        except ValueError:
            raise TargetUnavailable(
                f"{self.name}: {folder}/current points to {target}; move it away."
            ) from None
        return name

    def _require_same_history(self, shown: str, head: HeadReader) -> None:
        """A target that is ahead of its database belongs to another one, or to a lost past."""
        found = head()  # again: a newer one may have been promoted and shown meanwhile
        known = found[0].sequence if found else 0
        same = found is not None and (known > sequence_of(shown) or version_name(found[0]) == shown)
        if not same:
            raise self._foreign(shown, known)

    def _foreign(self, shown: str, at: int) -> TargetUnavailable:
        return TargetUnavailable(
            f"{self.name}: it shows {shown}, which is not of this database; the database is at {at}.",
            remedy="The target belongs to another state folder, or the state was lost or restored: "
            "give it another path, or remove its `current` and project again.",
        )

    # --- collecting ---

    def datasets(self) -> list[str]:
        try:
            names = self._files.listdir(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in names if self._files.exists(f"{self._path}/{name}/versions")]

    def versions(self, dataset_id: str) -> list[tuple[str, int]]:
        """Names and sequences of the finished versions that stand there."""
        try:
            names = self._files.listdir(f"{self._folder(dataset_id)}/versions")
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = []
        for name in names:
            with contextlib.suppress(ValueError):
                found.append((name, sequence_of(name)))
        return found

    def discard(self, dataset_id: str, names: Iterable[str]) -> list[str]:
        """Remove old versions, and what dead projectors left; returns what was removed.

        Tickets go first: a projector that is about to show one of these begins again and reads a
        head that is kept. Folders are renamed before they are emptied: a version is whole or gone.
        """
        folder = self._folder(dataset_id)
        try:
            self._kill_others(folder, "")
            return self._discard(folder, set(names))
        except OSError as error:
            raise TargetUnavailable(
                f"{self.name}: {error.strerror or error} ({error.filename or folder})."
            ) from error

    def _discard(self, folder: str, names: set[str]) -> list[str]:
        shown = self._shown(folder)
        self._files.fsync_dir(folder)  # before what it replaced goes: a power cut must not bring that back
        removed = []
        for name in self._files.listdir(f"{folder}/versions"):
            old = name in names and shown is not None and sequence_of(name) < sequence_of(shown)
            if not (old or name.startswith((".building-", ".trash-"))):
                continue
            if self._trash(folder, name) and old:
                removed.append(name)
        return removed
