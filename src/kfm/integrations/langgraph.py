"""LangGraph integration: run-state around nodes of a graph, `from kfm.integrations.langgraph import node`.

    @node("survey.samples", reads=["county"], inputs=["samples.csv"])
    def samples(state):
        return {"samples": …}

    graph.add_node("samples", samples)

A thread of LangGraph is a run of kfm. Nothing of LangGraph is imported here: its nodes are functions of a
state, and that is what this wraps.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from kfm.model.errors import UnhashableInput
from kfm.pipelines.inputs import plain
from kfm.pipelines.run_state import RunStateWrapper, run_state

F = TypeVar("F", bound=Callable[..., Any])


def node(dataset_id: str, *, reads: Sequence[str] | None = None, **options: Any) -> Callable[[F], F]:
    """Wrap a node: the same values under the keys that it reads are answered from the store.

    `reads` names the keys of the state that it depends on; else it is the whole state. Whatever else
    `kfm.run_state` takes can be given, too. The state's update that the node returns is kept as JSON.
    """

    def declare(function: F) -> F:
        wants_config = "config" in inspect.signature(function).parameters

        def settings(state: Any, config: Any) -> tuple[RunStateWrapper, dict[str, Any]]:
            seen = {"state": _seen(state, reads)}
            given = {"run_id": _thread(config), **options, "params": lambda *_args, **_kwargs: seen}
            return run_state(dataset_id, **given), {"config": config} if wants_config else {}

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(state: Any, config: Any = None) -> Any:
                wrapped, more = settings(state, config)
                return (await wrapped.settle_async(function, state, **more)).value

            return cast("F", _as_node(awaited))

        @functools.wraps(function)
        def called(state: Any, config: Any = None) -> Any:
            wrapped, more = settings(state, config)
            return wrapped.settle(function, state, **more).value

        return cast("F", _as_node(called))

    return declare


def _as_node(function: Callable[..., Any]) -> Callable[..., Any]:
    """LangGraph looks at the signature to see what a node is given: ours, not that of what we wrap."""
    del function.__wrapped__  # type: ignore[attr-defined]
    return function


def _thread(config: Any) -> str | None:
    configurable = config.get("configurable", {}) if isinstance(config, Mapping) else {}
    thread: str | None = configurable.get("thread_id")
    return str(thread) if thread is not None else None


def _seen(state: Any, reads: Sequence[str] | None) -> Any:
    if reads is None:
        return _dumped(state, "state")
    found = {}
    for key in reads:
        value = state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)
        found[key] = _dumped(value, f"state.{key}")
    return found


def _dumped(value: Any, where: str) -> Any:
    """Messages and other models as what they hold."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    elif isinstance(value, Mapping):
        value = {key: _dumped(each, f"{where}.{key}") for key, each in value.items()}
    elif isinstance(value, list | tuple):
        value = [_dumped(each, f"{where}[{index}]") for index, each in enumerate(value)]
    try:
        return plain(value, where)
    except UnhashableInput as error:
        raise UnhashableInput(
            error.detail, field=where, remedy="Name the keys that the node depends on: reads=[…]."
        ) from None
