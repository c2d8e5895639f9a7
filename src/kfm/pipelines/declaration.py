"""Declaration of pipelines: plain functions, and a decorator that names them as nodes.

    pipeline = kfm.Pipeline("soil")

    @pipeline.node("soil.samples", inputs=["data/*.csv"])
    def samples(ctx): ...

    @pipeline.node("soil.map", params={"cell_m": 250})
    def soil_map(samples, cell_m): ...

A function stays a function: it can be called, tested and imported without any of this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from kfm.model.errors import PipelineError
from kfm.model.quantities import did_you_mean, stopped
from kfm.model.run_state import MAIN, SkipScope
from kfm.pipelines.graph import ordered

if TYPE_CHECKING:
    from types import CodeType

    from kfm.pipelines.options import PipelineReport, PlanArguments, RunArguments

F = TypeVar("F", bound=Callable[..., Any])

IN_CHILD = False  # this process runs nodes for another, and loads files for that only
NAME_MAX = 300
CONTEXT_NAMES = ("ctx", "context")
_VARIABLE = 0x04 | 0x08  # *args, **kwargs
_EMPTY: Mapping[str, Any] = {}


class NodeSpec(msgspec.Struct, eq=False):
    """Declaration of one node."""

    id: str
    function: Callable[..., Any]
    inputs: Any
    params: Mapping[str, Any]
    needs: Mapping[str, str]
    after: Sequence[str]
    outputs: Sequence[str]
    version: str | None

    @property
    def where(self) -> str:
        code: CodeType | None = getattr(self.function, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(self.function)


class Pipeline:
    """Named nodes, and what each of them reads from."""

    def __init__(
        self,
        id: str,
        *,
        branch: str = MAIN,
        skip_scope: SkipScope = "branch",
        jobs: int | None = None,
        workers: str = "threads",
    ) -> None:
        if not id or len(id) > NAME_MAX:
            raise PipelineError(f"A pipeline needs a name of 1 to {NAME_MAX} characters.")
        self.id = id
        self.branch = branch
        self.skip_scope = skip_scope
        self.jobs = jobs
        if workers not in ("threads", "processes"):
            from kfm.pipelines.executor_address import executor_of  # late: most pipelines name no cluster

            executor_of(workers)
        self.workers = workers
        self.home: str | None = sys._getframe(1).f_globals.get("__file__")  # what makes it
        self.nodes: dict[str, NodeSpec] = {}
        self._wired: PipelineGraph | None = None

    def node(
        self,
        id: str,
        *,
        inputs: Any = (),
        params: Mapping[str, Any] = _EMPTY,
        needs: Mapping[str, str] = _EMPTY,
        after: Sequence[str] = (),
        outputs: Sequence[str] = (),
        version: str | None = None,
    ) -> Callable[[F], F]:
        """Declare a function as a node.

        `inputs`: what it reads from outside: paths or patterns of files, addresses, mappings with a
        `uri` and something that identifies the content, or a function that returns such. `params`: plain
        values, handed to arguments of those names. An argument that is called like the function of another
        node receives what that node returned; `needs` binds other names, `after` names nodes that
        must be done before without handing over anything. `outputs`: files that the function itself writes.
        `version` replaces the hash of the function's code.
        """
        if callable(id):  # else a bare `@pipeline.node` would declare nothing
            name = getattr(id, "__name__", "name")
            raise PipelineError(
                f"`@pipeline.node` is used on the function `{name}` without the name of the node.",
                remedy=f'Give it one: `@pipeline.node("{name}")`.',
            )

        def declare(function: F) -> F:
            self.add(NodeSpec(id, function, inputs, params, needs, after, outputs, version))
            return function

        return declare

    def add(self, spec: NodeSpec) -> None:
        name, nodes = spec.id, self.nodes
        if not 0 < len(name) <= NAME_MAX or "/" in name:
            raise PipelineError(f"{name!r} is no name for a node: 1 to {NAME_MAX} characters, and no slash.")
        if name in nodes:
            raise PipelineError(f"Two nodes are called {name}: {nodes[name].where} and {spec.where}.")
        nodes[name] = spec
        self._wired = None

    # --- the graph ---------------------------------------------------------------------

    def graph(self) -> PipelineGraph:
        """Every node with what it reads from; PipelineError where that can't be."""
        if self._wired is None:
            self._wired = self._wire()
        return self._wired

    def _wire(self) -> PipelineGraph:
        if not self.nodes:
            raise PipelineError(
                f"The pipeline {self.id} has no nodes.",
                remedy='Declare functions as nodes: @pipeline.node("NAME").',
            )
        # Many nodes, few functions.
        known: dict[Any, tuple[frozenset[str], Sequence[str], Iterable[str]]] = {}
        by_name: dict[str, str | None] = {}
        bindings: dict[str, Mapping[str, str]] = {}
        reads: dict[str, tuple[str, ...]] = {}
        for name, spec in self.nodes.items():
            function = spec.function
            arguments = known.get(function)
            if arguments is None:
                names, optional = arguments_of(function)
                arguments = known[function] = frozenset(names), names, optional
            bound = spec.needs
            # A declaration that names a node for each argument needs no search by name.
            if bound.keys() != arguments[0]:
                by_name = by_name or self._by_name()
                bound = _bound(spec, arguments[1], arguments[2], by_name)
            bindings[name] = bound
            after = spec.after
            reads[name] = tuple(dict.fromkeys((*bound.values(), *after) if after else bound.values()))
        return PipelineGraph(ordered(reads), reads, bindings)

    def _by_name(self) -> dict[str, str | None]:
        """function → its node; None: more than one has it."""
        found: dict[str, str | None] = {}
        for node, spec in self.nodes.items():
            name = getattr(spec.function, "__name__", node)
            found[name] = None if name in found else node
        return found

    # --- running -----------------------------------------------------------------------

    def run(self, **arguments: Unpack[RunArguments]) -> PipelineReport:
        """Run what must run. `plan` shows what would."""
        if IN_CHILD:
            raise PipelineError(
                f"{self.home} runs {self.id} as soon as it is loaded, so no other process can load it.",
                remedy='Put that under `if __name__ == "__main__":`.',
            )
        from kfm.pipelines.project import run_pipeline

        return run_pipeline(self, **arguments)

    def plan(self, **arguments: Unpack[PlanArguments]) -> PipelineReport:
        """What a pipeline run would do, and why. Changes nothing."""
        from kfm.pipelines.project import plan_pipeline

        return plan_pipeline(self, **arguments)


