"""KFM107: answering a failure with more concurrency. It turns an overload into an outage."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm_lint.failure_kinds import NO_FAILURE, caught, is_failure
from kfm_lint.findings import Mark
from kfm_lint.index import LOOPS, Module, calls_in, inside, last

_WIDTH = re.compile(
    r"(?i)(concurren|parallel|worker|thread|pool_?size|processes|n_?procs|num_procs|in_?flight|n_?jobs|fan_?out"
    r"|consumers|prefetch|max_connections|batch_width)"
)
_TALLY = re.compile(
    r"(?i)fail|error|dead|lost|restart|crash|exit|done|finish|stop|idle|bad|miss|skip|retr|count|_id$|timeout"
    r"|delay|seen|busy|class|name|_at$|time|index|exc|_ready|active|running|thread_?local"
)
_SPAWNS = frozenset(
    "submit create_task ensure_future spawn start_soon apply_async Thread Process start_new_thread "
    "run_in_executor map_async delay send_task spawn_n".split()
)
_SCALES = re.compile(
    r"(?i)^_*(scale_(up|out)|add_(more_)?(workers?|threads?|consumers?|process(es)?)"
    r"|(increase|raise|grow|double|bump)_?\w*(concurren|worker|parallel|thread|pool|consumer)\w*"
    r"|(pool|worker|thread|concurrency)s?_(grow|increase|scale_up)|pool_grow)$"
)
_TROUBLE = re.compile(r"(?i)(fail|error|timed?_?out|exception|throttl|reject)")


def check_growth(module: Module) -> Iterator[Mark]:
    for trying, _ in module.tries:
        for handler in trying.handlers:
            types = caught(module.names, handler)
            if not types or any(last(each) not in NO_FAILURE for each in types):
                yield from _grows(module, handler.body)
    for loop, _ in module.loops:
        for node in inside(loop.body):
            if isinstance(node, ast.If) and _is_trouble(node.test):
                yield from _grows(module, node.body)


def _is_trouble(test: ast.expr) -> bool:
    """`if failed:`, `if response.status_code == 503:`, `if errors > 3:`, not `if not failed:`."""
    if is_failure(test):
        return True
    if isinstance(test, ast.UnaryOp):
        return False
    if isinstance(test, ast.Compare):
        if isinstance(test.ops[0], ast.Eq | ast.Is | ast.Lt | ast.LtE | ast.NotIn):
            return False
        test = test.left
    if isinstance(test, ast.Call):
        test = test.func
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return _TROUBLE.search(name) is not None


def _grows(module: Module, body: list[ast.stmt]) -> Iterator[Mark]:
    message = "The answer to a failure here is more concurrency: more load on what is already failing."
    for node in inside(body):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Mult | ast.LShift):
            if _is_width(node.target) and _is_positive(node.value):
                yield Mark("KFM107", node, message)
        elif isinstance(node, ast.Assign) and any(_is_more(node.value, target) for target in node.targets):
            yield Mark("KFM107", node, message)
        elif isinstance(node, ast.Call):
            if _SCALES.match(last(module.names.called(node))) or _widens(node):
                yield Mark("KFM107", node, message)
        elif isinstance(node, LOOPS) and isinstance(node, ast.For) and _repeats(module, node):
            yield Mark("KFM107", node.iter, message)


def _is_width(target: ast.expr) -> bool:
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        name = str(target.slice.value)
    return _WIDTH.search(name) is not None and _TALLY.search(name) is None


def _is_positive(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and value.value > 0
    return not isinstance(value, ast.UnaryOp | ast.List | ast.ListComp | ast.Tuple | ast.JoinedStr)


def _is_more(value: ast.expr, target: ast.expr) -> bool:
    """`workers = workers * 2`, `self.pool_size = min(self.pool_size + 4, 64)`"""
    if not _is_width(target):
        return False
    return any(_is_larger(node) for node in ast.walk(value))


def _is_larger(node: ast.AST) -> bool:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Mult | ast.LShift):
        return False
    sides = [node.left, node.right]
    if any(
        isinstance(each, ast.Constant) and isinstance(each.value, int | float) and each.value <= 0
        for each in sides
    ):
        return False
    shrinks = any(
        isinstance(each, ast.Constant) and isinstance(each.value, float) and each.value < 1 for each in sides
    )
    return any(_is_width(each) for each in sides) and not (isinstance(node.op, ast.Mult) and shrinks)


def _widens(call: ast.Call) -> bool:
    """`ThreadPoolExecutor(max_workers=workers * 2)`, `Semaphore(limit * 2)`, `set_workers(n + 1)`"""
    if any(each.arg and _WIDTH.search(each.arg) and _is_larger(each.value) for each in call.keywords):
        return True
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if not re.search(
        r"(?i)executor$|^pool$|semaphore$|limiter$|^set_\w*(worker|concurrency|parallel|pool)\w*$|^resize$",
        name,
    ):
        return False
    return any(
        isinstance(each, ast.BinOp)
        and isinstance(each.op, ast.Add | ast.Mult | ast.LShift)
        and not any(
            isinstance(side, ast.Constant) and isinstance(side.value, float) and side.value < 1
            for side in (each.left, each.right)
        )
        for each in call.args[:1]
    )


def _repeats(module: Module, loop: ast.For) -> bool:
    """`for _ in range(5): pool.submit(fetch, url)`: one failed call comes back as five."""
    if not isinstance(loop.iter, ast.Call) or module.names.called(loop.iter) != "range":
        return False
    return any(last(module.names.called(call)) in _SPAWNS for call in calls_in(loop.body))
