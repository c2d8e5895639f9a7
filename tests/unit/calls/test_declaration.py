"""Options and hooks of `kfm.call`, and what is refused when it is declared."""

from __future__ import annotations

from typing import Any

import pytest

import kfm
from kfm.calls.runtime import FailedTry
from kfm.model.errors import GateDenied, UpstreamUnavailable, UsageError
from kfm.testing.driven_time import DrivenTime
from tests.unit.calls.forms import KINDS, as_async, declared, failing


def test_hooks_hear_of_each_failed_try(kfm_time: DrivenTime) -> None:
    """`on_retry` before each wait, `on_give_up` at the end, with everything that telemetry wants."""
    retried: list[FailedTry] = []
    gave_up: list[FailedTry] = []
    fetch, _ = failing(99, lambda: UpstreamUnavailable("busy", status=503))
    with pytest.raises(UpstreamUnavailable):
        kfm.call(fetch, attempts=3, idempotent=True, on_retry=retried.append, on_give_up=gave_up.append)
    assert [(each.attempt, each.delay_ms, each.outcome) for each in retried] == [
        (1, 250, "retry"),
        (2, 500, "retry"),
    ]
    (last,) = gave_up
    assert (last.attempt, last.outcome, last.reason) == (3, "gave-up", "attempts-spent")
    assert (last.error_class, last.retryable, last.provider) == ("HTTP_503", True, None)
    assert kfm_time.tried == [*retried, last]


def test_a_recovery_is_heard_of(kfm_time: DrivenTime) -> None:
    """A sequence that ends well is closed by a `recovered`; a call that never failed is silent."""
    fetch, _ = failing(1, TimeoutError)
    declared_fetch = kfm.call(idempotent=True)(fetch)
    declared_fetch()
    assert [each.outcome for each in kfm_time.tried] == ["retry", "recovered"]
    declared_fetch()
    assert len(kfm_time.tried) == 2


def test_retry_on_classifies_what_the_table_does_not_know(kfm_time: DrivenTime) -> None:
    """A library's own class can be declared to pass; what the table refuses stays refused."""

    class Hiccup(Exception):
        pass

    fetch, _ = failing(1, Hiccup)
    assert kfm.call(fetch, idempotent=True, retry_on=Hiccup) == "done"
    fetch, calls = failing(1, GateDenied)
    with pytest.raises(GateDenied):
        kfm.call(fetch, idempotent=True, retry_on=(Hiccup, GateDenied))
    assert len(calls) == 1


@pytest.mark.parametrize("kind", KINDS[:2] + KINDS[3:5])
def test_check_turns_an_answer_into_an_error(kind: str, kfm_time: DrivenTime) -> None:
    """What the check raises counts as the call's failure."""
    answers = [503, 200]

    def check(status: int) -> None:
        if status != 200:
            raise UpstreamUnavailable("busy", status=status)

    assert declared(kind, lambda: answers.pop(0), idempotent=True, check=check)() == 200
    assert kfm_time.delays == [0.25]


def test_the_functions_own_arguments_reach_it(kfm_time: DrivenTime) -> None:
    """Options that kfm.call does not know are the function's."""

    def fetch(url: str, *, params: dict[str, str]) -> Any:
        return url, params

    assert kfm.call(fetch, "u", params={"a": "b"}, provider="usgs") == ("u", {"a": "b"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attempts": 6}, "1 to 5"),
        ({"attempts": 0}, "1 to 5"),
        ({"base": 0.1}, "0.5 to 1.0"),
        ({"timeout": 0}, "timeout="),
        ({"timeout": float("nan")}, "timeout="),
        ({"timeout": "10"}, "timeout="),
        ({"timeout": 10**400}, "timeout="),
        ({"attempts": "2"}, "1 to 5"),
        ({"attempts": True}, "1 to 5"),
        ({"base": "0.5"}, "0.5 to 1.0"),
        ({"attempt_timeout": -1}, "attempt_timeout="),
        ({"provider": ""}, "provider="),
        ({"isolation": "fibre"}, "isolation="),
        ({"retry_on": Exception}, "would retry defects"),
        ({"retry_on": KeyboardInterrupt}, "exception classes"),
        ({"idempotent": "yes"}, "True or False"),
        ({"idempotant": True}, "did you mean idempotent"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_is_written(options: Any, said: str) -> None:
    """Nothing is called before the mistake is said."""
    with pytest.raises(UsageError, match=said):
        kfm.call(**options)


def test_wrong_uses_are_refused() -> None:
    """What can't do what it seems to do is an error and not a surprise."""

    def plain() -> None:
        raise AssertionError("called")

    def items() -> Any:
        yield 1

    async def work() -> None: ...

    with pytest.raises(UsageError, match="told something"):
        kfm.call(plain)
    with pytest.raises(UsageError, match="generator"):
        kfm.call(provider="x")(items)
    with pytest.raises(UsageError, match="cut short by itself"):
        kfm.call(isolation="thread")(work)
    with pytest.raises(UsageError, match="no such argument"):
        kfm.call(pass_timeout="wait")(plain)
    with pytest.raises(UsageError, match="no parameter"):
        kfm.call(pass_timeout=True)(plain)
    with pytest.raises(UsageError, match="not for"):
        kfm.call(provider="x")(int)
    nothing: Any = 5
    with pytest.raises(UsageError, match="can't be called"):
        kfm.call(nothing, provider="x")


def test_a_declared_function_keeps_its_face() -> None:
    """Name, documentation and signature are the function's own; methods are methods still."""
    import inspect

    class Client:
        @kfm.call(provider="usgs")
        def fetch(self, url: str) -> str:
            """Get it."""
            return url

    assert Client().fetch("u") == "u"
    assert (Client.fetch.__name__, Client.fetch.__doc__) == ("fetch", "Get it.")
    assert list(inspect.signature(Client.fetch).parameters) == ["self", "url"]
    assert inspect.iscoroutinefunction(kfm.call()(as_async(print)))
