"""Run-state of a dry-run: empty and not kept, so every node shows what it would make."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from kfm.model.records import Node
from kfm.model.run_state import BeginPass, Begun, EndedPass, EndPass, Fence, Head, KnownNodes, Skips


class NullRunState:
    """Implements `ports.RunStates` and `ports.PipelineRuns`."""

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> KnownNodes:  # noqa: ARG002
        return KnownNodes({}, {})

    def made(self, *_what: object) -> Head | None:
        return None

    def record(
        self,
        fence: Fence,  # noqa: ARG002
        nodes: Sequence[Node] = (),  # noqa: ARG002
        skips: Skips | None = None,  # noqa: ARG002
        documents: Sequence[tuple[str, str]] = (),  # noqa: ARG002
        events: Sequence[object] = (),  # noqa: ARG002
    ) -> bool:
        return True

    def one(self, *_what: object) -> Node | None:
        return None

    def of_run(self, run_id: str) -> Iterator[Node]:  # noqa: ARG002
        return iter(())

    def history(self, *_what: object, **_how: object) -> list[Node]:
        return []

    def document(self, name: str) -> str | None:  # noqa: ARG002
        return None

    def begin(self, request: BeginPass, dead: Callable[[str], bool]) -> Begun:  # noqa: ARG002
        return Begun(fence=request.fence or 0, attempt=1)

    def end(self, request: EndPass, skips: Skips | None = None) -> EndedPass:  # noqa: ARG002
        return EndedPass(landed=True)

    def checksums(self, first: str, last: str) -> dict[str, tuple[int, int, int, str]]:  # noqa: ARG002
        return {}

    def keep_checksums(self, seen: dict[str, tuple[int, int, int, str]]) -> None:
        """Nothing is kept."""
