"""Names on a lakeFS server: branches, tags, and which of them are protected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kfm.core import branching
from kfm.core.branching import Branch, Moved, Tag, Why
from kfm.core.errors import (
    BranchesUnavailable,
    BranchMoved,
    BranchProtected,
    RefExists,
    RefNotFound,
    UsageError,
)
from kfm.core.records import GovernanceEntry
from kfm.lakefs.client import Client, status_of
from kfm.lakefs.names import to_server
from kfm.lakefs.reading import LakefsBranchReader
from kfm.ports import Clock, Ids, Objects

ROUNDS_MAX = 5  # how often others may be faster


class LakefsRefs(LakefsBranchReader):
    """The part of `branch_ports.Branches` that gives and takes names."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        ids: Ids,
        clock: Clock,
        tell: Callable[[GovernanceEntry], None] = lambda _entry: None,
        epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(client, objects, epoch)
        self._ids = ids
        self._clock = clock
        self._governance = tell
        self._root: str | None = None

    # --- refs --------------------------------------------------------------------------------

    def create(self, name: str, at: str | None = None, *, why: Why | None = None) -> Branch:
        branching.check_name(name)
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

    def delete(self, name: str, *, why: Why, expected: str | None = None) -> Branch | Moved:
        held = self._held(name)
        if moved := branching.moved_from(held, expected):
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

    def tag(self, name: str, ref: str, *, message: str, author: str, why: Why | None = None) -> Tag:
        branching.check_name(name)
        del message, author  # lakeFS keeps neither
        commit = self.resolve(ref)
        if self.branch(name) is not None:
            raise RefExists(f"`{name}` is a branch.")
        wanted = self._client.sdk.TagCreation(id=name, ref=commit.commit_id)
        if not self._unless_there("tags", "create_tag", wanted):
            raise RefExists(f"`{name}` is a tag, and tags do not move.")
        self._tell("tag-create", f"tag:{name}", why, commit=commit.commit_id)
        return Tag(name=name, commit_id=commit.commit_id, message="", author="", at_ms=commit.at_ms)

    def delete_tag(self, name: str, *, why: Why) -> Tag:
        found = self._ref("tags", "get_tag", name)
        if found is None:
            raise RefNotFound(f"There is no tag `{name[:80]}`.")
        self._gone("tags", "delete_tag", name)
        self._tell("tag-delete", f"tag:{name}", why, commit=found.commit_id)
        return self._tag_from(found)

    def protect(self, name: str, on: bool, *, why: Why) -> Branch:
        """By a rule on the server, which then refuses everybody's direct writes, too."""
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

    def _protected(self, name: str, on: bool, why: Why) -> Branch:
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

    def _tell(self, kind: str, subject: str, why: Why | None, **details: Any) -> None:
        if why is None:
            return
        self._governance(
            GovernanceEntry(
                kind=kind,
                subject=subject,
                actor=why.actor,
                recorded_at_ms=self._clock.now_ms(),
                rationale=why.rationale,
                ticket=why.ticket,
                details={**details, "claimed_actor": why.claimed_actor, "lakefs": self._client.repository},
            )
        )
