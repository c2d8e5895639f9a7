"""What can be done about a unit that stands still: the command that brings it back."""

from __future__ import annotations

from kfm.core.records import Unit


def replay_command(unit: Unit) -> str:
    """Asks for exactly the units that stand still for the same reason."""
    return replay_of(unit.dataset, unit.status, unit.last_error_code)


def replay_of(dataset: str, status: str, error_code: str | None) -> str:
    mode = "failed-only" if status == "failed" else "repair-and-replace"
    code = f" --error-code {error_code}" if error_code else ""
    return f"kfm replay run --dataset {dataset} --status {status}{code} --mode {mode} --reason incident"
