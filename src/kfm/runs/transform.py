"""The transform step: loading a pipeline function, what it is given, the version of its output."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import KfmError, NodesFailed, PipelineError, PipelineFailed
from kfm.model.records import Asset, Fetched, Found, Output, Window
from kfm.model.run_state import MAIN, Fence, Parent
from kfm.model.settings import SourceSettings
from kfm.pipelines.declaration import Pipeline
from kfm.pipelines.execution import PipelineExecutor
from kfm.pipelines.options import PipelineKernel, PipelineOptions, PipelineReport
from kfm.pipelines.planner import PipelinePlanner
from kfm.ports import Objects, Reader
from kfm.publish.publisher import Publisher

# What decides which bytes come out. Not the contract (it says what may pass), not the
# credentials, not the schedule.
_DECISIVE = (
    "dataset", "kind", "mode", "path", "folder", "pattern", "url", "params", "pagination",
    "bucket", "prefix", "members",
)  # fmt: skip
JOBS = 4


class FilePublisher(Protocol):
    """The part of a publisher that every pipeline uses."""

    def write_file(self, path: str, data: Any, metadata: Any = None) -> Asset: ...


class Input:
    """One fetched object, as a pipeline sees it."""

    def __init__(self, fetched: Fetched, objects: Objects) -> None:
        self.fetched = fetched
        self.path = fetched.found.path
        self.uri = fetched.found.uri
        self.media_type = fetched.found.media_type
        self.size = fetched.size
        self.sha256 = fetched.sha256
        self._objects = objects

    @contextmanager
    def open(self) -> Iterator[Reader]:
        reader = self._objects.open(self.sha256)
        try:
            yield reader
        finally:
            reader.close()

    def read(self) -> bytes:
        """All of it; for objects that fit in memory."""
        with self.open() as reader:
            return b"".join(iter(lambda: reader.read(1024 * 1024), b""))


class Context:
    """The context of a pipeline function: inputs, window, publisher, log, check."""

    def __init__(
        self,
        inputs: Sequence[Input],
        window: Window,
        publisher: FilePublisher,
        log: Callable[[str], None],
        *,
        dataset_id: str,
        source_id: str,
        partition: str | None,
        dry_run: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.inputs = inputs
        self.window = window
        self.publisher = publisher
        self.log = log
        self.dataset_id = dataset_id
        self.source_id = source_id
        self.partition = partition
        self.dry_run = dry_run
        self._check = check

    def check(self) -> None:
        """For long work, from any thread: raises once the run was stopped. In a dry-run it does nothing."""
        self._check()


def publish_as_fetched(context: Context) -> None:
    """The built-in pipeline: every object as it came, at the path that discovery gave it."""
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)


def run_pipeline(function: Callable[[Any], None], context: Context) -> None:
    """Call a person's function; whatever it raises is the pipeline's failure, said once."""
    try:
        function(context)
    except KfmError:
        raise
    except (Exception, SystemExit) as error:
        from kfm.model.redaction import shapeless  # late: only failures need it

        # It goes to screens and into records: the place to mask what a library quotes of its requests.
        raise PipelineFailed(f"{type(error).__name__}: {shapeless(str(error))}") from error


def load_function(path: str, name: str) -> Callable[[Any], None] | Pipeline:
    """The function, or the pipeline of nodes, `name` of the Python file at `path`."""
    if path.endswith(".mjs"):
        raise PipelineError(
            f"{path} is an ES module, which Python does not run; `node node/runner.mjs run` with the same "
            "flags does.",
            remedy="Run its source with Node.js.",
        )
    module_name = "kfm_pipeline_" + hashlib.sha256(path.encode()).hexdigest()[:12]
    module = ModuleType(module_name)
    module.__file__ = path
    sys.modules[module_name] = module
    try:
        # Not through the import system: that would leave bytecode beside the person's file.
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), module.__dict__)  # noqa: S102 - a pipeline is code that its owner asked to run
    except FileNotFoundError:
        raise PipelineError(f"There is no file {path}.") from None
    except (Exception, SystemExit) as error:
        raise PipelineError(f"{path}: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function) and not isinstance(function, Pipeline):
        known = sorted(
            key for key, value in vars(module).items() if callable(value) and not key.startswith("_")
        )
        raise PipelineError(f"{path} has no function {name}; it has {', '.join(known) or 'none'}.")
    loaded: Callable[[Any], None] | Pipeline = function
    return loaded


def output_version(
    source: SourceSettings, members: Sequence[SourceSettings], read: Callable[[str], bytes]
) -> str:
    if source.output_version is not None:
        return source.output_version
    document = {
        "kfm": "output/1",
        "sources": [_definition(each) for each in (source, *members)],
        "files": [
            _digest(read(each.pipeline.rpartition(":")[0])) for each in (source, *members) if each.pipeline
        ],
    }
    return "auto-" + hashlib.sha256(canonical_bytes(document)).hexdigest()[:16]


def _definition(source: SourceSettings) -> dict[str, Any]:
    plain = msgspec.to_builtins(source)
    made_of = (
        {"datasets": plain["datasets"]} if source.datasets else {}
    )  # versions of before have no such field
    return {name: plain[name] for name in _DECISIVE} | made_of


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def own_branch(run_id: str) -> str:
    return f"run/{run_id}"


class GovernedRun:
    """What nodes see of the run that they are part of."""

    def __init__(self, context: Context, publisher: Publisher) -> None:
        self.context = context
        self.publisher = publisher

    def input_rows(self) -> list[Mapping[str, Any]]:
        """What every node that reads from no other reads from: the objects, and the span of time."""
        window = self.context.window
        span = f"{window.start_ms}/{window.end_ms}/{self.context.partition or ''}"
        return [
            {"id": "window", "version": span},
            *({"uri": each.uri, "checksum": f"sha256:{each.sha256}"} for each in self.context.inputs),
        ]

    def adopt(self, outputs: Sequence[Output]) -> None:
        """Publish again what a node made in another run."""
        for output in outputs:
            asset = output.asset
            if asset is None:
                continue
            found = Found(
                uri=asset.source_uri or "",
                path=asset.path,
                media_type=asset.media_type,
                modified_ms=asset.modified_ms,
            )
            described = {"source_uri": asset.source_uri, "roles": list(asset.roles)}
            self.publisher.write_file(
                asset.path, Fetched(found=found, sha256=asset.sha256, size=asset.size), described
            )


def conduct(
    kernel: PipelineKernel,
    pipeline: Pipeline,
    context: Context,
    publisher: Publisher,
    *,
    run_id: str,
    fence: Fence | None,
) -> PipelineReport:
    """Run the pipeline's nodes; raises what the first one that failed raised."""
    options = PipelineOptions(
        run_id=run_id,
        pipeline_id=pipeline.id,
        branch=own_branch(run_id),
        from_branch=MAIN,
        scope=fence.scope if fence else "",
        fence=fence.fence if fence else 0,
        jobs=pipeline.jobs or JOBS,
        parent=Parent(context.source_id, context.dataset_id),
    )
    planner = PipelinePlanner(kernel, pipeline, options, GovernedRun(context, publisher))
    report = PipelineExecutor(planner, context.check).run()
    if report.error is not None:
        failed = next((each.error for each in report.nodes.values() if each.error is not None), None)
        raise failed or report.error
    if report.state == "partial":
        raise NodesFailed("Some nodes were done in part: nothing is published until they are whole.")
    return report
