"""What can be done about a unit that stands still: the command that brings it back."""

from __future__ import annotations


def replay_command(wal_id: str, status: str) -> str:
    """Asks for exactly this unit. From quarantine a unit comes back only by an approved repair."""
    mode = "failed-only" if status == "failed" else "repair-and-replace"
    return f"kfm replay run --unit {wal_id} --mode {mode} --reason incident --rationale TEXT"
