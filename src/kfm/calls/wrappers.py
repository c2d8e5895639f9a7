"""Wrappers of declared functions. Everything that can be decided at declaration, is.

The wrapper for the commonest case (no limit asked for, none around, the circuit quiet, no run that
could be stopped) adds three looks to the function's own call; all else is behind them, in `carry_on`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from kfm.calls.attempts import Tries
from kfm.calls.call_plan import CallPlan, Handing
from kfm.calls.runtime import DEADLINE_MS, HERE

P = ParamSpec("P")
T = TypeVar("T")

Invoke = Callable[[Tries, tuple[Any, ...], dict[str, Any]], Any]


def wrap(fn: Callable[P, T], plan: CallPlan, handing: Handing | None) -> Callable[P, T]:
    """A synchronous function."""
    invoke = _invocation(fn, plan, handing)
    if plan.isolation is not None or plan.acts:

        @functools.wraps(fn)
        def watched(*args: P.args, **kwargs: P.kwargs) -> T:
            answer: T = carry_on(Tries(plan), invoke, args, kwargs)
            return answer

        return watched
    if plan.timed:
        return _timed(fn, plan, handing, invoke)
    return _plain(fn, plan, invoke)


def _plain(fn: Callable[P, T], plan: CallPlan, invoke: Invoke) -> Callable[P, T]:
    """Without a limit of its own: the clock is not read and nothing is set unless something fails."""
    line, around, runs = plan.line, DEADLINE_MS.get, HERE.runs
    direct: Callable[..., T] = _checked(fn, plan)

    @functools.wraps(fn)
    def plain(*args: P.args, **kwargs: P.kwargs) -> T:
        answer: T
        if line.circuit.quiet and around() is None and not runs:
            try:
                # Handing on no keywords costs as much as looking for a limit.
                answer = direct(*args, **kwargs) if kwargs else direct(*args)
            except Exception as error:
                # The limit counts from here: what failed could not have been cut short.
                tries = Tries(plan, HERE.clock.monotonic_ms())
                delay_ms = tries.failed(error)
                if delay_ms is None:
                    raise
            else:
                circuit = line.circuit
                if not circuit.quiet:  # another thread's failure was counted meanwhile
                    circuit.after(True)
                return answer
            HERE.sleep_ms(delay_ms)
        else:
            tries = Tries(plan)
        answer = carry_on(tries, invoke, args, kwargs)
        return answer

    return plain


def _timed(fn: Callable[P, T], plan: CallPlan, handing: Handing | None, invoke: Invoke) -> Callable[P, T]:
    """With a limit, which the function may take, and which everything inside can see."""
    line, around, enter, leave = plan.line, DEADLINE_MS.get, DEADLINE_MS.set, DEADLINE_MS.reset
    runs = HERE.runs
    limit_ms = min(plan.timeout_ms, plan.attempt_timeout_ms or plan.timeout_ms)
    direct: Callable[..., T] = _checked(fn, plan)

    @functools.wraps(fn)
    def timed(*args: P.args, **kwargs: P.kwargs) -> T:
        answer: T
        began_ms, outer_ms = HERE.clock.monotonic_ms(), around()
        until_ms = began_ms + limit_ms
        if line.circuit.quiet and (outer_ms is None or until_ms <= outer_ms) and not runs:
            handed: Any = args, kwargs
            if handing is not None:
                handed = handing.into(args, kwargs, limit_ms)
            token = enter(until_ms)
            try:
                answer = direct(*handed[0], **handed[1])
            except Exception as error:
                tries = Tries(plan, began_ms, outer_ms)
                delay_ms = tries.failed(error)
                if delay_ms is None:
                    raise
            else:
                circuit = line.circuit
                if not circuit.quiet:  # another thread's failure was counted meanwhile
                    circuit.after(True)
                return answer
            finally:
                leave(token)
            HERE.sleep_ms(delay_ms)
        else:
            tries = Tries(plan)
        answer = carry_on(tries, invoke, args, kwargs)
        return answer

    return timed


def carry_on(tries: Tries, invoke: Invoke, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Try until one succeeds or it is decided that none will. An error is never raised inside another's."""
    while True:
        tries.open()
        token = DEADLINE_MS.set(tries.until_ms)
        try:
            answer = invoke(tries, args, kwargs)
        except Exception as error:
            delay_ms = tries.failed(error)
            if delay_ms is None:
                raise
        else:
            tries.succeeded()
            return answer
        finally:
            DEADLINE_MS.reset(token)
        HERE.sleep_ms(delay_ms)


def wrap_async(
    fn: Callable[P, Coroutine[Any, Any, T]], plan: CallPlan, handing: Handing | None
) -> Callable[P, Coroutine[Any, Any, T]]:
    """A coroutine function: always limited, because a coroutine can always be cut short."""
    from asyncio import timeout  # here, because most programs that start kfm have no use for it

    check = plan.check

    async def once(tries: Tries, args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """One try. Cancellation is no error: nothing here catches it."""
        limit = timeout(tries.limit_ms / 1000)
        try:
            async with limit:
                answer = await fn(*args, **kwargs)
        except TimeoutError:
            if limit.expired():
                raise tries.timed_out("it was cut short") from None
            raise  # the function's own
        if check is not None:
            check(answer)
        return answer

    @functools.wraps(fn)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        tries = Tries(plan)
        while True:
            tries.open()
            token = DEADLINE_MS.set(tries.until_ms)
            try:
                handed: Any = args, kwargs
                if handing is not None:
                    handed = handing.into(args, kwargs, tries.limit_ms)
                answer = await once(tries, *handed)
            except Exception as error:
                delay_ms = tries.failed(error)
                if delay_ms is None:
                    raise
            else:
                tries.succeeded()
                return answer
            finally:
                DEADLINE_MS.reset(token)
            await HERE.sleep_async(delay_ms)

    return wrapper


def _invocation(fn: Callable[..., Any], plan: CallPlan, handing: Handing | None) -> Invoke:
    """How one try is made, with the limit where the function takes it."""
    run, check = _room(plan), plan.check

    def invoke(tries: Tries, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if handing is not None:
            args, kwargs = handing.into(args, kwargs, tries.limit_ms)
        answer = run(tries, fn, args, kwargs)
        if check is not None:
            check(answer)
        return answer

    return invoke


def _room(plan: CallPlan) -> Callable[[Tries, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]:
    if plan.isolation == "thread":
        from kfm.calls.isolation import in_thread

        return in_thread
    if plan.isolation == "process":
        from kfm.calls.isolation import in_process

        return in_process
    return _here


def _here(_: Tries, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


def _checked(fn: Callable[P, T], plan: CallPlan) -> Callable[P, T]:
    check = plan.check
    if check is None:
        return fn

    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        answer = fn(*args, **kwargs)
        check(answer)
        return answer

    return checked
