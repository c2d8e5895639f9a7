"""Carries out a plan of folders: one version's files, in folders that are not published yet.

A large version shares folders with the version before it. They lie in `.shared`, each is linked by those
above it, and none is written to once its version has its name. A link is followed only if it is one of these.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from kfm.model.branches import TreeEntry
from kfm.model.errors import StoreCorrupt
from kfm.model.gates import force_command
from kfm.model.next_steps import run_command
from kfm.model.records import Item
from kfm.model.templates import safe_path
from kfm.ports import Files, Objects
from kfm.publish.catalogue.addresses import MANIFEST
from kfm.publish.targets.folder_plan import DATA, FolderPlan, Wanted

Linking = Literal["versions", "objects", "never"]

COPY_BYTES = 1024 * 1024
DOCUMENT_BYTES_MAX = 256 * 1024 * 1024
SHARED = ".shared"
# Where a hard link can't be made, a copy serves: other file system, too many links, not supported.
_UNLINKABLE = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.ENOENT)
_OWN_NAME = re.compile(r"[0-9]{8,}-[0-9A-Za-z-]+-[0-9]+")


class SharedFolders:
    """Folders that versions share, beside these versions. Those that one projector makes have names that no
    other gives. `.shared/<maker>` is an empty file that was made when all of them were filled."""

    def __init__(self, files: Files, versions: str, maker: str = "") -> None:
        self._files = files
        self._place = f"{versions}/{SHARED}"
        self._maker = maker
        self._made: list[str] = []

    def place(self, name: str) -> str:
        return f"{self._place}/{name}"

    def make(self) -> str:
        """A new one; its name."""
        if not self._made:
            self._files.make_dirs(self._place)
        self._made.append(f"{self._maker}-{len(self._made) + 1}")
        self._files.mkdir(self.place(self._made[-1]))
        return self._made[-1]

    def link(self, name: str, place: str) -> None:
        """Let this path lead to one."""
        self._files.symlink(self._way(place) + name, place)

    def linked(self, place: str) -> str | None:
        """The one that this path leads to; None for anything else."""
        try:
            target = self._files.readlink(place)
        except OSError as error:
            if is_absent(error) or error.errno == errno.EINVAL:
                return None
            raise
        name = target.removeprefix(self._way(place))
        return name if target == self._way(place) + name and _OWN_NAME.fullmatch(name) else None

    def _way(self, place: str) -> str:
        return "../" if place.startswith(f"{self._place}/") else f"../{SHARED}/"

    def finish(self) -> None:
        """All are filled, and their names are durable."""
        if self._made:
            self._files.create(self.place(self._maker)).close()
            self._files.fsync_dir(self._place)

    def whole_ns(self, name: str) -> int | None:
        """When a shared folder was whole; None if that is not known."""
        try:
            return self._files.times_ns(self.place(_maker(name)))[0]
        except OSError as error:
            if is_absent(error):
                return None
            raise

    def keep(self) -> None:
        """A version has its name: what was made for it is its own, and of those that will share it."""
        self._made.clear()

    def remove(self) -> None:
        """Those that were made for a version which was not shown."""
        for name in [*self._made, *map(_maker, self._made[:1])]:
            remove_tree(self._files, self.place(name))

    # --- collecting ---

    def names(self) -> list[str]:
        try:
            return self._files.listdir(self._place)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def reached(self, versions: Iterable[str]) -> set[str]:
        """Those that the links of these versions lead to, and what tells when they were whole."""
        found: set[str] = set()
        waiting = list(versions)
        while waiting:
            new = set(self._linked_in(waiting.pop())) - found
            found |= new
            waiting += map(self.place, new)
        return found | set(map(_maker, found))

    def _linked_in(self, folder: str) -> Iterator[str]:
        try:
            names = self._files.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            if (linked := self.linked(f"{folder}/{name}")) is not None:
                yield linked


def _maker(name: str) -> str:
    return name.rpartition("-")[0]


class EarlierFolders:
    """The folders of a version that is whole, wherever they lie."""

    def __init__(self, files: Files, shared: SharedFolders, version: str) -> None:
        self._files = files
        self._shared = shared
        self._places: dict[str, str | None] = {"": version}
        # When they were whole: files that were touched since have to be compared.
        self._whole_ns: dict[str, int | None] = {"": files.times_ns(f"{version}/{MANIFEST}")[0]}

    def shared(self, path: str) -> str | None:
        """The shared folder that stands at this path, if it is there."""
        above, _, name = path.rpartition("/")
        folder = self.place(above)
        found = self._shared.linked(f"{folder}/{name}") if folder is not None else None
        return found if found is not None and self._files.exists(self._shared.place(found)) else None

    def place(self, path: str) -> str | None:
        """The folder itself; None if it is not there."""
        if path not in self._places:
            above, _, name = path.rpartition("/")
            folder, found = self.place(above), self.shared(path)
            if found is not None:
                self._places[path] = self._shared.place(found)
                self._whole_ns[path] = self._shared.whole_ns(found)
            else:
                self._places[path] = f"{folder}/{name}" if folder is not None else None
                self._whole_ns[path] = self._whole_ns[above]
        return self._places[path]

    def file(self, path: str) -> tuple[str, int | None] | None:
        """Where a file would lie, and when its folder was whole, if that is known."""
        above, _, name = path.rpartition("/")
        folder = self.place(above)
        return None if folder is None else (f"{folder}/{name}", self._whole_ns[above])


class VersionBuilder:
    """Writes one version's files into a folder that is not published yet.

    Folders are made one by one, never with their parents: when another process moves the unfinished
    folder away, the next step fails instead of beginning a second, incomplete one.
    """

    def __init__(
        self,
        files: Files,
        objects: Objects,
        into: str,
        *,
        linking: Linking = "never",
        earlier: EarlierFolders | None = None,
        shared: SharedFolders | None = None,
    ) -> None:
        """`shared`: its folders are shared with other versions, and not its own."""
        self._files = files
        self._objects = objects
        self._into = into
        self._linking = linking
        self._earlier = earlier if linking != "never" else None
        self._shared = shared

    def build(self, plan: FolderPlan) -> None:
        """Everything of this version, durable when this returns (but for the folder's own name)."""
        self._files.mkdir(self._into)  # first: a process that takes it away stops all that is done for it
        for name in plan.top():
            self._place_folder(plan, name, self._into)
        made = plan.own_documents()
        for name in sorted(made, key=_manifest_last):
            self._write(f"{self._into}/{name}", made[name])
        if self._shared is not None:
            self._shared.finish()
        self._files.fsync_dir(self._into)

    def _place_folder(self, plan: FolderPlan, path: str, above: str) -> None:
        """A folder of the version: made in the one above, or in its own place and linked from there."""
        place = f"{above}/{path.rpartition('/')[2]}"
        if self._shared is None:
            self._files.mkdir(place)
            self._fill(plan, path, place)
            return
        as_before = self._earlier is not None and not plan.is_changed(path)
        name = self._earlier.shared(path) if as_before and self._earlier else None
        if name is None:
            name = self._shared.make()
            self._fill(plan, path, self._shared.place(name))
        self._shared.link(name, place)

    def _fill(self, plan: FolderPlan, path: str, place: str) -> None:
        found = plan.folder(path)
        for name, wanted in found.files.items():
            self._place_file(plan, safe_path(f"{path}/{name}"), f"{place}/{name}", wanted)
        for name in found.folders:
            self._place_folder(plan, safe_path(f"{path}/{name}"), place)
        self._files.fsync_dir(place)

    # --- files ---

    def _place_file(self, plan: FolderPlan, path: str, place: str, wanted: Wanted) -> None:
        for candidate, since_ns in self._candidates(plan, path, wanted):
            # Anybody may have edited it in place: a link would carry that on.
            if self._is_untouched(candidate, since_ns, wanted) or self._holds(plan, candidate, wanted):
                with contextlib.suppress(_CannotLink):
                    return self._link(candidate, place)
        if isinstance(wanted, TreeEntry):
            self._copy(plan, path.removeprefix(f"{DATA}/"), place, wanted)
        else:
            self._write(place, plan.rendered(wanted))
        return None

    def _candidates(self, plan: FolderPlan, path: str, wanted: Wanted) -> Iterator[tuple[str, int | None]]:
        """What could be linked, and the time since when it is known to hold what is wanted, if it is."""
        old = plan.earlier_path(path, wanted) if self._earlier is not None else None
        found = self._earlier.file(old) if self._earlier is not None and old is not None else None
        if found is not None:
            yield found[0], found[1] if plan.is_known else None
        if isinstance(wanted, TreeEntry) and self._linking == "objects":
            stored = self._objects.local_path(wanted.sha256)
            yield from [(stored, None)] if stored is not None else ()

    def _is_untouched(self, place: str, since_ns: int | None, wanted: Wanted) -> bool:
        """Has a file of the earlier version not been written, linked or touched since its folder was whole?
        Then its hash, which was compared when it was placed, need not be again."""
        if since_ns is None:
            return False
        try:
            if isinstance(wanted, TreeEntry) and self._files.size(place) != wanted.size:
                return False
            return self._files.times_ns(place)[1] < since_ns
        except OSError as error:
            if is_absent(error):
                return False
            raise

    def _holds(self, plan: FolderPlan, place: str, wanted: Wanted) -> bool:
        if isinstance(wanted, TreeEntry):
            return file_sha256(self._files, place) == wanted.sha256
        data = plan.rendered(wanted)
        return read_file(self._files, place, bytes_max=len(data)) == data

    def _link(self, old: str, new: str) -> None:
        try:
            self._files.link(old, new)
        except OSError as error:
            if error.errno in _UNLINKABLE and self._files.exists(self._into):
                raise _CannotLink from error
            raise

    def _write(self, path: str, data: bytes) -> None:
        writer = self._files.create(path)
        try:
            writer.write(data)
            writer.fsync()
        finally:
            writer.close()

    def _copy(self, plan: FolderPlan, path: str, place: str, wanted: TreeEntry) -> None:
        """Copy the object, and compare what passes by with what the version promises."""
        try:
            digest, size = self._copied(place, wanted.sha256)
            if digest != wanted.sha256 or size != wanted.size:
                raise StoreCorrupt(f"Object sha256:{wanted.sha256} of {path} holds other bytes.")
        except StoreCorrupt as error:
            owner = next(one for one in plan.version.items() if any(a.path == path for a in one.assets))
            raise lost(plan.version.dataset_id, owner, error) from error

    def _copied(self, place: str, sha256: str) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        reader = self._objects.open(sha256)
        try:
            writer = self._files.create(place)
            try:
                while data := reader.read(COPY_BYTES):
                    digest.update(data)
                    size += len(data)
                    writer.write(data)
                writer.fsync()
            finally:
                writer.close()
        finally:
            reader.close()
        return digest.hexdigest(), size


def _manifest_last(name: str) -> tuple[bool, str]:
    return name == MANIFEST, name


class _CannotLink(Exception):
    pass


def lost(dataset_id: str, item: Item, error: StoreCorrupt) -> StoreCorrupt:
    """An object of a promoted version is missing or damaged: whose it is, and how it comes back."""
    return StoreCorrupt(
        f"{dataset_id}, item {item.id}: {error.detail}",
        remedy="Bring the object back from a copy of the objects folder and run `kfm project`; or "
        "fetch its window again: "
        f"`{force_command(run_command(item.source_id, item.window_start_ms, item.window_end_ms))}`.",
    )


# --- files and folders ---------------------------------------------------------------


def is_absent(error: OSError) -> bool:
    """Is there no such file? A link in its place, or on the way, is none."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


def file_sha256(files: Files, path: str) -> str | None:
    """The hash of what stands there; None if no file does."""
    digest = hashlib.sha256()
    try:
        reader = files.open(path)
        try:
            while data := reader.read(COPY_BYTES):
                digest.update(data)
        finally:
            reader.close()
    except OSError as error:
        if is_absent(error):
            return None
        raise
    return digest.hexdigest()


def read_file(files: Files, path: str, bytes_max: int = DOCUMENT_BYTES_MAX) -> bytes | None:
    """A file's bytes; None if it is not there or longer than allowed."""
    parts, size = [], 0
    try:
        reader = files.open(path)
        try:
            while data := reader.read(COPY_BYTES):
                parts.append(data)
                size += len(data)
                if size > bytes_max:
                    return None
        finally:
            reader.close()
    except OSError as error:
        if is_absent(error):
            return None
        raise
    return b"".join(parts)


def remove_tree(files: Files, path: str) -> None:
    """Remove a file, a link or a folder with all that is in it; links are not followed."""
    try:
        files.unlink(path)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        pass
    with contextlib.suppress(FileNotFoundError):
        for name in files.listdir(path):
            remove_tree(files, f"{path}/{name}")
        files.rmdir(path)
