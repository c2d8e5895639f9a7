"""Reader of the branches of a lakeFS repository. Only committed states are read, by their commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice, takewhile
from typing import Any

import msgspec

from kfm.branches_remote.lakefs_client import TEMPORARY, Client, from_server, status_of, to_server
from kfm.model import branches
from kfm.model.branches import Branch, Commit, PathChange, Proposal, Tag, TreeEntry
from kfm.model.errors import BranchesUnavailable, RefNameInvalid, RefNotFound
from kfm.ports import Objects

PAGE = 1000
SINGLY_MAX = 20  # more paths than these are looked up by listing
CACHED_MAX = 10_000
LOG_MAX = 100_000
SHA256 = "kfm-sha256"  # of an object: metadata that we give it
AUTHOR, META, CHANGE, SILENT = "kfm.author", "kfm.meta", "kfm.change", "kfm.silent"  # of a commit


class LakefsBranchReader:
    """Implements `ports.BranchReader`."""

    def __init__(self, client: Client, objects: Objects, epoch: Callable[[], int] = lambda: 0) -> None:
        self._client = client
        self._objects = objects
        self._epoch = epoch
        self._commits: dict[str, Commit] = {}
        self._hashes: dict[tuple[str, str], TreeEntry] = {}

    # --- branches, tags, commits -------------------------------------------------------------

    def branches(self) -> list[Branch]:
        rules = self._rules()
        found = [
            self._branch_from(each, rules)
            for each in self._pages("branches", "list_branches")
            if not each.id.startswith(TEMPORARY)
        ]
        return sorted(found, key=lambda each: each.name)

    def branch(self, name: str) -> Branch | None:
        found = self._ref("branches", "get_branch", to_server(name)) if _is_name(name) else None
        return self._branch_from(found, self._rules()) if found is not None else None

    def _branch_from(self, found: Any, rules: list[str]) -> Branch:
        moved_at_ms = self._commit(found.commit_id).at_ms
        return Branch(
            name=from_server(found.id),
            head=found.commit_id,
            protected=any(fnmatchcase(found.id, rule) for rule in rules),
            state_commit=None,
            created_at_ms=moved_at_ms,  # lakeFS does not know when a branch was made
            moved_at_ms=moved_at_ms,
        )

    def _rules(self) -> list[str]:
        found = self._client.ask("repositories", "get_branch_protection_rules")
        return [rule.pattern for rule in found]

    def tags(self) -> list[Tag]:
        return [self._tag_from(each) for each in self._pages("tags", "list_tags")]

    def _tag_from(self, found: Any) -> Tag:
        at_ms = self._commit(found.commit_id).at_ms
        return Tag(name=found.id, commit_id=found.commit_id, message="", author="", at_ms=at_ms)

    def resolve(self, ref: str) -> Commit:
        name, steps = branches.split_ref(ref)
        commit = self._named(name)
        if not steps:
            return commit
        line = self.log(commit.commit_id, limit=steps + 1)
        if len(line) <= steps:
            raise RefNotFound(f"`{ref[:80]}`: `{name}` has only {len(line) - 1} commits before it.")
        return line[steps]

    def _named(self, name: str) -> Commit:
        if _is_name(name):
            found = self._ref("branches", "get_branch", to_server(name)) or self._ref("tags", "get_tag", name)
            if found is not None:
                return self._commit(found.commit_id)
        if branches.is_commit_prefix(name):
            try:
                return self._commit(name)
            except BranchesUnavailable as error:
                if status_of(error) not in (400, 404):
                    raise
        raise RefNotFound(f"`{name[:80]}` names none.")

    def _ref(self, api: str, method: str, name: str) -> Any:
        try:
            return self._client.ask(api, method, name)
        except BranchesUnavailable as error:
            if status_of(error) == 404:
                return None
            raise

    def _commit(self, commit_id: str) -> Commit:
        found = self._commits.get(commit_id)
        return (
            found if found is not None else self._kept(self._client.ask("commits", "get_commit", commit_id))
        )

    def _kept(self, document: Any) -> Commit:
        if len(self._commits) >= CACHED_MAX:
            self._commits.clear()
        made = self._commits[document.id] = commit_from(document)
        return made

    def log(self, ref: str, *, limit: int = 50, first_parent: bool = True) -> list[Commit]:
        start = self.resolve(ref).commit_id
        found = self._pages(
            "refs", "log_commits", start, first_parent=first_parent, amount=max(1, min(limit, PAGE))
        )
        return [self._kept(each) for each in islice(found, min(limit, LOG_MAX))]

    # --- entries -----------------------------------------------------------------------------

    def entries(self, ref: str, prefix: str = "") -> Iterator[tuple[str, TreeEntry]]:
        return self._listed(self.resolve(ref).commit_id, prefix)

    def _listed(self, commit_id: str, prefix: str) -> Iterator[tuple[str, TreeEntry]]:
        found = self._pages("objects", "list_objects", commit_id, prefix=prefix, user_metadata=True)
        for each in found:
            if each.path_type == "object":
                yield each.path, self._entry(commit_id, each)

    def lookup(self, ref: str, paths: Iterable[str]) -> dict[str, TreeEntry]:
        return self._lookup(self.resolve(ref).commit_id, paths)

    def _lookup(self, commit_id: str, paths: Iterable[str]) -> dict[str, TreeEntry]:
        wanted = set(paths)
        if len(wanted) > SINGLY_MAX:
            last = max(wanted)
            found: dict[str, TreeEntry] = {}
            for path, entry in self._listed(commit_id, _shared_beginning(min(wanted), last)):
                if path > last:
                    break
                if path in wanted:
                    found[path] = entry
            return found
        stats = {path: self._stat(commit_id, path) for path in sorted(wanted)}
        return {path: self._entry(commit_id, each) for path, each in stats.items() if each is not None}

    def _stat(self, commit_id: str, path: str) -> Any:
        try:
            return self._client.ask("objects", "stat_object", commit_id, path, user_metadata=True)
        except BranchesUnavailable as error:
            if status_of(error) == 404:
                return None
            raise

    def _entry(self, commit_id: str, stats: Any) -> TreeEntry:
        """By what we noted when we put it there. What others put there is read and hashed once."""
        for name, value in (stats.metadata or {}).items():
            if name.lower().endswith(SHA256):
                return TreeEntry(sha256=value, size=stats.size_bytes or 0)
        known = (stats.physical_address, stats.checksum)
        if known not in self._hashes:
            if len(self._hashes) >= CACHED_MAX:
                self._hashes.clear()
            self._hashes[known] = self._fetched(commit_id, stats.path)
        return self._hashes[known]

    def bring(self, ref: str, path: str) -> TreeEntry:
        """The bytes of a path into the object store, where they may not be yet."""
        commit_id = self.resolve(ref).commit_id
        found = self._lookup(commit_id, [path])
        if path not in found:
            raise RefNotFound(f"`{ref[:80]}` holds no `{path[:200]}`.")
        if self._objects.size_of(found[path].sha256) == found[path].size:
            return found[path]
        return self._fetched(commit_id, path)

    def _fetched(self, commit_id: str, path: str) -> TreeEntry:
        def take(chunks: Iterator[bytes]) -> TreeEntry:
            staging, _offset = self._objects.stage()
            try:
                for chunk in chunks:
                    staging.write(chunk)
                sha256, size = staging.commit()
            except BaseException:
                staging.abort()
                raise
            return TreeEntry(sha256=sha256, size=size)

        entry = self._client.download(commit_id, path, take)
        assert isinstance(entry, TreeEntry)
        return entry

    # --- comparing ---------------------------------------------------------------------------

    def diff(self, old: str, new: str, prefix: str = "") -> Iterator[PathChange]:
        return self._diff(self.resolve(old).commit_id, self.resolve(new).commit_id, prefix)

    def _diff(self, old: str, new: str, prefix: str = "") -> Iterator[PathChange]:
        found = self._differing(old, new, "two_dot", prefix)
        while page := list(islice(found, PAGE)):
            paths = [path for path, _kind in page]
            before, after = self._lookup(old, paths), self._lookup(new, paths)
            for path in paths:
                yield PathChange(path=path, before=before.get(path), after=after.get(path))

    def _differing(self, left: str, right: str, kind: str, prefix: str = "") -> Iterator[tuple[str, str]]:
        found = self._pages("refs", "diff_refs", left, right, type=kind, prefix=prefix)
        return ((each.path, each.type) for each in found if each.path_type == "object")

    def propose(self, source: str, into: str) -> Proposal:
        target = self.branch(into)
        if target is None:
            raise RefNotFound(f"There is no branch `{into[:80]}`.")
        other = self.resolve(source).commit_id
        return Proposal(
            source=source,
            source_head=other,
            target=into,
            target_head=target.head,
            bases=(self._base(other, into),),
            policy_epoch=self._epoch(),
        )

    def _base(self, commit_id: str, branch: str) -> str:
        """The one common ancestor that lakeFS merges by."""
        found = self._client.ask("refs", "find_merge_base", commit_id, to_server(branch))
        return str(found.base_commit_id)

    def _pages(self, api: str, method: str, *args: Any, **options: Any) -> Iterator[Any]:
        after = ""
        asked = {"amount": PAGE, **options}
        while True:
            page = self._client.ask(api, method, *args, after=after, **asked)
            yield from page.results
            if not page.pagination.has_more:
                return
            assert page.pagination.next_offset != after, "lakeFS answered the same page again"
            after = page.pagination.next_offset


def commit_from(found: Any) -> Commit:
    kept = dict(found.metadata or {})
    meta: dict[str, Any] = kept
    if META in kept:
        with suppress(msgspec.MsgspecError):  # it was not written by kfm
            meta = msgspec.json.decode(kept[META], type=dict[str, Any])
    return Commit(
        commit_id=found.id,
        tree_id=found.meta_range_id,
        parents=tuple(found.parents),
        message="" if SILENT in kept else found.message,
        author=kept.get(AUTHOR, found.committer),
        at_ms=found.creation_date * 1000,  # lakeFS counts seconds
        meta=meta,
        generation=found.generation or 0,
    )


def _is_name(name: str) -> bool:
    try:
        return branches.check_name(name) == name
    except RefNameInvalid:
        return False


def _shared_beginning(first: str, last: str) -> str:
    """Of the first and the last in order, and so of all between them."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(one for one, _other in same)
