"""The head of a dataset on a branch: of the ledger, or of lakeFS where the configuration names a repository.

    <dataset>/data/…                              files
    <dataset>/manifest.json, collection.json, …   documents, as in a version's folder
    <dataset>/versions/00000012-0123456789ab      the version that this is; there is one such name at a time

A version is one commit, of what differs from the version that the branch shows. The branch's head is the
fence: it is read before the database's head, and the commit is refused if the branch has moved since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kfm.model.branches import Branch, Moved, NewCommit, TreeEntry
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import RefExists, StoreCorrupt, TargetUnavailable
from kfm.model.records import Promotion
from kfm.model.versions import Version
from kfm.ports import BranchWriter, Objects, PublishedVersions
from kfm.publish.catalogue import NamedDocuments, tombstone_of
from kfm.publish.catalogue.addresses import COLLECTION, WITHDRAWN
from kfm.publish.catalogue.pages import Earlier
from kfm.publish.targets.folder import HeadReader, History, is_head, require_folder_name, version_name
from kfm.publish.targets.folder_builder import COPY_BYTES, lost
from kfm.publish.targets.shown import ShownVersion, is_done

ATTEMPTS_MAX = 20
AUTHOR = "kfm"

Changes = dict[str, TreeEntry | None]


class BranchTree:
    """Commits heads onto a branch."""

    def __init__(
        self, name: str, branches: Callable[[], BranchWriter], objects: Objects, branch: str
    ) -> None:
        """`branches` is asked for when something is projected: they may lie on a server."""
        self.name = name
        self._open = branches
        self._objects = objects
        self._branch = branch

    def project(self, dataset_id: str, head: HeadReader, known: History | None = None) -> int | None:
        folder = require_folder_name(dataset_id)
        branches = self._open()
        for _ in range(ATTEMPTS_MAX):
            seen = self._seen(branches)
            pointers = [path for path, _ in branches.entries(seen.head, f"{folder}/versions/")]
            found = head()  # only now: a branch that moves from here on refuses the commit
            if found is None:
                return None
            promotion, version = found
            shown = self._shown(folder, pointers)
            if shown is not None and is_done(self.name, shown, promotion, known):
                return promotion.sequence
            earlier = self._earlier(branches, seen, folder, shown, known)
            wanted = self._wanted(folder, promotion, version, earlier, head)
            if wanted is None:
                continue
            there = branches.entries(seen.head, f"{folder}/") if earlier is None else ()
            wanted = dict.fromkeys([*pointers, *(path for path, _ in there)]) | wanted
            known_now = branches.lookup(seen.head, wanted)
            changes = {path: entry for path, entry in wanted.items() if known_now.get(path) != entry}
            if not isinstance(branches.commit(self._commit(promotion, changes, seen)), Moved):
                return promotion.sequence
        raise TargetUnavailable(f"{self.name}: `{self._branch}` moved {ATTEMPTS_MAX} times meanwhile.")

    def _seen(self, branches: BranchWriter) -> Branch:
        found = branches.branch(self._branch)
        if found is None:
            try:
                return branches.create(self._branch)
            except RefExists:
                found = branches.branch(self._branch)
        if found is None:
            raise TargetUnavailable(
                f"{self.name}: there is no branch `{self._branch}`, and none can be made."
            )
        return found

    def _shown(self, folder: str, pointers: list[str]) -> ShownVersion | None:
        prefix = f"{folder}/versions/"
        names = [path.removeprefix(prefix) for path in pointers]
        if not names:
            return None
        try:
            return max(map(ShownVersion.named, names))
        except ValueError:
            raise TargetUnavailable(f"{self.name}: {prefix}{names[0]} is not ours; remove it.") from None

    def _earlier(
        self,
        branches: BranchWriter,
        seen: Branch,
        folder: str,
        shown: ShownVersion | None,
        known: History | None,
    ) -> Earlier | None:
        """The version that the branch shows, if what it has of it can be known. Versions of before (form 1)
        may have other names for their documents."""
        if shown is None or not isinstance(known, PublishedVersions):
            return None
        version = known.version(shown.sequence)
        entry = branches.lookup(seen.head, [f"{folder}/{COLLECTION}"]).get(f"{folder}/{COLLECTION}")
        if version is None or version.form == 1 or entry is None:
            return None
        return Earlier(version, self._read(entry))

    def _read(self, entry: TreeEntry) -> bytes | None:
        """None, if the object is not there: what is not known is made again."""
        try:
            reader = self._objects.open(entry.sha256)
        except StoreCorrupt:
            return None
        try:
            return b"".join(iter(lambda: reader.read(COPY_BYTES), b""))
        finally:
            reader.close()

    def _wanted(
        self,
        folder: str,
        promotion: Promotion,
        version: Version,
        earlier: Earlier | None,
        head: HeadReader,
    ) -> Changes | None:
        """The paths that differ; None if it is so old by now that its objects were collected."""
        wanted: Changes = {}
        for change in version.changed_files(earlier.version if earlier else None):
            if change.after is not None and not self._objects.has(change.after.sha256):
                if not is_head(promotion, head):
                    return None
                raise _gone(version, change.path, change.after)
            wanted[f"{folder}/data/{change.path}"] = change.after
        for name, data in self._documents(promotion, version, earlier):
            wanted[f"{folder}/{name}"] = None if data is None else self._stored(data)
        pointer = {"sequence": promotion.sequence, "version_id": promotion.version_id}
        wanted[f"{folder}/versions/{version_name(promotion)}"] = self._stored(
            canonical_bytes(pointer) + b"\n"
        )
        return wanted

    def _documents(
        self, promotion: Promotion, version: Version, earlier: Earlier | None
    ) -> Iterator[tuple[str, bytes | None]]:
        made = NamedDocuments(version, earlier)
        yield WITHDRAWN, None
        yield from made.changed()
        yield from made.own(tombstone_of(promotion)).items()

    def _stored(self, data: bytes) -> TreeEntry:
        staging, _ = self._objects.stage()
        try:
            staging.write(data)
            sha256, size = staging.commit()
        except BaseException:
            staging.abort()
            raise
        return TreeEntry(sha256=sha256, size=size)

    def _commit(self, promotion: Promotion, changes: Changes, seen: Branch) -> NewCommit:
        return NewCommit(
            self._branch,
            changes,
            message=f"{promotion.dataset_id}: version {promotion.sequence}",
            author=AUTHOR,
            expected=seen.head,
            meta={
                "dataset_id": promotion.dataset_id,
                "sequence": promotion.sequence,
                "version_id": promotion.version_id,
                "run_id": promotion.run_id,
            },
        )


def _gone(version: Version, path: str, entry: TreeEntry) -> StoreCorrupt:
    owner = next(one for one in version.items() if any(asset.path == path for asset in one.assets))
    return lost(
        version.dataset_id, owner, StoreCorrupt(f"Object sha256:{entry.sha256} of {path} is missing.")
    )
