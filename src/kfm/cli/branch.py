"""`kfm branch`: branches of data, their commits, merges and reverts."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from kfm.cli.errors import error_lines
from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import instant, one_line, table
from kfm.cli.session import CommandSession
from kfm.model.branches import Branch
from kfm.model.errors import MergeConflict
from kfm.model.quantities import counted, moment, readable_size
from kfm.model.rationales import require_rationale

SHOWN_MAX = 100_000
_rationale = click.option("--rationale", metavar="TEXT", help="Why; kept in the audit log.")
_ticket = click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
_AMOUNT = click.IntRange(1, SHOWN_MAX)
_limit = click.option(
    "--limit", metavar="N", type=_AMOUNT, default=1000, show_default=True, help="At most so many paths."
)
_prefer = click.option(
    "--prefer",
    type=click.Choice(("source", "target")),
    help="Whose version wins where both changed a path.",
)
_message = click.option("-m", "--message", metavar="TEXT", help="What the commit says.")


@click.group(name="branch", cls=CommandGroup)
def command() -> None:
    """List, compare, merge and revert branches of data.

    A REF is a branch, a tag or the beginning of a commit's id; REF~2 means two commits earlier.
    """


@command.command(name="list")
@session_options
def list_branches(session: CommandSession) -> None:
    """List branches and tags."""
    with session.app(read_only=True, bare=True) as app:
        from kfm.runs.branch_merges import reader as reader_of

        reader = reader_of(app)
        branches, tags = reader.branches(), reader.tags()
    rows = [
        (one.name, "protected" if one.protected else "branch", one.head[:SHORT], moment(one.moved_at_ms))
        for one in branches
    ]
    rows += [(one.name, "tag", one.commit_id[:SHORT], moment(one.at_ms)) for one in tags]
    lines = table(("NAME", "KIND", "COMMIT", "SINCE"), rows) if rows else ["there is no branch yet"]
    documents = [branch_document(one) for one in branches]
    session.emit({"branches": documents, "tags": [tag_document(one) for one in tags]}, lines, rows=documents)


@command.command()
@click.argument("name", metavar="NAME")
@click.option("--from", "start", metavar="REF", help="Where it begins; else `main`, if there is one.")
@session_options
def create(session: CommandSession, name: str, start: str | None) -> None:
    """Make the branch NAME: a new name for a commit, nothing is copied."""
    with session.app(bare=True) as app:
        from kfm.runs.branch_merges import branches as branches_of

        branches = branches_of(app)
        if start is None and branches.branch("main") is not None:
            start = "main"
        made = branches.create(name, start)
    origin = f"from {start}" if start else "empty"
    document = {"branch": branch_document(made), "from": start}
    session.emit(document, [f"branch {made.name} is at {made.head[:SHORT]} ({origin})"])


@command.command()
@click.argument("name", metavar="NAME")
@click.option("--tag", is_flag=True, help="NAME is a tag.")
@_rationale
@_ticket
@session_options
def delete(session: CommandSession, name: str, tag: bool, rationale: str | None, ticket: str | None) -> None:
    """Forget the branch (or tag) NAME; needs --rationale.

    What only it reached is kept for seven days: until then `kfm branch create NAME --from COMMIT` (of a tag:
    `kfm branch tag NAME COMMIT`) brings it back. After that `kfm gc` removes it.
    """
    _need(rationale, "A branch or tag is deleted")
    with session.app(bare=True) as app:
        from kfm.runs.branch_merges import branches as branches_of
        from kfm.runs.branch_merges import why

        branches, reason = branches_of(app), why(app, rationale, ticket)
        if tag:
            commit_id = branches.delete_tag(name, why=reason).commit_id
        else:
            gone = branches.delete(name, why=reason)
            assert isinstance(gone, Branch), "nothing was expected of its head"
            commit_id = gone.head
    document = {"deleted": name, "kind": "tag" if tag else "branch", "commit_id": commit_id}
    session.emit(document, [f"{document['kind']} {name} is deleted; it was at {commit_id[:SHORT]}"])
    again = f"tag {name} {commit_id[:SHORT]}" if tag else f"create {name} --from {commit_id[:SHORT]}"
    session.note(f"bring it back with: kfm branch {again}")


@command.command()
@click.argument("ref", metavar="REF", default="main")
@click.option("--all", "everything", is_flag=True, help="Also the commits that were merged.")
@click.option("--limit", metavar="N", type=_AMOUNT, default=20, show_default=True, help="At most so many.")
@session_options
def log(session: CommandSession, ref: str, everything: bool, limit: int) -> None:
    """Tell the commits of REF (default: main), newest first."""
    with session.app(read_only=True, bare=True) as app:
        from kfm.runs.branch_merges import reader

        commits = reader(app).log(ref, limit=limit, first_parent=not everything)
    documents = [commit_document(one) for one in commits]
    lines = [line for one in commits for line in commit_lines(one)]
    session.emit({"ref": ref, "commits": documents}, lines, rows=documents)


@command.command()
@click.argument("ref", metavar="REF", default="main")
@click.option("--prefix", metavar="PATH", default="", help="Only the paths that begin with this.")
@_limit
@session_options
def show(session: CommandSession, ref: str, prefix: str, limit: int) -> None:
    """Show the commit of REF (default: main), and the paths that it holds."""
    with session.app(read_only=True, bare=True) as app:
        from kfm.runs.branch_merges import reader as reader_of

        reader = reader_of(app)
        commit = reader.resolve(ref)
        found = list(islice(reader.entries(commit.commit_id, prefix), limit + 1))
    entries, more = found[:limit], len(found) > limit
    documents = [{"path": path, "sha256": one.sha256, "size": one.size} for path, one in entries]
    rows = [(path, readable_size(one.size), one.sha256[:SHORT]) for path, one in entries]
    lines = [*commit_lines(commit), *(table(("PATH", "SIZE", "SHA-256"), rows) if rows else ["no paths"])]
    document = {"ref": ref, "commit": commit_document(commit), "entries": documents, "truncated": more}
    session.emit(document, lines, rows=documents)
    if more:
        session.note(f"only the first {limit}: see more with --limit, or fewer with --prefix")


@command.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--prefix", metavar="PATH", default="", help="Only the paths that begin with this.")
@_limit
@session_options
def diff(session: CommandSession, old: str, new: str, prefix: str, limit: int) -> None:
    """Tell which paths differ between OLD and NEW: + added, - removed, ~ changed."""
    with session.app(read_only=True, bare=True) as app:
        from kfm.runs.branch_merges import reader

        found = list(islice(reader(app).diff(old, new, prefix), limit + 1))
    changes, more = found[:limit], len(found) > limit
    signs = {"added": "+", "removed": "-", "changed": "~"}
    lines = [f"{signs[one.kind]} {one_line(one.path)}" for one in changes] or ["nothing differs"]
    documents = [change_document(one) for one in changes]
    session.emit({"old": old, "new": new, "changes": documents, "truncated": more}, lines, rows=documents)
    if more:
        session.note(f"only the first {limit}: see more with --limit, or fewer with --prefix")


@command.command()
@click.argument("source", metavar="REF")
@click.option("--into", metavar="NAME", default="main", show_default=True, help="The branch that gets it.")
@_prefer
@_message
@_rationale
@_ticket
@session_options
def merge(session: CommandSession, source: str, into: str, rationale: str | None, **options: Any) -> int:
    """Bring what REF has to another branch, in one commit: all of it, or nothing.

    Where both sides changed the same path in different ways, the paths are named and nothing is written. A
    protected branch asks its gates first and needs --rationale.
    """
    with session.app(bare=True) as app:
        from kfm.runs.branch_merges import merging, why

        done = merging(app).merge(
            source,
            into,
            message=options["message"],
            author=app.actor,
            prefer=options["prefer"],
            why=why(app, rationale, options["ticket"]),
        )
    return _tell(session, done, f"{source} into {into}", "merged")


@command.command()
@click.argument("ref", metavar="REF")
@click.option("--on", "branch", metavar="NAME", default="main", show_default=True, help="The branch.")
@_prefer
@_message
@_rationale
@_ticket
@session_options
def revert(session: CommandSession, ref: str, branch: str, rationale: str | None, **options: Any) -> int:
    """Take back what the commit REF did to a branch, in a new commit; needs --rationale.

    What came after it stays. Where a later commit changed the same paths, they are named and nothing is
    written. Of a merge all that it brought is taken back.
    """
    _need(rationale, "A commit is reverted")
    with session.app(bare=True) as app:
        from kfm.runs.branch_merges import merging, why

        done = merging(app).revert(
            branch,
            ref,
            message=options["message"],
            author=app.actor,
            prefer=options["prefer"],
            why=why(app, rationale, options["ticket"]),
        )
    return _tell(session, done, f"{ref} on {branch}", "reverted")


@command.command()
@click.argument("name", metavar="NAME")
@click.argument("ref", metavar="REF", default="main")
@_message
@session_options
def tag(session: CommandSession, name: str, ref: str, message: str | None) -> None:
    """Give the commit of REF (default: main) the name NAME, for good."""
    with session.app(bare=True) as app:
        from kfm.runs.branch_merges import branches

        made = branches(app).tag(name, ref, message=message or "", author=app.actor)
    session.emit({"tag": tag_document(made)}, [f"tag {made.name} is at {made.commit_id[:SHORT]}"])


@command.command()
@click.argument("name", metavar="NAME")
@click.option("--off", is_flag=True, help="Let everybody commit to it again.")
@_rationale
@_ticket
@session_options
def protect(session: CommandSession, name: str, off: bool, rationale: str | None, ticket: str | None) -> None:
    """Let the branch NAME change only by merges and reverts that pass its gates; needs --rationale."""
    _need(rationale, "Protection is changed")
    with session.app(bare=True) as app:
        from kfm.runs.branch_merges import branches, why

        made = branches(app).protect(name, not off, why=why(app, rationale, ticket))
    effect = "is protected: it changes only through gates" if made.protected else "is not protected any more"
    session.emit({"branch": branch_document(made)}, [f"branch {made.name} {effect}"])


def _need(rationale: str | None, what: str) -> None:
    require_rationale(rationale, f"{what} with --rationale TEXT.")


def _tell(session: CommandSession, done: Any, what: str, word: str) -> int:
    """How it ended. Conflicts are a result too, with an exit code that says so."""
    error = None
    if done.outcome == "conflict":
        error = MergeConflict(f"{what}: {counted(done.conflicts_total, 'path')} in conflict.")
        lines = conflict_lines(done)
    elif done.outcome == "unchanged":
        lines = [f"unchanged: {what} brings nothing new"]
    else:
        changed, now = counted(done.changed, "path"), done.commit.commit_id[:SHORT]
        lines = [f"{word}: {what}; {changed} changed, now at {now}"]
    session.emit(merged_document(done), lines)
    if error is None:
        return 0
    session.fail(*error_lines(error))
    return error.exit_code


LINES_MAX = 50
SHORT = 12  # characters of an id that people are shown
MEANING = {
    "both-added": "both added it",
    "both-changed": "both changed it",
    "changed-deleted": "the target changed it, the source removed it",
    "deleted-changed": "the target removed it, the source changed it",
    "file-folder": "it would be a file and a folder",
}


def branch_document(branch: Any) -> dict[str, Any]:
    return {
        "name": branch.name,
        "commit_id": branch.head,
        "protected": branch.protected,
        "created_at": instant(branch.created_at_ms),
        "moved_at": instant(branch.moved_at_ms),
    }


def tag_document(tag: Any) -> dict[str, Any]:
    return {
        "name": tag.name,
        "commit_id": tag.commit_id,
        "message": tag.message,
        "author": tag.author,
        "tagged_at": instant(tag.at_ms),
    }


def commit_document(commit: Any) -> dict[str, Any]:
    return {
        "commit_id": commit.commit_id,
        "tree_id": commit.tree_id,
        "parents": list(commit.parents),
        "message": commit.message,
        "author": commit.author,
        "committed_at": instant(commit.at_ms),
        "meta": commit.meta,
    }


def commit_lines(commit: Any) -> list[str]:
    first = one_line(commit.message.splitlines()[0]) if commit.message else "(the beginning)"
    if not commit.parents:
        return [f"{commit.commit_id[:SHORT]}  (the beginning: nothing)"]
    merged = f"  (merge of {commit.parents[1][:SHORT]})" if len(commit.parents) > 1 else ""
    return [f"{commit.commit_id[:SHORT]}  {moment(commit.at_ms)}  {one_line(commit.author)}  {first}{merged}"]


def change_document(change: Any) -> dict[str, Any]:
    return {"path": change.path, "kind": change.kind, "before": change.before, "after": change.after}


def merged_document(done: Any) -> dict[str, Any]:
    return {
        "outcome": done.outcome,
        "branch": done.target,
        "commit": commit_document(done.commit) if done.commit else None,
        "changed": done.changed,
        "conflicts": [conflict_document(one) for one in done.conflicts],
        "conflicts_total": done.conflicts_total,
    }


def conflict_document(conflict: Any) -> dict[str, Any]:
    return {
        "path": conflict.path,
        "kind": conflict.kind,
        "base": conflict.base,
        "target": conflict.target,
        "source": conflict.source,
        "other": conflict.other,
    }


def conflict_lines(done: Any) -> list[str]:
    lines = [
        f"  {one_line(one.path)}: {MEANING[one.kind]}" + (f" ({one_line(one.other)})" if one.other else "")
        for one in done.conflicts[:LINES_MAX]
    ]
    left = done.conflicts_total - len(lines)
    return [*lines, f"  … and {counted(left, 'path')} more"] if left > 0 else lines
