"""A disk in memory that can lose its power.

`PowerCutFiles(rng)` implements `kfm.ports.Files`. What was not fsynced may or may not
survive a cut, each piece by the throw of a seeded die:

- bytes of a file since its last fsync: any prefix length, with holes of zeros;
- names in a folder since its last fsync: any subset of the changes, in their order;
- a rename inside one folder happens or does not, never half; one across folders may
  leave both names, never none.

`another()` is a second process on the same disk. `die_after(n)` lets this process die at
its n-th call from now (a write may be torn); the dead may call no more. `cut()` is what
the next boot finds; the old handles are dead then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

LINKS_FOLLOWED_MAX = 20


class PowerLost(BaseException):
    """The process is gone. Not an Exception: no cleanup of the program may outlive it."""


@dataclass(eq=False)
class FileNode:
    synced: bytes = b""
    pending: list[bytes] = field(default_factory=list)
    modified_ms: int = 0
    changed_ms: int = 0

    @property
    def data(self) -> bytes:
        return self.synced + b"".join(self.pending)


@dataclass(eq=False)
class LinkNode:
    target: str


@dataclass(eq=False)
class Change:
    """Names of one folder that change in one piece: name → node, or None for gone."""

    names: dict[str, Node | None]
    only_if: Change | None = None  # the arrival, where this is the departure of a rename across folders
    durable: bool = False


@dataclass(eq=False)
class FolderNode:
    synced: dict[str, Node] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    @property
    def names(self) -> dict[str, Node]:
        return apply(self.synced, self.pending)

    def get(self, name: str) -> Node | None:
        """`names.get(name)`, without looking at all the others."""
        for change in reversed(self.pending):
            if name in change.names:
                return change.names[name]
        return self.synced.get(name)


Node = FileNode | LinkNode | FolderNode


def apply(names: dict[str, Node], changes: list[Change]) -> dict[str, Node]:
    result = dict(names)
    for change in changes:
        for name, node in change.names.items():
            if node is None:
                result.pop(name, None)
            else:
                result[name] = node
    return result


def os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)  # Python picks the right subclass


class PowerCutFiles:
    def __init__(self, rng: random.Random, root: FolderNode | None = None) -> None:
        self.rng = rng
        self.root = root or FolderNode()
        self.calls = 0
        self.now_ms = 0  # what a file that is made now will tell as its time
        self._dies_at: int | None = None
        self._dead = False
        self._siblings: list[PowerCutFiles] = [self]

    # --- life and death ---

    def another(self) -> PowerCutFiles:
        """Another process on the same disk."""
        twin = PowerCutFiles(self.rng, self.root)
        twin._siblings = self._siblings
        self._siblings.append(twin)
        return twin

    def die_after(self, calls: int) -> None:
        self._dies_at = self.calls + calls

    def kill(self) -> None:
        """The process dies; the disk, and what the kernel holds for it, stay."""
        self._dead = True

    def cut(self) -> PowerCutFiles:
        """The power goes, for every process. What is left, as the next boot finds it."""
        for files in self._siblings:
            files._dead = True
        kept: dict[int, bool] = {}
        copies: dict[int, Node] = {}
        root = self._survivor(self.root, kept, copies)
        assert isinstance(root, FolderNode)
        return PowerCutFiles(self.rng, root)

    def _survivor(self, node: Node, kept: dict[int, bool], copies: dict[int, Node]) -> Node:
        if id(node) in copies:  # hard links share one node
            return copies[id(node)]
        if isinstance(node, FileNode):
            copies[id(node)] = FileNode(
                synced=self._surviving_bytes(node),
                modified_ms=node.modified_ms,
                changed_ms=node.changed_ms,
            )
        elif isinstance(node, LinkNode):
            copies[id(node)] = LinkNode(node.target)
        else:
            folder = copies[id(node)] = FolderNode()
            changes = [change for change in node.pending if self._survives(change, kept)]
            names = apply(node.synced, changes)
            folder.synced = {name: self._survivor(child, kept, copies) for name, child in names.items()}
        return copies[id(node)]

    def _survives(self, change: Change, kept: dict[int, bool]) -> bool:
        if change.durable:
            return True
        if id(change) not in kept:
            possible = change.only_if is None or self._survives(change.only_if, kept)
            kept[id(change)] = possible and self.rng.random() < 0.5
        return kept[id(change)]

    def _surviving_bytes(self, node: FileNode) -> bytes:
        tail = b"".join(
            piece if self.rng.random() < 0.5 else bytes(len(piece))
            for chunk in node.pending
            for piece in _pieces(chunk)
        )
        return node.synced + tail[: self.rng.randint(0, len(tail))]

    def _call(self) -> None:
        if self._dead:
            raise PowerLost
        self.calls += 1
        if self._dies_at is not None and self.calls >= self._dies_at:
            self._dead = True
            raise PowerLost

    # --- names ---

    def _walk(self, path: str, *, follow: bool) -> tuple[FolderNode, str, Node | None]:
        """The folder that holds the last name, that name, and what it stands for."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        trail: list[FolderNode] = [self.root]
        followed = 0
        name = ""
        while parts:
            name = parts.pop(0)
            if name == "..":
                trail = trail[:-1] or [self.root]
                continue
            child = trail[-1].get(name)
            if isinstance(child, LinkNode) and (parts or follow):
                followed += 1
                if followed > LINKS_FOLLOWED_MAX:
                    raise os_error(errno.ELOOP, path)
                parts = [part for part in child.target.split("/") if part not in ("", ".")] + parts
                trail = [self.root] if child.target.startswith("/") else trail
            elif not parts:
                return trail[-1], name, child
            elif isinstance(child, FolderNode):
                trail.append(child)
            else:
                raise os_error(errno.ENOENT if child is None else errno.ENOTDIR, path)
        return trail[-1], "", trail[-1]

    def _get(self, path: str, *, follow: bool = True) -> Node:
        node = self._walk(path, follow=follow)[2]
        if node is None:
            raise os_error(errno.ENOENT, path)
        return node

    def _folder(self, path: str) -> FolderNode:
        node = self._get(path)
        if not isinstance(node, FolderNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def _add(self, path: str, node: Node) -> None:
        folder, name, found = self._walk(path, follow=False)
        if found is not None:
            raise os_error(errno.EEXIST, path)
        folder.pending.append(Change({name: node}))

    # --- ports.Files ---

    def below(self, _folder: str) -> PowerCutFiles:
        return self

    def create(self, path: str) -> PowerCutWriter:
        self._call()
        node = FileNode(modified_ms=self.now_ms, changed_ms=self.now_ms)
        self._add(path, node)
        return PowerCutWriter(self, node)

    def open(self, path: str) -> PowerCutReader:
        self._call()
        node = self._get(path)
        if not isinstance(node, FileNode):
            raise os_error(errno.EISDIR, path)
        return PowerCutReader(self, node)

    def exists(self, path: str) -> bool:
        self._call()
        try:
            self._get(path, follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, path: str) -> int:
        self._call()
        node = self._get(path)
        return len(node.data) if isinstance(node, FileNode) else 0

    def modified_ms(self, path: str) -> int:
        self._call()
        node = self._get(path)
        return node.modified_ms if isinstance(node, FileNode) else 0

    def times_ns(self, path: str) -> tuple[int, int]:
        self._call()
        node = self._get(path)
        assert isinstance(node, FileNode)
        return node.modified_ms * 1_000_000, node.changed_ms * 1_000_000

    def touch(self, path: str) -> None:
        self._call()
        node = self._get(path)
        if isinstance(node, FileNode):
            node.modified_ms = node.changed_ms = self.now_ms

    def listdir(self, path: str) -> list[str]:
        self._call()
        return sorted(self._folder(path).names)

    def make_dirs(self, path: str) -> None:
        parts = [part for part in path.split("/") if part]
        folders = ["/" + "/".join(parts[:depth]) for depth in range(len(parts) + 1)]
        existing = [folder for folder in folders if self.exists(folder)]
        self.fsync_dir(os.path.dirname(existing[-1]))
        for folder in folders[len(existing) :]:
            with contextlib.suppress(FileExistsError):
                self.mkdir(folder)
            self.fsync_dir(os.path.dirname(folder))

    def mkdir(self, path: str) -> None:
        self._call()
        self._add(path, FolderNode())

    def rename(self, old: str, new: str) -> None:
        self._call()
        old_folder, old_name, node = self._walk(old, follow=False)
        if node is None:
            raise os_error(errno.ENOENT, old)
        new_folder, new_name, replaced = self._walk(new, follow=False)
        if replaced is node:
            return
        if isinstance(node, FolderNode):
            if replaced is not None and not isinstance(replaced, FolderNode):
                raise os_error(errno.ENOTDIR, new)
            if isinstance(replaced, FolderNode) and replaced.names:
                raise os_error(errno.ENOTEMPTY, new)
        elif isinstance(replaced, FolderNode):
            raise os_error(errno.EISDIR, new)
        if old_folder is new_folder:
            old_folder.pending.append(Change({old_name: None, new_name: node}))
            return
        arrival = Change({new_name: node})
        new_folder.pending.append(arrival)
        old_folder.pending.append(Change({old_name: None}, only_if=arrival))

    def link(self, old: str, new: str) -> None:
        self._call()
        node = self._get(old, follow=False)
        if isinstance(node, FolderNode):
            raise os_error(errno.EPERM, old)
        self._add(new, node)
        if isinstance(node, FileNode):
            node.changed_ms = self.now_ms

    def symlink(self, target: str, path: str) -> None:
        self._call()
        self._add(path, LinkNode(target))

    def readlink(self, path: str) -> str:
        self._call()
        node = self._get(path, follow=False)
        if not isinstance(node, LinkNode):
            raise os_error(errno.EINVAL, path)
        return node.target

    def unlink(self, path: str) -> None:
        self._call()
        folder, name, node = self._walk(path, follow=False)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, FolderNode):
            raise os_error(errno.EISDIR, path)
        folder.pending.append(Change({name: None}))
        if isinstance(node, FileNode):
            node.changed_ms = self.now_ms

    def rmdir(self, path: str) -> None:
        self._call()
        folder, name, node = self._walk(path, follow=False)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if not isinstance(node, FolderNode):
            raise os_error(errno.ENOTDIR, path)
        if node.names:
            raise os_error(errno.ENOTEMPTY, path)
        folder.pending.append(Change({name: None}))

    def fsync_dir(self, path: str) -> None:
        self._call()
        folder = self._folder(path)
        for change in folder.pending:
            change.durable = True
            if change.only_if is not None:  # a departure is never on the disk without its arrival
                change.only_if.durable = True
        folder.synced, folder.pending = folder.names, []

    # --- for tests ---

    def tree(self) -> dict[str, bytes]:
        """Every file and its bytes, without counting as a call."""
        return dict(_files_below(self.root, ""))


