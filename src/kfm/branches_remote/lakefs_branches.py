"""Branches on a lakeFS server: commits, merges, reverts; names, tags and protections."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from kfm.branches_remote.lakefs_client import TEMPORARY, Client, reason_of, refusal_of, status_of, to_server
from kfm.branches_remote.lakefs_reader import AUTHOR, CHANGE, META, SHA256, SILENT, LakefsBranchReader
from kfm.model import branches
from kfm.model.branches import (
    CONFLICTS_SHOWN_MAX,
    Branch,
    Commit,
    Conflict,
    Decided,
    Merged,
    Moved,
    NewCommit,
    PathChange,
    Preference,
    Proposal,
    Tag,
    TreeEntry,
)
from kfm.model.errors import (
    BranchesUnavailable,
    BranchMoved,
    BranchProtected,
    GateDenied,
    KfmError,
    RefExists,
    RefNotFound,
    UsageError,
)
from kfm.model.records import GovernanceEntry, Justification, governance_entry
from kfm.ports import Clock, Ids, Objects

ROUNDS_MAX = 5  # how often others may be faster


class LakefsRefs(LakefsBranchReader):
    """The part of `ports.Branches` that gives and takes names."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        ids: Ids,
        clock: Clock,
        record: Callable[[GovernanceEntry], None] = lambda _entry: None,
        epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(client, objects, epoch)
        self._ids = ids
        self._clock = clock
        self._record = record
        self._root: str | None = None

    # --- refs --------------------------------------------------------------------------------

    def create(self, name: str, at: str | None = None, *, why: Justification | None = None) -> Branch:
        branches.check_name(name)
        start = self.resolve(at).commit_id if at is not None else self._first_commit()
        if self._ref("tags", "get_tag", name) is not None:
            raise RefExists(f"`{name}` is a tag.")
        if not self._made(to_server(name), start):
            raise RefExists(f"`{name}` is a branch.")
        made = self._held(name)
        self._tell("branch-create", f"branch:{name}", why, head=made.head)
        return made

    def _made(self, server_name: str, start: str, *, hidden: bool = False) -> bool:
        wanted = self._client.sdk.BranchCreation(name=server_name, source=start, hidden=hidden)
        return self._unless_there("branches", "create_branch", wanted)

    def _unless_there(self, api: str, method: str, wanted: Any) -> bool:
        """False if there was one. After a lost answer, what is there is taken for our own."""
        tries = 0

        def attempt(timeout_ms: int) -> bool:
            nonlocal tries
            tries += 1
            try:
                self._client.once(timeout_ms, api, method, wanted)
            except BranchesUnavailable as error:
                if status_of(error) != 409:
                    raise
                return tries > 1
            return True

        return bool(self._client.guarded(attempt))

    def _first_commit(self) -> str:
        if self._root is None:
            home = self._client.ask("repositories", "get_repository").default_branch
            *_, last = self._pages("refs", "log_commits", home, first_parent=True)
            self._root = str(last.id)
        return self._root

    def delete(self, name: str, *, why: Justification, expected: str | None = None) -> Branch | Moved:
        held = self._held(name)
        if moved := branches.moved_from(held, expected):
            return moved
        if held.protected:
            raise BranchProtected(
                f"`{name}` is not deleted.", remedy=f"First `kfm branch protect {name} --off`."
            )
        self._gone("branches", "delete_branch", to_server(name))
        self._tell("branch-delete", f"branch:{name}", why, head=held.head)
        return held

    def _gone(self, api: str, method: str, name: str) -> None:
        try:
            self._client.ask(api, method, name)
        except BranchesUnavailable as error:
            if status_of(error) != 404:
                raise

    def tag(self, name: str, ref: str, *, message: str, author: str, why: Justification | None = None) -> Tag:
        branches.check_name(name)
        del message, author  # lakeFS keeps neither
        commit = self.resolve(ref)
        if self.branch(name) is not None:
            raise RefExists(f"`{name}` is a branch.")
        wanted = self._client.sdk.TagCreation(id=name, ref=commit.commit_id)
        if not self._unless_there("tags", "create_tag", wanted):
            raise RefExists(f"`{name}` is a tag, and tags do not move.")
        self._tell("tag-create", f"tag:{name}", why, commit=commit.commit_id)
        return Tag(name=name, commit_id=commit.commit_id, message="", author="", at_ms=commit.at_ms)

    def delete_tag(self, name: str, *, why: Justification) -> Tag:
        found = self._ref("tags", "get_tag", name)
        if found is None:
            raise RefNotFound(f"There is no tag `{name[:80]}`.")
        self._gone("tags", "delete_tag", name)
        self._tell("tag-delete", f"tag:{name}", why, commit=found.commit_id)
        return self._tag_from(found)

    def protect(self, name: str, on: bool, *, why: Justification) -> Branch:
        """By a rule on the server, which then refuses direct writes by all clients, too."""
        held = self._held(name)
        if held.protected == on:
            return held
        for _ in range(ROUNDS_MAX):
            answer = self._client.ask("repositories", "get_branch_protection_rules_with_http_info")
            kept = [rule for rule in answer.data if rule.pattern != to_server(name)]
            if on:
                kept.append(self._client.sdk.BranchProtectionRule(pattern=to_server(name)))
            try:
                self._client.ask(
                    "repositories",
                    "set_branch_protection_rules",
                    kept,
                    if_match=(answer.headers or {}).get("ETag"),
                )
            except BranchesUnavailable as error:
                if status_of(error) != 412:
                    raise
                continue
            return self._protected(name, on, why)
        raise BranchMoved(f"The rules of protection changed {ROUNDS_MAX} times meanwhile.")

    def _protected(self, name: str, on: bool, why: Justification) -> Branch:
        made = self._held(name)
        if made.protected != on:
            raise UsageError(
                f"Another rule on the server protects `{name}`, by a pattern that is not its name.",
                remedy="Change that rule on the server.",
            )
        self._tell("branch-protect" if on else "branch-unprotect", f"branch:{name}", why, head=made.head)
        return made

    # --- inside ------------------------------------------------------------------------------

    def _held(self, name: str) -> Branch:
        found = self.branch(name)
        if found is None:
            raise RefNotFound(f"There is no branch `{name[:80]}`.")
        return found

    def _tell(self, kind: str, subject: str, why: Justification | None, **details: Any) -> None:
        if why is None:
            return
        self._record(
            governance_entry(
                kind, subject, self._clock.now_ms(), why, **details, lakefs=self._client.repository
            )
        )


