"""Isolation: a time limit for code that takes none. A thread can only be abandoned, a process is killed."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar

from kfm.calls.attempts import Tries
from kfm.calls.runtime import HERE, parts_ms
from kfm.model.errors import KfmError, LimitExceeded, UsageError, WorkFailed

T = TypeVar("T")

ABANDONED_MAX = 16  # threads that are no longer waited for, in this process
_JOIN_S = 5.0
_MESSAGE_CHARS_MAX = 2000

_abandoned: list[Thread] = []


def in_thread(tries: Tries, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run with the caller's context; at expiry abandon the thread and raise."""
    from queue import Empty, SimpleQueue

    _abandoned[:] = [thread for thread in _abandoned if thread.is_alive()]
    if len(_abandoned) >= ABANDONED_MAX:
        raise LimitExceeded(
            f"{ABANDONED_MAX} calls in threads ran out of time and have not ended; no more are begun.",
            remedy='Use isolation="process", or a timeout of the library itself.',
        )
    answers: SimpleQueue[tuple[bool, Any]] = SimpleQueue()
    context = copy_context()

    def work() -> None:
        try:
            answers.put((True, context.run(fn, *args, **kwargs)))
        except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
            answers.put((False, error))

    thread = Thread(target=work, name=f"kfm.call {tries.plan.name}", daemon=True)
    thread.start()

    def answered(wait_s: float) -> tuple[bool, Any] | None:
        with contextlib.suppress(Empty):
            return answers.get(timeout=wait_s)
        return None

    found = _within(tries, answered)
    if found is None:
        _abandoned.append(thread)
        raise HERE.stop or tries.timed_out(
            "its thread was abandoned and may still be at work", abandoned=True
        )
    ok, answer = found
    if ok:
        return answer
    try:
        raise answer
    finally:
        del answer, found  # the frame and the error would hold each other


def in_process(tries: Tries, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run in a fresh interpreter; at expiry kill it and everything that it has started."""
    import multiprocessing

    errand = _errand(tries.plan.name, fn, args, kwargs)
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of other threads
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_child, args=(theirs, errand, tries.limit_ms), name=f"kfm.call {tries.plan.name}"
    )
    try:
        process.start()
        theirs.close()
        if not _within(tries, ours.poll):
            raise HERE.stop or tries.timed_out("its process was killed")
        how, answer = pickle.loads(ours.recv_bytes())
    except EOFError:
        process.join(_JOIN_S)
        raise WorkFailed(
            f"{tries.plan.name}: its process ended without an answer (exit code {process.exitcode})."
        ) from None
    finally:
        ours.close()
        _end(process)
    if how == "value":
        return answer
    if how == "message":
        raise WorkFailed(f"{tries.plan.name}: {answer}")
    if isinstance(answer, KfmError):
        answer.args = (answer.message,)  # made from its message once more on the way
    raise answer


def _within(tries: Tries, look: Callable[[float], T]) -> T | None:
    """What `look` finds, in so many seconds, before the limit or a stop of the run."""
    for part_ms in parts_ms(tries.limit_ms, HERE.check):
        if found := look(part_ms / 1000):
            return found
    return None


def _errand(name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """What the child needs. A decorated function is found again by its name, and unwrapped there."""
    where = (fn.__module__, fn.__qualname__) if hasattr(fn, "__qualname__") else None
    try:
        return pickle.dumps((where if where and _is_wrapped(where, fn) else fn, args, kwargs))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{name} can't be sent to another process: {error}",
            remedy="Use a function at the top level of a module, with arguments that can be pickled.",
        ) from error


def _is_wrapped(where: tuple[str, str], fn: Callable[..., Any]) -> bool:
    """Does the name lead to the declared call around `fn`, and not to `fn` itself?"""
    with contextlib.suppress(KeyError, AttributeError):
        return getattr(_find(where), "__wrapped__", None) is fn
    return False


def _find(where: tuple[str, str]) -> Any:
    import sys

    found: Any = sys.modules[where[0]]
    for part in where[1].split("."):
        found = getattr(found, part)
    return found


def _end(process: Any) -> None:
    import os
    import signal

    if process.pid is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # also what it started; not there yet if it just began
    process.kill()
    process.join(_JOIN_S)
    with contextlib.suppress(ValueError):
        process.close()


# --- in the child --------------------------------------------------------------------


def _child(pipe: Any, errand: bytes, limit_ms: int) -> None:
    import os
    from importlib import import_module

    os.setsid()
    Thread(target=_die_with_the_parent, args=(pipe,), daemon=True).start()
    within = import_module("kfm").within
    try:
        fn, args, kwargs = _unpack(errand)
        with within(limit_ms / 1000):
            value = fn(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 (raised again in the parent)
        answer = _as_answer(error)
    else:
        try:
            answer = pickle.dumps(("value", value))
        except Exception as error:  # noqa: BLE001 (whatever a value's own methods raise)
            answer = pickle.dumps(("message", f"its answer can't be sent back: {error}"[:_MESSAGE_CHARS_MAX]))
    pipe.send_bytes(answer)


def _unpack(errand: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    from importlib import import_module

    what, args, kwargs = pickle.loads(errand)
    if isinstance(what, tuple):
        import_module(what[0])
        what = _find(what).__wrapped__
    return what, args, kwargs


def _as_answer(error: BaseException) -> bytes:
    """An error that can't travel is told by its name and words."""
    try:
        answer = pickle.dumps(("error", error))
        pickle.loads(answer)  # some can be written and not read
    except Exception:  # noqa: BLE001 (whatever an error's own methods raise)
        return pickle.dumps(("message", f"{type(error).__name__}: {error}"[:_MESSAGE_CHARS_MAX]))
    return answer


def _die_with_the_parent(pipe: Any) -> None:
    """The parent sends nothing: the pipe becomes readable when it is gone."""
    import os

    with contextlib.suppress(OSError):
        pipe.poll(None)
        os._exit(1)