class PowerCutWriter:
    def __init__(self, files: PowerCutFiles, node: FileNode) -> None:
        self._files = files
        self._node = node

    def write(self, data: bytes) -> None:
        try:
            self._files._call()
        except PowerLost:
            if (
                data and self._files.calls == self._files._dies_at
            ):  # the last write of a dying process is torn
                self._node.pending.append(data[: self._files.rng.randint(0, len(data))])
                self._files._dies_at = None
            raise
        if data:
            self._node.pending.append(bytes(data))

    def fsync(self) -> None:
        self._files._call()
        self._node.synced, self._node.pending = self._node.data, []

    def close(self) -> None:
        if not self._files._dead:
            self._files._call()


class PowerCutReader:
    def __init__(self, files: PowerCutFiles, node: FileNode) -> None:
        self._files = files
        self._node = node
        self._at = 0

    def read(self, size: int) -> bytes:
        self._files._call()
        data = self._node.data[self._at : self._at + size]
        self._at += len(data)
        return data

    def close(self) -> None:
        if not self._files._dead:
            self._files._call()


def _pieces(chunk: bytes) -> Iterator[bytes]:
    """A disk writes blocks, not what the program thought of as one write."""
    for at in range(0, len(chunk), 512):
        yield chunk[at : at + 512]


def _files_below(folder: FolderNode, prefix: str) -> Iterator[tuple[str, bytes]]:
    for name, node in sorted(folder.names.items()):
        if isinstance(node, FileNode):
            yield f"{prefix}/{name}", node.data
        elif isinstance(node, FolderNode):
            yield from _files_below(node, f"{prefix}/{name}")
