"""The forms in which a call can be declared, for tests that hold for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import kfm


def failing(times: int, error: Callable[[], Exception]) -> tuple[Callable[[], str], list[int]]:
    """A function that fails so often, and how often it was called."""
    calls: list[int] = []

    def fetch() -> str:
        calls.append(len(calls) + 1)
        if len(calls) <= times:
            raise error()
        return "done"

    return fetch, calls


def as_async(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function as a coroutine, and back: a test of both tiers in one."""

    async def fetch(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return fn(*args, **kwargs)

    return fetch


def declared(kind: str, fn: Callable[..., Any], **options: Any) -> Callable[[], Any]:
    """The function declared in one of the ways that there are."""
    if kind == "decorator":
        return kfm.call(**options)(fn)
    if kind == "function":
        return lambda: kfm.call(fn, **options)
    if kind == "loop":
        return lambda: _loop(fn, options)
    if kind == "async decorator":
        wrapped = kfm.call(**options)(as_async(fn))
        return lambda: asyncio.run(wrapped())
    if kind == "async function":

        async def once() -> Any:
            return await kfm.call(as_async(fn), **options)

        return lambda: asyncio.run(once())
    return lambda: asyncio.run(_loop_async(as_async(fn), options))


def _loop(fn: Callable[..., Any], options: Any) -> Any:
    for attempt in kfm.call(**options):
        with attempt:
            answer = fn()
    return answer


async def _loop_async(fn: Callable[..., Any], options: Any) -> Any:
    async for attempt in kfm.call(**options):
        async with attempt:
            answer = await fn()
    return answer


KINDS = ["decorator", "function", "loop", "async decorator", "async function", "async loop"]
