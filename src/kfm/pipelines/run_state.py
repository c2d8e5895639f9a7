"""`kfm.run_state`: run-state around any callable."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from kfm.decoders import prepare_decoders
from kfm.model.errors import Busy, Cancelled, LostLease, PipelineFailed, UsageError
from kfm.model.retry import backoff_ms
from kfm.model.run_state import MAIN, SkipScope, node_scope, outputs_of
from kfm.pipelines.code_hash import enclosing_code
from kfm.pipelines.declaration import NodeSpec
from kfm.pipelines.inputs import BoundCall
from kfm.pipelines.node_values import handed_on
from kfm.pipelines.options import NodeReport, PipelineOptions
from kfm.pipelines.project import PipelineProject, open_project
from kfm.pipelines.single_node import SingleNode, run_node

F = TypeVar("F", bound=Callable[..., Any])
WAIT_S = 60.0
POLL_MS_FIRST = 10
POLL_MS_MAX = 500
_NOTHING: Mapping[str, Any] = {}


class Settled(NamedTuple):
    """Result of a wrapped call: the value, and where it comes from."""

    value: Any
    ran: bool
    outcome: str  # success, partial or skipped
    reason: str
    run_id: str
    made_by: str  # the run that made the value
    inputs_hash: str


class WrappedCall(NamedTuple):
    """One call of the wrapped function, as a node."""

    spec: NodeSpec
    code: Callable[..., Any] | str
    options: WrapperOptions


class WrapperOptions(NamedTuple):
    run_id: str | Callable[[], str] | None
    pipeline: str | None
    graph: tuple[tuple[str, tuple[str, ...]], ...]
    branch: str
    skip_scope: SkipScope
    directory: str | None
    config: str | None
    wait_s: float
    force: bool


def run_state(
    dataset_id: str,
    *,
    inputs: Any = (),
    params: Mapping[str, Any] | Callable[..., Mapping[str, Any]] = _NOTHING,
    outputs: Sequence[str] = (),
    needs: Mapping[str, str] = _NOTHING,
    after: Sequence[str] = (),
    version: str | None = None,
    run_id: str | Callable[[], str] | None = None,
    pipeline: str | None = None,
    graph: Sequence[tuple[str, Sequence[str]]] = (),
    branch: str = MAIN,
    skip_scope: SkipScope = "branch",
    directory: str | None = None,
    config: str | None = None,
    wait_s: float = WAIT_S,
    force: bool = False,
) -> RunStateWrapper:
    """Run-state for one callable, as a decorator or around a block.

    `inputs`, `params`, `outputs`, `needs`, `after` and `version` are those of a pipeline's node. What the
    call itself is given counts as parameters, too; if that can't be hashed, `params` is a function of the
    same arguments that returns what identifies them. `run_id` names the run, or is asked for at each call;
    else each call is a run of its own. `pipeline` names the whole that the node is a part of. `wait_s`:
    how long to wait for another process that is at the same node of the same branch.
    """
    if callable(dataset_id):
        name = getattr(dataset_id, "__name__", "name")
        raise UsageError(
            f"@kfm.run_state is used on {name} without the name of what it makes.",
            remedy=f'Give it one: @kfm.run_state("{name}").',
        )
    return RunStateWrapper(
        dataset_id,
        inputs,
        params,
        outputs,
        needs,
        after,
        version,
        WrapperOptions(
            run_id,
            pipeline,
            tuple((node, tuple(reads)) for node, reads in graph),
            branch,
            skip_scope,
            directory,
            config,
            wait_s,
            force,
        ),
    )


class RunStateWrapper:
    """A decorator and a context manager; may be used again, but for `with` only once that has ended."""

    def __init__(
        self,
        dataset_id: str,
        inputs: Any,
        params: Mapping[str, Any] | Callable[..., Mapping[str, Any]],
        outputs: Sequence[str],
        needs: Mapping[str, str],
        after: Sequence[str],
        version: str | None,
        options: WrapperOptions,
    ) -> None:
        self._id = dataset_id
        self._inputs = inputs
        self._params = params
        self._outputs = outputs
        self._needs = needs
        self._after = after
        self._version = version
        self._options = options
        self._block: Block | None = None

    def __call__(self, function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                return (await self.settle_async(function, *args, **kwargs)).value

            return cast("F", awaited)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return self.settle(function, *args, **kwargs).value

        return cast("F", called)

    def settle(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Settled:
        """Call it, if it must be called; returns the value with its provenance."""
        return _settle(self._request(function, args, kwargs))

    async def settle_async(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Settled:
        """For coroutine functions: what they await stays in the caller's event loop."""
        loop = asyncio.get_running_loop()
        at_work: list[Any] = []
        stopped = threading.Event()

        @functools.wraps(function)
        def there(*args: Any, **kwargs: Any) -> Any:
            task = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), loop)
            at_work.append(task)
            if stopped.is_set():  # before it was known what to stop
                task.cancel()
            return task.result()

        request = self._request(there, args, kwargs, code=function)
        settling = asyncio.ensure_future(asyncio.to_thread(_settle, request))
        try:
            return await asyncio.shield(settling)
        except asyncio.CancelledError:
            stopped.set()
            for task in at_work:
                task.cancel()
            await asyncio.wait([settling])
            if not settling.cancelled():
                settling.exception()
            raise

    def _request(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        code: Callable[..., Any] | str | None = None,
    ) -> WrappedCall:
        bound = BoundCall(function, args, kwargs)
        if callable(self._params):
            declared: Mapping[str, Any] = {}
            hashed = dict(self._params(*args, **kwargs))
        else:
            declared = self._params
            hashed = bound.hashed(declared)

        @functools.wraps(function)
        def call(ctx: Any, **read: Any) -> Any:
            return bound.call(ctx, declared, read)

        return WrappedCall(self._spec(call, hashed), function if code is None else code, self._options)

    def _spec(self, call: Callable[..., Any], params: Mapping[str, Any]) -> NodeSpec:
        return NodeSpec(
            self._id, call, self._inputs, params, self._needs, self._after, self._outputs, self._version
        )

    # --- around a block ------------------------------------------------------------------

    def __enter__(self) -> Block:
        if self._block is not None:
            raise UsageError(f"{self._id} is being worked on in this very `with` already.")
        if callable(self._params):
            raise UsageError("Around a block there are no arguments: give params as a mapping.")
        code = enclosing_code(depth=2)
        block = Block(self._needs)
        request = WrappedCall(self._spec(block.work, self._params), code, self._options)
        self._block = block
        try:
            block.begin(request)
        except BaseException:
            self._block = None
            raise
        return block

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        block, self._block = self._block, None
        assert block is not None
        block.end(problem)