DELETED_AT_ONCE_MAX = 1000
PATH_BYTES_MAX = 1024  # lakeFS counts bytes
RECENT = 100  # commits among which a change is looked for whose answer was lost
STRATEGIES = {"source": "source-wins", "target": "dest-wins"}

# What the port promises and lakeFS can't: one reason each.
CANNOT: dict[str, str] = {
    "compare-and-set": "lakeFS takes no expected head: of two who saw the same head both may land, one on "
    "top of the other; about a path that both changed the second gets an error",
    "one-transaction": "a change on the server and its entry in the audit log are two steps",
    "files-or-folders": "keys are flat: `a` and `a/b` can stand beside each other",
    "several-bases": "of several common ancestors lakeFS merges by one",
    "tag-words": "a tag has a name and a commit, no message and no author",
    "first-branch": "a repository has its default branch, and a first commit, from the beginning",
    "prefer-in-revert": "a revert with conflicts can't be decided for one side",
    "garbage": "the server collects its own",
}


class LakefsBranches(LakefsRefs):
    """Implements `ports.Branches`, but for what `CANNOT` names."""

    def commit(self, new: NewCommit) -> Commit | Moved:
        branches.check_changes(new.changes)
        _check_lengths(new.changes)
        words = _words(new.message, new.author, new.meta)
        for _ in range(ROUNDS_MAX):
            held = self._held(new.branch)
            if moved := branches.moved_from(held, new.expected):
                return moved
            branches.refuse_protected(held)
            there = self._lookup(held.head, new.changes)
            needed = {path: entry for path, entry in new.changes.items() if there.get(path) != entry}
            if not needed:
                return self._commit(held.head)
            done = self._changed(held, lambda temporary: self._staged(temporary, needed), words)  # noqa: B023
            if done is not None:
                return done
        raise BranchMoved(f"`{new.branch}` moved {ROUNDS_MAX} times meanwhile.")

    def _staged(self, temporary: str, changes: Mapping[str, TreeEntry | None]) -> None:
        for path, entry in changes.items():
            if entry is not None:
                body = partial(self._objects.open, entry.sha256)
                self._client.upload(temporary, path, body, entry.size, {SHA256: entry.sha256})
        removed = iter([path for path, entry in changes.items() if entry is None])
        while batch := list(islice(removed, DELETED_AT_ONCE_MAX)):
            answer = self._client.ask(
                "objects", "delete_objects", temporary, self._client.sdk.PathList(paths=batch)
            )
            if wrong := [each for each in answer.errors if each.status_code != 404]:
                raise BranchesUnavailable(f"lakeFS did not remove {wrong[0].path}: {wrong[0].message}.")
        wanted = self._client.sdk.CommitCreation(message="kfm")
        self._tolerating_none("commits", "commit", temporary, wanted)

    def _tolerating_none(self, api: str, method: str, *args: Any) -> bool:
        """False if the server found no change; after a lost answer that means: it is done."""
        tries = 0

        def attempt(timeout_ms: int) -> bool:
            nonlocal tries
            tries += 1
            try:
                self._client.once(timeout_ms, api, method, *args)
            except BranchesUnavailable as error:
                if refusal_of(error) != "no-changes":
                    raise
                return tries > 1
            return True

        return bool(self._client.guarded(attempt))

    def _changed(
        self, held: Branch, prepare: Callable[[str], None], words: tuple[str, dict[str, str]]
    ) -> Commit | None:
        """What was prepared on a branch of its own, as one commit on this one; None: others were faster."""
        temporary = TEMPORARY + to_server(self._ids.new())
        try:
            self._made(temporary, held.head, hidden=True)
            prepare(temporary)
            return self._merged(temporary, held.name, words, squash_merge=True)
        finally:
            with contextlib.suppress(KfmError):  # it is hidden, and does no harm
                self._gone("branches", "delete_branch", temporary)

    def _merged(self, source: str, into: str, words: tuple[str, dict[str, str]], **how: Any) -> Commit | None:
        """The commit, or None where both sides changed a path."""
        message, metadata = words
        change = self._ids.new()
        wanted = self._client.sdk.Merge(message=message, metadata={**metadata, CHANGE: change}, **how)
        tries = 0

        def attempt(timeout_ms: int) -> str:
            nonlocal tries
            tries += 1
            if tries > 1 and (found := self._landed(timeout_ms, into, change)):
                return found
            answer = self._client.once(
                timeout_ms, "refs", "merge_into_branch", source, to_server(into), merge=wanted
            )
            return str(answer.reference)

        try:
            return self._commit(self._client.guarded(attempt))
        except BranchesUnavailable as error:
            if status_of(error) == 409:
                return None
            raise _merge_refused(error, into) from None

    def _landed(self, timeout_ms: int, branch: str, change: str) -> str | None:
        recent = self._client.once(
            timeout_ms, "refs", "log_commits", to_server(branch), first_parent=True, amount=RECENT
        )
        return next((each.id for each in recent.results if (each.metadata or {}).get(CHANGE) == change), None)

    # --- merges and reverts ------------------------------------------------------------------

    def merge(
        self,
        proposal: Proposal,
        *,
        message: str,
        author: str,
        gated: bool = False,
        prefer: Preference | None = None,
        why: Justification | None = None,
    ) -> Merged | Moved:
        words = _words(message, author, None)
        seen = self.resolve(proposal.source).commit_id
        if seen != proposal.source_head:
            return Moved(branch=proposal.source, expected=proposal.source_head, actual=seen)
        if gated and (epoch := self._epoch()) != proposal.policy_epoch:
            return Moved(
                branch=proposal.target, expected=f"epoch {proposal.policy_epoch}", actual=f"epoch {epoch}"
            )
        held = self._held(proposal.target)
        if moved := branches.moved_from(held, proposal.target_head):
            return moved
        branches.refuse_protected(held, gated)
        base = self._base(seen, held.name)
        if base == seen:
            return Merged(outcome="unchanged", target=held.name, commit=self._commit(held.head))
        how = {"strategy": STRATEGIES[prefer]} if prefer else {}
        done = self._merged(seen, held.name, words, allow_empty=True, **how)
        if done is None:
            found = self._differing(held.head, seen, "three_dot")
            paths = [path for path, kind in found if kind == "conflict"]
            return self._disagreed(held, paths, base, held.head, seen)
        return self._told(held, done, "branch-merge", why, source=proposal.source)

    def revert(
        self,
        branch: str,
        ref: str,
        *,
        message: str,
        author: str,
        expected: str | None = None,
        gated: bool = False,
        prefer: Preference | None = None,
        why: Justification | None = None,
    ) -> Merged | Moved:
        undone = self.resolve(ref)
        words = _words(message, author, {"reverts": undone.commit_id})
        if prefer is not None:
            raise UsageError(f"On lakeFS {CANNOT['prefer-in-revert']}.")
        for _ in range(ROUNDS_MAX):
            held = self._held(branch)
            if moved := branches.moved_from(held, expected):
                return moved
            branches.refuse_protected(held, gated)
            self._require_own(undone, held)
            try:
                done = self._changed(held, lambda temporary: self._taken_back(temporary, undone), words)
            except _Nothing:
                return Merged(outcome="unchanged", target=branch, commit=self._commit(held.head))
            except BranchesUnavailable as error:
                if status_of(error) != 409:
                    raise
                return self._not_taken_back(held, undone)
            if done is not None:
                return self._told(held, done, "branch-revert", why, reverts=undone.commit_id)
        raise BranchMoved(f"`{branch}` moved {ROUNDS_MAX} times meanwhile.")

    def _require_own(self, undone: Commit, held: Branch) -> None:
        if not undone.parents:
            raise UsageError("The first commit of all can't be reverted: there is nothing before it.")
        if self._base(undone.commit_id, held.name) != undone.commit_id:
            raise RefNotFound(f"The commit {undone.commit_id[:12]} is no part of `{held.name}`.")

    def _taken_back(self, temporary: str, undone: Commit) -> None:
        wanted = self._client.sdk.RevertCreation(
            ref=undone.commit_id, parent_number=1 if len(undone.parents) > 1 else 0
        )
        if not self._tolerating_none("branches", "revert_branch", temporary, wanted):
            raise _Nothing

    def _not_taken_back(self, held: Branch, undone: Commit) -> Merged:
        """lakeFS reports that there are conflicts, not where."""
        later = self._diff(undone.commit_id, held.head)
        back = self._diff(undone.commit_id, undone.parents[0])
        return _conflicting(held, branches.decide_merge([later], [back]))

    def _disagreed(
        self, held: Branch, paths: list[str], base: str, target: str, source: str
    ) -> Merged | Moved:
        if not paths:  # the conflict was with a commit in between
            return Moved(branch=held.name, expected=held.head, actual=self._held(held.name).head)
        shown = sorted(paths)[:CONFLICTS_SHOWN_MAX]
        before, ours, theirs = (self._lookup(commit, shown) for commit in (base, target, source))
        decided = branches.decide_merge([_changes(shown, before, ours)], [_changes(shown, before, theirs)])
        return _conflicting(held, decided, len(paths))

    def _told(self, held: Branch, done: Commit, kind: str, why: Justification | None, **more: Any) -> Merged:
        changed = sum(1 for _ in self._differing(done.parents[0], done.commit_id, "two_dot"))
        self._tell(kind, f"branch:{held.name}", why, commit=done.commit_id, paths=changed, **more)
        return Merged(outcome="merged", target=held.name, commit=done, changed=changed)


