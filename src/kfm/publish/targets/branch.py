"""The head of a dataset on a branch: of the ledger, or of lakeFS where the configuration names a repository.

    <dataset>/data/…                              files
    <dataset>/manifest.json, collection.json, …   documents
    <dataset>/versions/00000012-0123456789ab      the version that this is; there is one such name at a time

A version is one commit. The branch's head is the fence: it is read before the database's head, and the commit
is refused if the branch has moved since.
"""

from __future__ import annotations

from collections.abc import Callable

from kfm.model.branches import Branch, Moved, NewCommit, TreeEntry
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import RefExists, StoreCorrupt, TargetUnavailable
from kfm.model.records import Manifest, Promotion
from kfm.ports import BranchWriter, Objects
from kfm.publish.catalogue import documents, in_data_folder, tombstone_of
from kfm.publish.targets.folder import HeadReader, History, is_head, lost, require_folder_name, version_name
from kfm.publish.targets.shown import ShownVersion, is_done

ATTEMPTS_MAX = 20
AUTHOR = "kfm"


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
            there = dict(branches.entries(seen.head, f"{folder}/"))
            found = head()  # only now: a branch that moves from here on refuses the commit
            if found is None:
                return None
            promotion, manifest = found
            shown = self._shown(folder, there)
            if shown is not None and is_done(self.name, shown, promotion, known):
                return promotion.sequence
            wanted = self._wanted(folder, promotion, manifest, head)
            if wanted is None:
                continue
            changes: dict[str, TreeEntry | None] = dict.fromkeys(there.keys() - wanted.keys())
            changes |= {path: entry for path, entry in wanted.items() if there.get(path) != entry}
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

    def _shown(self, folder: str, there: dict[str, TreeEntry]) -> ShownVersion | None:
        prefix = f"{folder}/versions/"
        names = [path.removeprefix(prefix) for path in there if path.startswith(prefix)]
        if not names:
            return None
        try:
            return max(map(ShownVersion.named, names))
        except ValueError:
            raise TargetUnavailable(f"{self.name}: {prefix}{names[0]} is not ours; remove it.") from None

    def _wanted(
        self, folder: str, promotion: Promotion, manifest: Manifest, head: HeadReader
    ) -> dict[str, TreeEntry] | None:
        """Every path of the version; None if it is so old by now that its objects were collected."""
        wanted: dict[str, TreeEntry] = {}
        for item in manifest.items:
            for asset in item.assets:
                if not self._objects.has(asset.sha256):
                    if not is_head(promotion, head):
                        return None
                    gone = StoreCorrupt(f"Object sha256:{asset.sha256} of {asset.path} is missing.")
                    raise lost(manifest, item, gone)
                wanted[f"{folder}/data/{asset.path}"] = TreeEntry(sha256=asset.sha256, size=asset.size)
        for name, data in documents(manifest, in_data_folder, tombstone_of(promotion)).items():
            wanted[f"{folder}/{name}"] = self._stored(data)
        pointer = {"sequence": promotion.sequence, "version_id": promotion.version_id}
        wanted[f"{folder}/versions/{version_name(promotion)}"] = self._stored(
            canonical_bytes(pointer) + b"\n"
        )
        return wanted

    def _stored(self, data: bytes) -> TreeEntry:
        staging, _ = self._objects.stage()
        try:
            staging.write(data)
            sha256, size = staging.commit()
        except BaseException:
            staging.abort()
            raise
        return TreeEntry(sha256=sha256, size=size)

    def _commit(self, promotion: Promotion, changes: dict[str, TreeEntry | None], seen: Branch) -> NewCommit:
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
