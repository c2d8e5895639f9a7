"""Nobody watches, and it costs nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfm.ports import Span


class _Unwatched:
    """One for all: it holds nothing."""

    def note(self, **attributes: str | int | bool) -> None: ...

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_problem: object) -> None: ...


_UNWATCHED = _Unwatched()


class Off:
    """Telemetry while no collector is configured."""

    def span(
        self,
        name: str,  # noqa: ARG002
        *,
        trace_id: str | None = None,  # noqa: ARG002
        lasted_ms: int = 0,  # noqa: ARG002
        **attributes: str | int | bool,  # noqa: ARG002
    ) -> AbstractContextManager[Span]:
        return _UNWATCHED

    def add(self, metric: str, amount: int = 1, **labels: str) -> None: ...
    def observe(self, metric: str, value: float, **labels: str) -> None: ...
    def close(self) -> None: ...