class PipelineGraph:
    """A pipeline's graph, checked."""

    __slots__ = ("bindings", "order", "reads")

    def __init__(
        self, order: list[str], reads: dict[str, tuple[str, ...]], bindings: dict[str, Mapping[str, str]]
    ) -> None:
        self.order = order
        self.reads = reads
        self.bindings = bindings


def _bound(
    spec: NodeSpec, names: Sequence[str], optional: Iterable[str], by_name: Mapping[str, str | None]
) -> dict[str, str]:
    """argument → the node whose result it receives."""
    bound = dict(spec.needs)
    for name in bound:
        if name not in names and names is not ANY and not _takes_more(spec.function):
            hint = did_you_mean(name, names)
            raise PipelineError(stopped(f"{spec.id} ({spec.where}) has no argument {name}{hint}"))
    for name in names:
        if name in bound or name in spec.params or name in CONTEXT_NAMES:
            continue
        producer = by_name.get(name, "")
        if producer:
            bound[name] = producer
        elif producer is None:
            raise PipelineError(
                f"{spec.id} reads from {name}, but several nodes have functions of that name.",
                remedy=f'Name the one: needs={{"{name}": "…"}}.',
            )
        elif name not in optional:
            raise PipelineError(
                f"{spec.id} ({spec.where}) wants {name}, which is neither a node's function nor one "
                f"of its params{did_you_mean(name, [*by_name, *spec.params])}",
                remedy="Call the argument like the function that it reads from, or give it in params.",
            )
    return bound


class _Any(tuple[str, ...]):
    """The arguments of a function that takes any."""


ANY = _Any()


def arguments_of(function: Callable[..., Any]) -> tuple[Sequence[str], Iterable[str]]:
    """The names of a function's arguments, and those that may be left out."""
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__self__"):
        return _signature(function)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if code.co_flags & _VARIABLE and not names:
        return ANY, ()
    defaults = getattr(function, "__defaults__", None) or ()
    optional = {*code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]}
    optional.update(getattr(function, "__kwdefaults__", None) or ())
    return names, optional


def _takes_more(function: Callable[..., Any]) -> bool:
    """It has a `**rest` for names that it does not name."""
    code: CodeType | None = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & 0x08)


def _signature(function: Callable[..., Any]) -> tuple[Sequence[str], Iterable[str]]:
    import inspect

    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ANY, ()
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {name: each for name, each in parameters.items() if each.kind in plain}
    return list(named), {name for name, each in named.items() if each.default is not inspect.Parameter.empty}
