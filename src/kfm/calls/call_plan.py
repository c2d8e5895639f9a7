"""The plan of a declared call, checked once: mistakes are raised where it is declared, not when it fails."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Literal, TypedDict

import msgspec

from kfm.calls.runtime import HERE, FailedTry, Line
from kfm.model.contracts import machine
from kfm.model.errors import UsageError
from kfm.model.quantities import suggest
from kfm.model.retry import CallPolicy, call_policy

TIMEOUT_MS = 60_000  # where nothing else is said
TIMEOUT_MAX_S = 24 * 3600.0
BASE_S = (0.5, 1.0)
_reading = Lock()

Isolation = Literal["thread", "process"]
Hook = Callable[[FailedTry], None]


class CallOptions(TypedDict, total=False):
    """The options of `kfm.call`; all are optional."""

    provider: str | None
    timeout: float | None
    attempt_timeout: float | None
    idempotent: bool
    attempts: int
    base: float
    isolation: Isolation | None
    pass_timeout: str | bool
    retry_on: type[Exception] | tuple[type[Exception], ...]
    check: Callable[[Any], object] | None
    on_retry: Hook | None
    on_give_up: Hook | None


class Handing(msgspec.Struct, frozen=True, kw_only=True):
    """The parameter by which a function takes its time limit."""

    name: str
    position: int | None  # where it may also be given without its name
    in_ms: bool

    def into(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit_ms: int) -> Any:
        """Arguments with the limit in them; a shorter one that the caller gave stays.

        `kwargs` is the wrapper's own and is written to. A later try only ever has a shorter limit.
        """
        limit: float = limit_ms if self.in_ms else limit_ms / 1000
        position = self.position
        if position is None or len(args) <= position:
            given = kwargs.get(self.name)
            kwargs[self.name] = limit if given is None else _shorter(given, limit)
            return args, kwargs
        return (*args[:position], _shorter(args[position], limit), *args[position + 1 :]), kwargs


def _shorter(given: Any, limit: float) -> Any:
    if isinstance(given, int | float) and not isinstance(given, bool):
        return min(given, limit)
    return limit if given is None else given  # an object of the library's own is kept


class CallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a call that is known before it is made."""

    name: str
    origin: object  # what was declared: tells this call's errors from those of calls inside
    line: Line
    policy: CallPolicy
    timeout_ms: int
    timed: bool  # a limit was asked for, so the clock is read even if all goes well
    attempt_timeout_ms: int | None
    idempotent: bool
    acts: bool  # declared not idempotent: not repeated, also by no tier above
    retry_on: tuple[type[Exception], ...]
    isolation: Isolation | None
    check: Callable[[Any], object] | None
    on_retry: Hook | None
    on_give_up: Hook | None


def plan_for(name: str, origin: object, options: CallOptions, *, takes_limit: bool) -> CallPlan:
    """Check the options and fill in what was not said. `takes_limit`: a limit can be handed to it."""
    unknown = [option for option in options if option not in CallOptions.__annotations__]
    if unknown:
        close = suggest(unknown[0], CallOptions.__annotations__)
        hint = f"; did you mean {close}=?" if close else ""
        raise UsageError(f"kfm.call takes no {unknown[0]}={hint}", remedy="See docs/reference/calls.md.")
    provider = options.get("provider")
    if provider is not None and (type(provider) is not str or not provider):
        raise UsageError("provider= is the name of the service that is called, as text.")
    _read_tables(provider)
    isolation = options.get("isolation")
    if isolation not in (None, "thread", "process"):
        raise UsageError(f'isolation= is "thread" or "process", not {isolation!r}.')
    if not isinstance(options.get("idempotent", False), bool):
        raise UsageError("idempotent= is True or False: a promise has no third value.")
    timeout, attempt_timeout = options.get("timeout"), options.get("attempt_timeout")
    return CallPlan(
        name=name,
        origin=origin,
        line=HERE.line(provider),
        policy=_policy(options),
        timeout_ms=TIMEOUT_MS if timeout is None else _ms("timeout", timeout),
        timed=takes_limit or timeout is not None or attempt_timeout is not None or isolation is not None,
        attempt_timeout_ms=None if attempt_timeout is None else _ms("attempt_timeout", attempt_timeout),
        idempotent=options.get("idempotent", False),
        acts=options.get("idempotent") is False,
        retry_on=_retry_on(options.get("retry_on", ())),
        isolation=isolation,
        check=options.get("check"),
        on_retry=options.get("on_retry"),
        on_give_up=options.get("on_give_up"),
    )


def _read_tables(provider: str | None) -> None:
    """What calls decide by is read here: two threads that decode a type for the first time at once crash."""
    with _reading:
        call_policy()
        if provider is not None:
            machine("breaker")


def _policy(options: CallOptions) -> CallPolicy:
    """Fewer attempts than the table's, or a base within its range; never more, never outside."""
    usual = call_policy()
    attempts, base = options.get("attempts", usual.attempts_max), options.get("base", usual.base_ms / 1000)
    if type(attempts) is not int or not 1 <= attempts <= usual.attempts_max:
        raise UsageError(f"attempts= is 1 to {usual.attempts_max}, the first one included.")
    if not _is_number(base) or not BASE_S[0] <= base <= BASE_S[1]:
        raise UsageError(f"base= is {BASE_S[0]} to {BASE_S[1]} seconds.")
    return CallPolicy(attempts_max=attempts, base_ms=round(base * 1000), cap_ms=usual.cap_ms)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)  # in no range: nan and inf


def _ms(option: str, seconds: float) -> int:
    if not _is_number(seconds) or not 0.001 <= seconds <= TIMEOUT_MAX_S:
        raise UsageError(f"{option}= is in seconds, from 0.001 to {TIMEOUT_MAX_S:.0f}, not {seconds!r}.")
    return round(seconds * 1000)


def _retry_on(kinds: Any) -> tuple[type[Exception], ...]:
    listed = kinds if isinstance(kinds, tuple) else (kinds,)
    for kind in listed:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise UsageError("retry_on= takes exception classes.")
        if kind in (Exception, OSError, RuntimeError, ValueError):
            raise UsageError(
                f"retry_on={kind.__name__} would retry defects, too.",
                remedy="Name the classes that the library raises for trouble that passes.",
            )
    return listed


def handing_for(fn: Callable[..., Any], pass_timeout: str | bool | None) -> Handing | None:
    """How `fn` takes a limit: as declared, or by a parameter `timeout_ms` or `timeout`."""
    if pass_timeout is False:
        return None
    import inspect

    parameters, readable = [], True
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # some built-in functions have none
        readable = False
    named = {
        each.name: (index if each.kind is each.POSITIONAL_OR_KEYWORD else None)
        for index, each in enumerate(parameters)
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    for name in (pass_timeout,) if isinstance(pass_timeout, str) else ("timeout_ms", "timeout"):
        if name in named:
            return Handing(name=name, position=named[name], in_ms=name.endswith("_ms"))
    if isinstance(pass_timeout, str):
        if not readable or any(each.kind is each.VAR_KEYWORD for each in parameters):
            return Handing(name=pass_timeout, position=None, in_ms=pass_timeout.endswith("_ms"))
        raise UsageError(f"pass_timeout={pass_timeout!r}: the function takes no such argument.")
    if pass_timeout is True:
        raise UsageError(
            "pass_timeout=True: the function has no parameter timeout or timeout_ms.",
            remedy='Name the parameter: pass_timeout="read_timeout".',
        )
    return None