class Block:
    """The inside of a `with`: if it must run, set `result`; else `result` is what is stored.

    The pipeline run goes on in a thread beside it, which keeps the lock, and waits for the block's end.
    """

    def __init__(self, needs: Mapping[str, str]) -> None:
        self._wants = tuple(needs)
        self.must_run = False
        self.result: Any = None
        self.ctx: Any = None  # what a node is given: log, validate, publisher, …
        self.read: Mapping[str, Any] = {}  # what it needs, by argument
        self.settled: Settled | None = None
        self._known = threading.Event()  # what must be done, or that nothing must
        self._done = threading.Event()
        self._problem: BaseException | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def work(self, ctx: Any, **read: Any) -> Any:
        self.ctx, self.read, self.must_run = ctx, read, True
        self._known.set()
        self._done.wait()
        if self._problem is not None:
            raise self._problem
        return self.result

    def begin(self, request: WrappedCall) -> None:
        own = contextvars.copy_context()
        self._thread = threading.Thread(
            target=lambda: own.run(self._settle, request), name="kfm-run-state", daemon=True
        )
        self._thread.start()
        self._known.wait()
        if self._error is not None:
            raise self._error

    def _settle(self, request: WrappedCall) -> None:
        try:
            self.settled = _settle(request)
            self.result = self.settled.value
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
            self._error = error
        finally:
            self._known.set()

    def end(self, problem: BaseException | None) -> None:
        self._problem = problem
        self._done.set()
        assert self._thread is not None
        self._thread.join()
        if problem is None and self._error is not None:
            raise self._error


def _settle(request: WrappedCall) -> Settled:
    arguments = request.options
    prepare_decoders()  # nodes of one graph settle in threads of their own
    with open_project(arguments.directory, arguments.config) as project:
        run_id = arguments.run_id() if callable(arguments.run_id) else arguments.run_id
        options = PipelineOptions(
            run_id=run_id or project.ids.new(),
            pipeline_id=arguments.pipeline or request.spec.id,
            branch=arguments.branch,
            scope=node_scope(request.spec.id, arguments.branch),
            jobs=1,
            force=(request.spec.id,) if arguments.force else (),
        )
        node = SingleNode(
            spec=request.spec,
            code=request.code,
            pipeline_id=options.pipeline_id,
            graph=arguments.graph,
            skip_scope=arguments.skip_scope,
            reads_run=run_id is not None,
        )
        try:
            report = _run_when_free(project, node, options, arguments.wait_s)
        except (PipelineFailed, Cancelled) as error:
            if error.__cause__ is not None:  # the callable's own: its caller knows what to do with it
                raise error.__cause__ from None
            raise
        return Settled(
            value=handed_on(outputs_of(report.outputs), project.objects),
            ran=report.ran,
            outcome=str(report.outcome),
            reason=report.reason,
            run_id=options.run_id,
            made_by=report.made_by or options.run_id,
            inputs_hash=report.inputs_hash,
        )


def _run_when_free(
    project: PipelineProject, node: SingleNode, options: PipelineOptions, wait_s: float
) -> NodeReport:
    """Run the node once no other process works on it; what that one made is then found, and skipped."""
    deadline_ms = project.clock.monotonic_ms() + int(wait_s * 1000)
    polls = 0
    while True:
        polls += 1
        delay_ms = backoff_ms(POLL_MS_FIRST, POLL_MS_MAX, polls)
        try:
            return run_node(project.kernel(lambda _report: None), node, options)
        except Busy as busy:
            if isinstance(busy, LostLease) or project.clock.monotonic_ms() + delay_ms > deadline_ms:
                raise
        project.clock.sleep_ms(delay_ms)
