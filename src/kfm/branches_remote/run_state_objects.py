"""Run-state as versioned objects, `_run_state/{dataset_id}/{run_id}.json`, on branches kept elsewhere."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from kfm.model.branches import Commit, NewCommit, TreeEntry
from kfm.model.errors import BranchProtected, KfmError, StoreBusy, StoreCorrupt
from kfm.model.records import Node
from kfm.model.run_state import from_document, to_document
from kfm.ports import BranchWriter, Key, Objects

ROOT = "_run_state/"
ASIDE = "run-state/reverted"  # a branch for records that were reverted before they were moved here
TRIES_MAX = 10
TOGETHER = 16
RECORD_BYTES_MAX = 4 * 1024 * 1024
CACHED_MAX = 20_000
_UNSAFE = re.compile(r"[%/\x00-\x1f\x7f]|^\.{1,2}\Z")


class PreparedRecords(NamedTuple):
    """By branch: nodes, and the objects that hold their records."""

    branches: dict[str, list[tuple[Node, TreeEntry]]]


def path_of(run_id: str, dataset_id: str) -> str:
    return f"{ROOT}{_segment(dataset_id)}/{_segment(run_id)}.json"


def _segment(text: str) -> str:
    """One part of a path: what would break one is written as %XX, everything else as it is."""
    return _UNSAFE.sub(lambda found: "".join(f"%{ord(each):02X}" for each in found[0]), text)


def key_of(path: str) -> Key:
    dataset_id, _, name = path.removeprefix(ROOT).partition("/")
    return unquote(name.removesuffix(".json")), unquote(dataset_id)


class BranchRunState:
    """Implements `ports.RunStateBackend` over any branches and any object store."""

    names_commits = False  # a record is part of the commit, so it can't know its id

    def __init__(
        self,
        branches: BranchWriter,
        objects: Objects,
        *,
        author: str = "kfm",
        outputs: bool = True,  # False: move records alone
        cache: dict[str, Node] | None = None,
    ) -> None:
        self._branches = branches
        self._objects = objects
        self._author = author
        self._outputs = outputs
        self._cache: dict[str, Node] = {} if cache is None else cache  # by hash, so never stale

    def on(self, branches: BranchWriter) -> BranchRunState:
        """The same, in the midst of a transaction that the branches are part of."""
        return BranchRunState(
            branches, self._objects, author=self._author, outputs=self._outputs, cache=self._cache
        )

    # --- writing -----------------------------------------------------------------------------

    def prepare(self, nodes: Sequence[Node]) -> PreparedRecords:
        kept: dict[str, list[tuple[Node, TreeEntry]]] = {}
        for node, entry in zip(nodes, self._stored_all(nodes), strict=True):
            kept.setdefault(node.lakefs_branch, []).append((node, entry))
        return PreparedRecords(kept)

    def prepare_on(self, branch: str, nodes: Iterable[Node]) -> PreparedRecords:
        """The same records on another branch: as if it had merged them."""
        kept = list(nodes)
        return PreparedRecords({branch: list(zip(kept, self._stored_all(kept), strict=True))})

    def _stored_all(self, nodes: Sequence[Node]) -> list[TreeEntry]:
        """Each is made durable by itself, so many wait for the disk together."""
        if len(nodes) < TOGETHER:
            return [self._stored(node) for node in nodes]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(TOGETHER) as pool:
            return list(pool.map(self._stored, nodes))

    def _stored(self, node: Node) -> TreeEntry:
        staging, _resumed = self._objects.stage()
        try:
            staging.write(msgspec.json.encode(to_document(node), order="sorted") + b"\n")
            sha256, size = staging.commit()
        except BaseException:
            staging.abort()
            raise
        return TreeEntry(sha256=sha256, size=size)

    def put(self, prepared: PreparedRecords) -> None:
        for branch, records in prepared.branches.items():
            if records:
                self._commit(branch, records)

    def _commit(self, branch: str, records: Sequence[tuple[Node, TreeEntry]]) -> None:
        runs = sorted({node.run_id for node, _entry in records})
        subject = runs[0] if len(runs) == 1 else f"{len(runs)} runs"
        count = f"{len(records)} {'record' if len(records) == 1 else 'records'}"
        for _ in range(TRIES_MAX):
            found = self._branches.branch(branch) or self._branches.create(branch)
            done = self._branches.commit(
                NewCommit(
                    branch,
                    self._changes(branch, records),
                    message=f"run-state: {count} of {subject}",
                    author=self._author,
                    expected=found.head,
                    meta={"run_id": runs[0]} if len(runs) == 1 else None,
                )
            )
            if isinstance(done, Commit):
                return
        raise StoreBusy(f"The branch {branch} was moved by others {TRIES_MAX} times in a row.")

    def _changes(self, branch: str, records: Sequence[tuple[Node, TreeEntry]]) -> dict[str, TreeEntry | None]:
        changes: dict[str, TreeEntry | None] = {}
        for node, entry in records:
            changes[path_of(node.run_id, node.dataset_id)] = entry
            if self._outputs and node.outcome == "success":
                stale = (path for path, _old in self._branches.entries(branch, f"{node.dataset_id}/"))
                changes |= dict.fromkeys(stale)
                changes |= outputs_on_branch(node)
        return changes

    def revert(self, branch: str, dataset_ids: Collection[str]) -> None:
        """Whatever reverted their outputs has taken back the records as well."""

    def take_back(self, keys: Collection[Key]) -> None:
        """They leave the branches that they stand on, as a revert would have it, and are kept aside."""
        wanted = set(keys)
        for name in self._names() if wanted else []:
            if name == ASIDE:
                continue
            found = self._entries(wanted, [name])
            if found:
                paths = {path_of(*key): entry for key, entry in found.items()}
                self._move(name, dict.fromkeys(paths))
                self._move(ASIDE, dict(paths))

    def _move(self, branch: str, changes: dict[str, TreeEntry | None]) -> None:
        found = self._branches.branch(branch) or self._branches.create(branch)
        done = self._branches.commit(
            NewCommit(
                branch,
                changes,
                message="run-state: reverted records",
                author=self._author,
                expected=found.head,
            )
        )
        if not isinstance(done, Commit):
            raise StoreBusy(f"The branch {branch} was moved by others.")

    # --- reading -----------------------------------------------------------------------------

    def present(self, keys: Collection[Key], branch: str | None = None) -> set[Key]:
        """On this very branch: a record that was taken back there decides nothing, wherever else it is."""
        return set(self._entries(keys, self._names(branch)))

    def get(self, keys: Collection[Key], branch: str | None = None) -> dict[Key, Node]:
        found = self._entries(keys, self._names(branch))
        if len(found) < len(set(keys)) and branch is not None:
            found = self._entries([key for key in keys if key not in found], self._names()) | found
        return {key: self._read(entry) for key, entry in found.items()}

    def of_run(self, run_id: str, branch: str | None = None) -> Iterator[Node]:
        found: dict[Key, TreeEntry] = {}
        for name in self._names(branch) or self._names():
            found = {key: entry for key, entry in self._listed(name) if key[0] == run_id} | found
        for key in sorted(found):
            yield self._read(found[key])

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Node | None:
        wanted = (
            node
            for node in self._of_node(dataset_id, self._names(branch))
            if node.outcome == "success"
            and node.lakefs_branch == branch
            and (node.inputs_hash, node.code_sha) == (inputs_hash, code_sha)
        )
        return max(wanted, key=_age, default=None)

    def history(self, dataset_id: str, branch: str | None, limit: int) -> list[Node]:
        found = [
            node
            for node in self._of_node(dataset_id, self._names(branch))
            if branch is None or node.lakefs_branch == branch
        ]
        return sorted(found, key=_age, reverse=True)[:limit]

    def rows(self) -> Iterator[Node]:
        found: dict[Key, TreeEntry] = {}
        for name in self._names():
            found = dict(self._listed(name)) | found
        for key in sorted(found):
            yield self._read(found[key])

    def reverted(self) -> set[Key]:
        return {key for name in self._names(ASIDE) for key, _entry in self._listed(name)}

    def _names(self, branch: str | None = None) -> list[str]:
        if branch is None:
            return [each.name for each in self._branches.branches()]
        return [branch] if self._branches.branch(branch) is not None else []

    def _entries(self, keys: Iterable[Key], names: Iterable[str]) -> dict[Key, TreeEntry]:
        wanted: Mapping[str, Key] = {path_of(*key): key for key in keys}
        found: dict[Key, TreeEntry] = {}
        for name in names:
            there = self._branches.lookup(name, wanted)
            found = {wanted[path]: entry for path, entry in there.items()} | found
        return found

    def _listed(self, branch: str, dataset_id: str | None = None) -> Iterator[tuple[Key, TreeEntry]]:
        prefix = ROOT if dataset_id is None else f"{ROOT}{_segment(dataset_id)}/"
        for path, entry in self._branches.entries(branch, prefix):
            yield key_of(path), entry

    def _of_node(self, dataset_id: str, names: Iterable[str]) -> Iterator[Node]:
        found: dict[Key, TreeEntry] = {}
        for name in names:
            found = dict(self._listed(name, dataset_id)) | found
        return map(self._read, found.values())

    def _read(self, entry: TreeEntry) -> Node:
        node = self._cache.get(entry.sha256)
        if node is None:
            if entry.size > RECORD_BYTES_MAX:
                raise StoreCorrupt(f"The record {entry.sha256} has {entry.size} bytes.")
            with contextlib.closing(self._objects.open(entry.sha256)) as reader:
                data = b"".join(iter(lambda: reader.read(1024 * 1024), b""))
            try:
                node = from_document(msgspec.json.decode(data))
            except (msgspec.MsgspecError, KfmError) as error:
                raise StoreCorrupt(f"The record {entry.sha256} can't be read: {error}") from None
            if len(self._cache) >= CACHED_MAX:
                self._cache.clear()
            self._cache[entry.sha256] = node
        return node


def outputs_on_branch(node: Node) -> dict[str, TreeEntry]:
    """Where a node's outputs stand. Files that it wrote itself are not there."""
    return {
        f"{node.dataset_id}/{each.name}": TreeEntry(
            sha256=each.checksum.removeprefix("sha256:"), size=each.size
        )
        for each in node.outputs
        if each.kind == "object"
    }


