"""Projects for the life of datasets: the same commands and the same person as in `tests/acceptance/runs`."""

from __future__ import annotations

from tests.acceptance.runs.conftest import _person, project, valid

__all__ = ["_person", "project", "valid"]
