"""A target that shows nothing: for trying out a configuration, and for datasets kept inside."""

from __future__ import annotations

from collections.abc import Callable

from kfm.model.records import Manifest, Promotion


class Noop:
    def __init__(self, name: str) -> None:
        self.name = name

    def project(
        self,
        dataset_id: str,  # noqa: ARG002
        head: Callable[[], tuple[Promotion, Manifest] | None],
        known: Callable[[int], str | None] | None = None,  # noqa: ARG002
    ) -> int | None:
        found = head()
        return found[0].sequence if found else None