def _age(node: Node) -> tuple[int, str]:
    return node.recorded_at_ms, node.run_id


def newest(nodes: Iterable[Node]) -> Node:
    return max(nodes, key=_age)


class RemoteBranchRunState(BranchRunState):
    """Implements `ports.RunStateBackend` for branches that the ledger does not keep. `bring`
    fetches what a branch has and the object store has not: written elsewhere, or collected here."""

    def __init__(
        self,
        branches: BranchWriter,
        objects: Objects,
        bring: Callable[[str, str], TreeEntry],
        author: str = "kfm",
    ) -> None:
        super().__init__(branches, objects, author=author)
        self._bring = bring

    def _entries(self, keys: Iterable[Key], names: Iterable[str]) -> dict[Key, TreeEntry]:
        found: dict[Key, TreeEntry] = {}
        wanted = list(keys)
        for name in names:
            there = super()._entries([key for key in wanted if key not in found], [name])
            found |= {key: self._at_hand(name, path_of(*key), entry) for key, entry in there.items()}
        return found

    def _listed(self, branch: str, dataset_id: str | None = None) -> Iterator[tuple[Key, TreeEntry]]:
        for key, entry in super()._listed(branch, dataset_id):
            yield key, self._at_hand(branch, path_of(*key), entry)

    def _at_hand(self, branch: str, path: str, entry: TreeEntry) -> TreeEntry:
        if entry.sha256 in self._cache or self._objects.size_of(entry.sha256) == entry.size:
            return entry
        return self._bring(branch, path)

    def require_open(self, branch: str) -> None:
        found = self._branches.branch(branch)
        if found is not None and found.protected:
            raise BranchProtected(
                f"`{branch}` is protected, so no pipeline run works on it.",
                remedy=f"Work on another (`kfm branch create run/NAME --from {branch}`), and merge.",
            )

    def head(self, branch: str) -> str | None:
        found = self._branches.branch(branch)
        return found.head if found is not None else None

    def records(self, branch: str) -> tuple[set[Key], dict[str, Node]]:
        """All records of a branch by their keys, and of each node its newest success."""
        entries = {key: entry for name in self._names(branch) for key, entry in self._listed(name)}
        best: dict[str, Node] = {}
        for entry in entries.values():
            node = self._read(entry)
            if node.outcome == "success":
                best[node.dataset_id] = newest((best.get(node.dataset_id, node), node))
        return set(entries), best

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Node | None:
        wanted = [
            node
            for node in self._of_node(dataset_id, self._names(branch))
            if node.outcome == "success" and (node.inputs_hash, node.code_sha) == (inputs_hash, code_sha)
        ]
        return newest(wanted) if wanted else None

    def history(self, dataset_id: str, branch: str | None, limit: int) -> list[Node]:
        found = list(self._of_node(dataset_id, self._names(branch)))
        return sorted(found, key=lambda node: (node.recorded_at_ms, node.run_id), reverse=True)[:limit]
