"""Context of a node beside its inputs: a log, checks, a publisher, guarded calls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kfm.model.errors import Cancelled, ContractViolated, PathConflict, PipelineFailed
from kfm.model.quantities import one_line
from kfm.model.records import Asset, Output
from kfm.model.templates import safe_path
from kfm.pipelines.node_values import BYTES_VALUE, JSON_VALUE, StoredFile, store_bytes

if TYPE_CHECKING:
    from kfm.ports import Objects

CHECKS_MAX = 10_000
logger = logging.getLogger(__name__)


class RunPublisher(Protocol):
    """The publisher of a governed run; a pipeline run of its own has none."""

    def write_file(self, path: str, data: Any, metadata: Any = None) -> Asset: ...
    def emit_event(self, event_type: str, payload: Mapping[str, Any]) -> None: ...
    def update_state(self, state_key: str, value: Any) -> None: ...


class NodePublisher:
    """Files that a node makes. They are its outputs, and on their way to the dataset in a governed run."""

    def __init__(self, objects: Objects, run: RunPublisher | None, lock: threading.Lock) -> None:
        self._objects = objects
        self._run = run
        self._lock = lock
        self._outputs: dict[str, Output] = {}

    def write_file(self, path: str, data: Any, metadata: Any = None) -> StoredFile:
        path = safe_path(path)
        if path in self._outputs or path in (JSON_VALUE, BYTES_VALUE):
            raise PathConflict(f"{path} was written twice by one node, or is kept for what it returns.")
        if isinstance(data, str):
            data = data.encode()
        if self._run is not None:
            if isinstance(data, StoredFile):
                data = data.read()
            with self._lock:  # a publisher serves one at a time
                asset = self._run.write_file(path, data, metadata)
            output = Output(name=path, checksum=f"sha256:{asset.sha256}", size=asset.size, asset=asset)
        else:
            sha256, size = self._taken(data)
            output = Output(name=path, checksum=f"sha256:{sha256}", size=size)
        self._outputs[path] = output
        return StoredFile(output, self._objects)

    def emit_event(self, event_type: str, payload: Mapping[str, Any]) -> None:
        if self._run is not None:
            with self._lock:
                self._run.emit_event(event_type, payload)

    def update_state(self, state_key: str, value: Any) -> None:
        if self._run is not None:
            with self._lock:
                self._run.update_state(state_key, value)

    def outputs(self) -> list[Output]:
        return [self._outputs[name] for name in sorted(self._outputs)]

    def _taken(self, data: Any) -> tuple[str, int]:
        if isinstance(data, StoredFile):
            return data.checksum.removeprefix("sha256:"), data.size
        if isinstance(data, bytes | bytearray | memoryview):
            return store_bytes(self._objects, bytes(data))
        staging, _ = self._objects.stage()
        try:
            for chunk in data:
                staging.write(chunk)
            return staging.commit()
        except BaseException:
            staging.abort()
            raise


class HiddenRun:
    """The governed run for a node that reads from others: refused, since it is not in the node's hash."""

    def __init__(self, node: str) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PipelineFailed(
            f"{self._node} asks for ctx.run.{name}, but reads from other nodes.",
            remedy="Let a node that reads from no other return what this one needs, and read from it: so it "
            "is noticed when that changes.",
        )


class NodeContext:
    """Context of one node while it runs."""

    def __init__(
        self,
        *,
        node: str,
        run_id: str,
        branch: str,
        attempt: int,
        params: Mapping[str, Any],
        publisher: NodePublisher,
        cancelled: Callable[[], bool],
        run: Any = None,
    ) -> None:
        self.node = node
        self.run_id = run_id
        self.branch = branch
        self.attempt = attempt
        self.params = params
        self.publisher = publisher
        self.run = run  # in a governed run: its inputs, window and dataset; for nodes that read from no other
        self._cancelled = cancelled
        self._checks = {"checks": 0, "passed": 0, "failed": 0}
        self._failed: list[str] = []
        self._partial: str | None = None

    @property
    def call(self) -> Any:
        """`kfm.call`: an outside call with retries, a deadline and a breaker."""
        import kfm

        return kfm.call

    def log(self, line: str) -> None:
        """A line for the people who look at the run."""
        log_node(self.node, f"{self.node}: {line}")

    def validate(self, name: str, passed: bool, detail: str = "") -> bool:
        """Count a check. A node with one that failed has failed."""
        if self._checks["checks"] >= CHECKS_MAX:
            raise ContractViolated(f"{self.node} makes more than {CHECKS_MAX} checks.")
        self._checks["checks"] += 1
        self._checks["passed" if passed else "failed"] += 1
        if not passed:
            self._failed.append(f"{name}: {detail}" if detail else name)
            self.log(f"check failed: {self._failed[-1]}")
        return passed

    def partial(self, reason: str) -> None:
        """What there is, is done, but not all of it: the node runs again next time."""
        self._partial = reason

    def check(self) -> None:
        """For long work: raises Cancelled once the run was cancelled."""
        if self._cancelled():
            raise Cancelled(f"{self.node} was asked to stop.")

    @property
    def summary(self) -> dict[str, int]:
        return dict(self._checks)

    @property
    def failed_checks(self) -> list[str]:
        return self._failed

    @property
    def partial_reason(self) -> str | None:
        return self._partial


def log_node(node: str, text: str) -> None:
    """Log a line of a node, of this process or of a child. `kfm pipeline run` shows it without --verbose."""
    logger.info("%s", one_line(text), extra={"node": node})