class _Nothing(Exception):
    """A revert would change nothing."""


def _words(message: str, author: str, meta: Mapping[str, Any] | None) -> tuple[str, dict[str, str]]:
    """A commit's message and metadata, within the limits that every kind of branches has."""
    checked = branches.make_commit("", (), message=message, author=author, at_ms=0, meta=meta)
    metadata = {AUTHOR: author, META: msgspec.json.encode(checked.meta, order="sorted").decode()}
    return (message, metadata) if message else ("(no message)", {**metadata, SILENT: "true"})


def _merge_refused(error: BranchesUnavailable, into: str) -> KfmError:
    if status_of(error) == 412:
        return GateDenied(f"A hook of lakeFS before the merge into `{into}` refused: {reason_of(error)}.")
    if refusal_of(error) == "uncommitted":
        return BranchMoved(
            f"There are staged changes on `{into}` that are not committed.",
            remedy=f"Commit or drop them on the server: lakectl branch reset lakefs://REPOSITORY/{to_server(into)}",
        )
    return error


def _check_lengths(changes: Iterable[str]) -> None:
    for path in changes:
        if len(path) * 4 > PATH_BYTES_MAX and len(path.encode()) > PATH_BYTES_MAX:
            raise UsageError(
                f"{path[:100]!r} can't be a path on lakeFS: it has more than {PATH_BYTES_MAX} bytes."
            )


def _changes(
    paths: Iterable[str], before: dict[str, TreeEntry], after: dict[str, TreeEntry]
) -> list[PathChange]:
    return [PathChange(path=path, before=before.get(path), after=after.get(path)) for path in paths]


def _conflicting(held: Branch, decided: Decided, total: int | None = None) -> Merged:
    conflicts: tuple[Conflict, ...] = decided.conflicts
    return Merged(
        outcome="conflict",
        target=held.name,
        commit=None,
        conflicts=conflicts,
        conflicts_total=total if total is not None else decided.conflicts_total,
    )
