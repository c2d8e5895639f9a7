"""Celery tasks: retries declared on the decorator or the class, and `self.retry(…)` in the body."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm_lint.effects import check_effects
from kfm_lint.failure_kinds import BROAD, is_permanent, types_in
from kfm_lint.findings import Mark
from kfm_lint.index import Function, Module, inside, last
from kfm_lint.loop_rules import validations
from kfm_lint.retry_libraries import Declared, declared, is_endless, literal, permanent

_OPTIONS = frozenset(("autoretry_for", "max_retries", "default_retry_delay", "retry_backoff", "retry_kwargs"))
_TASK = re.compile(r"(^|\.)(shared_)?task$")
FOREVER = "max_retries=None: Celery retries this for ever."


def check_tasks(module: Module) -> Iterator[Mark]:
    if not any(
        word in module.source.text for word in ("autoretry_for", "max_retries", ".retry(", "retry_delay")
    ):
        return
    for function in module.functions:
        for node in function.decorator_list:
            name = module.names.called(node) if isinstance(node, ast.Call) else module.names.dotted(node)
            if not _TASK.search(name) or _is_airflow(module):
                continue
            if isinstance(node, ast.Call):
                for mark in _options(declared(module.names, node, ())):
                    yield mark._replace(sure=not (mark.code == "KFM101" and _asks_again(module, function)))
            yield from _body(module, function, node)
    for each in module.classes:
        if (
            any(last(module.names.dotted(base)).endswith("Task") for base in each.bases)
            and "celery" in module.source.text
        ):
            given = {
                node.targets[0].id: node.value
                for node in each.body
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            }
            if _OPTIONS & given.keys():
                call = ast.Call(func=ast.Name("Task", ast.Load()), args=[], keywords=[])
                yield from _options(Declared(module.names, call, "Task", given, False))


def _asks_again(module: Module, function: Function) -> bool:
    """`self.retry()` outside any handler: it waits for something, and nothing has failed."""
    handled = {
        id(node)
        for trying, owner in module.tries
        if owner is function
        for handler in trying.handlers
        for node in inside(list(handler.body))
    }
    return any(
        isinstance(node, ast.Call) and last(module.names.called(node)) == "retry" and id(node) not in handled
        for node in inside(list(function.body))
    )


def _is_airflow(module: Module) -> bool:
    return bool(module.names.modules & {"airflow", "prefect", "invoke"})


def _options(said: Declared) -> Iterator[Mark]:
    more = said.given.get("retry_kwargs")
    inner = {}
    if isinstance(more, ast.Dict):
        inner = {
            literal(key): value for key, value in zip(more.keys, more.values, strict=True) if key is not None
        }
    for name, node in [*said.given.items(), *((str(key), value) for key, value in inner.items())]:
        if name == "max_retries" and is_endless(literal(node)):
            yield Mark(
                "KFM101", node, FOREVER if literal(node) is None else f"{literal(node)} retries are no limit."
            )
    delay = inner.get("countdown") or said.given.get("default_retry_delay")
    if delay is not None and literal(delay) == 0:
        yield Mark("KFM102", delay, "Celery retries this at once, without any wait.")
    elif "autoretry_for" in said.given and not said.is_open:
        backoff = said.given.get("retry_backoff")
        if (backoff is None or literal(backoff) is False) and not _is_computed(delay):
            yield Mark(
                "KFM103",
                delay or said.given["autoretry_for"],
                "Without retry_backoff Celery waits the same time before every retry.",
            )
    if "autoretry_for" in said.given and "dont_autoretry_for" not in said.given:
        yield from permanent(said.names, said.given["autoretry_for"])


def _is_computed(node: ast.expr | None) -> bool:
    return node is not None and any(isinstance(each, ast.Call) for each in ast.walk(node))


def _body(module: Module, function: Function, decorator: ast.expr) -> Iterator[Mark]:
    calls = [
        node
        for node in inside(list(function.body))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "retry"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("self", "task", function.name)
    ]
    for call in calls:
        yield from _retry_call(
            declared(
                module.names, call, ("args", "kwargs", "exc", "throw", "eta", "countdown", "max_retries")
            )
        )
    for trying, owner in module.tries:
        if owner is function:
            for handler in trying.handlers:
                held = [call for call in calls if any(call is node for node in inside(list(handler.body)))]
                if held and handler.type is not None:
                    for name in types_in(module.names, handler.type):
                        if is_permanent(name):
                            yield Mark(
                                "KFM106",
                                handler,
                                f"{last(name)} is retried: the same data will break the same rule.",
                            )
                others = [each.type for each in trying.handlers if each is not handler and each.type]
                spared = any(is_permanent(name) for each in others for name in types_in(module.names, each))
                blanket = handler.type is None or last(module.names.dotted(handler.type)) in BROAD
                if held and blanket and not spared:
                    yield from validations(module, trying.body)
    given = {each.arg: each.value for each in decorator.keywords} if isinstance(decorator, ast.Call) else {}
    if calls or "autoretry_for" in given:
        yield from check_effects(module, function.body, function)
    kinds = given.get("autoretry_for")
    if (
        kinds is not None
        and "dont_autoretry_for" not in given
        and "Exception" in types_in(module.names, kinds)
    ):
        yield from validations(module, function.body)


def _retry_call(said: Declared) -> Iterator[Mark]:
    if "max_retries" in said.given and is_endless(said.value("max_retries")):
        yield Mark("KFM101", said.given["max_retries"], FOREVER)
    wait = said.value("countdown")
    if wait == 0:
        yield Mark("KFM102", said.given["countdown"], "Celery retries this at once, without any wait.")
    elif isinstance(wait, int | float):
        yield Mark(
            "KFM103",
            said.given["countdown"],
            "Every retry waits the same time: tasks that fail together return together.",
        )
