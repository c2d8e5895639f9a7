"""`kfm.call`: one external call with a limit, retries, full jitter and a breaker.

@kfm.call(provider="usgs", timeout=10, idempotent=True)
def fetch(url, timeout): ...                              # async def alike

kfm.call(fetch, url, provider="usgs", idempotent=True)    # await it, if fetch is async

for attempt in kfm.call(provider="usgs", timeout=10, idempotent=True):
    with attempt:                                         # async for, async with
        ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack, cast, overload

from kfm.calls.attempts import LoopAttempt, Tries, attempts, attempts_async
from kfm.calls.call_plan import CallOptions, CallPlan, handing_for, plan_for
from kfm.calls.wrappers import wrap, wrap_async
from kfm.model.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")


class CallDeclaration:
    """A declaration: a decorator, or something to loop over, or (for a single try) a context."""

    __slots__ = ("_attempt", "_options", "_plan")

    def __init__(self, options: CallOptions) -> None:
        self._options = options
        self._plan = plan_for(options.get("provider") or "the block", self, options, takes_limit=True)
        self._attempt: LoopAttempt | None = None

    def __call__(self, fn: Callable[P, T], /) -> Callable[P, T]:
        import inspect

        name = getattr(fn, "__qualname__", None) or type(fn).__name__
        if isinstance(fn, type):
            raise UsageError(f"kfm.call is for functions, not for {fn!r}.")
        if not callable(fn):
            raise UsageError(f"kfm.call is for functions, and {fn!r} can't be called.")
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise UsageError(f"{name} is a generator: it does its work only after the call has ended.")
        handing, is_async = handing_for(fn, self._options.get("pass_timeout")), _is_async(fn)
        plan = plan_for(name, fn, self._options, takes_limit=is_async or handing is not None)
        if not is_async:
            return wrap(fn, plan, handing)
        if plan.isolation is not None:
            raise UsageError(f"{name} is async and is cut short by itself; isolation= is for other code.")
        return cast(Callable[P, T], wrap_async(cast(Any, fn), plan, handing))

    def __iter__(self) -> Iterator[LoopAttempt]:
        return attempts(self._block())

    def __aiter__(self) -> AsyncIterator[LoopAttempt]:
        return attempts_async(self._block())

    def __enter__(self) -> LoopAttempt:
        return self._only_attempt().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._ended().__exit__(kind, error, trace)

    async def __aenter__(self) -> LoopAttempt:
        return await self._only_attempt().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self._ended().__aexit__(kind, error, trace)

    def _only_attempt(self) -> LoopAttempt:
        if self._plan.idempotent:
            raise UsageError(
                "A with block can't be run again, so idempotent=True promises too much.",
                remedy="Write `for attempt in kfm.call(…): with attempt: …`, or leave idempotent= away.",
            )
        if self._attempt is not None:
            raise UsageError("A with block needs a kfm.call(…) of its own.")
        tries = Tries(self._block())
        tries.open()
        self._attempt = LoopAttempt(tries)
        return self._attempt

    def _ended(self) -> LoopAttempt:
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            raise AssertionError("entered before it is left")
        return attempt

    def _block(self) -> CallPlan:
        for option in ("isolation", "pass_timeout", "check"):
            if self._options.get(option):
                raise UsageError(f"{option}= is for functions; a block of code has nothing to apply it to.")
        return self._plan


def _is_async(fn: Callable[..., Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


@overload
def call(**options: Unpack[CallOptions]) -> CallDeclaration: ...
@overload
def call(fn: Callable[..., T], /, *args: Any, **options: Any) -> T: ...
def call(fn: Callable[..., Any] | None = None, /, *args: Any, **options: Any) -> Any:
    """Declare a call, or make one at once. Options are listed in docs/reference/calls.md.

    With a function, options that kfm.call does not know go to the function.
    """
    if fn is None:
        return CallDeclaration(cast(CallOptions, options))
    own = {name: value for name, value in options.items() if name in CallOptions.__annotations__}
    if not own:
        raise UsageError(
            "kfm.call needs to be told something, such as provider= or idempotent=.",
            remedy="As a decorator it has parentheses: @kfm.call(provider=…).",
        )
    rest = {name: value for name, value in options.items() if name not in own}
    return CallDeclaration(cast(CallOptions, own))(fn)(*args, **rest)
