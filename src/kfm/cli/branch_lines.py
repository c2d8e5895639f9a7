"""Branches, commits and conflicts as lines and documents."""

from __future__ import annotations

from typing import Any

from kfm.cli.output import instant, one_line
from kfm.core.wording import counted, moment

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
