"""An index of one file: what its names mean, its loops, handlers and functions, and where control goes.

One pass over the statements, never recursive. Expressions are nine tenths of a tree; leaving them out is
what keeps the linter fast.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kfm_lint.source import Source

# --- names ----------------------------------------------------------------------------

_LOG_OWNERS = re.compile(
    r"(?i)^_*(log|logs|logger|logging|loguru|warnings|console|stats|statsd|metrics?|stderr|stdout|traceback"
    r"|\w*logging\w*|\w*logger|\w*tracer|\w*span|counter|telemetry|progress|pbar|task_log|run_logger)$"
)
_LOG_CALLS = frozenset(
    "debug info warning warn error exception critical log print print_exc echo secho incr increment inc "
    "format str repr len isinstance type getattr hasattr int float max min round format_exc record_exception "
    "set_status".split()
)
_PASSIVE = frozenset(
    "append add items keys values join extend copy update setdefault popitem flush write".split()
)
_SLEEPS = frozenset(
    f"{module}.sleep" for module in ("time", "asyncio", "anyio", "trio", "gevent", "eventlet", "curio")
)
_SLEEP_LAST = re.compile(r"(?i)^_*(async_|a)?(sleep|backoff|back_off|snooze)\w*$|\w*_(sleep|backoff)$")


class Names:
    """The names that one file imports, and what they stand for."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self.modules: set[str] = set()

    def learn(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.modules.add(alias.name.partition(".")[0])
                if alias.asname:
                    self._known[alias.asname] = alias.name
                else:
                    root = alias.name.partition(".")[0]
                    self._known[root] = root
            return
        module = node.module or ""
        self.modules.add(module.partition(".")[0])
        for alias in node.names:
            self._known[alias.asname or alias.name] = f"{module}.{alias.name}" if module else alias.name

    def rebind(self, node: ast.Assign) -> None:
        """`sleep = time.sleep` at the top of a file is an import in other words."""
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Name):
            meant = self.dotted(node.value)
            if meant.partition(".")[0] in self.modules:
                self._known[target.id] = meant

    def dotted(self, node: ast.AST | None) -> str:
        """`t.retry` → `tenacity.retry`; "" if it is no plain chain of names."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Call):  # get_logger().info → .info
            return ".".join(["()", *reversed(parts)]) if parts else ""
        if not isinstance(node, ast.Name):
            return ".".join(["?", *reversed(parts)]) if parts else ""
        parts.append(self._known.get(node.id, node.id))
        return ".".join(reversed(parts))

    def called(self, node: ast.Call) -> str:
        return self.dotted(node.func)


def last(dotted: str) -> str:
    return dotted.rpartition(".")[2]


def is_sleep(dotted: str) -> bool:
    return dotted in _SLEEPS or _SLEEP_LAST.match(last(dotted)) is not None


def is_remark(dotted: str) -> bool:
    """Logging, or looking at a value: changes nothing that a retry would depend on."""
    if last(dotted) in _LOG_CALLS:
        return True
    return any(_LOG_OWNERS.match(part) for part in dotted.split("."))


def is_passive(dotted: str) -> bool:
    """A remark, or a change to some list of ours: neither waits nor mends."""
    return is_remark(dotted) or last(dotted) in _PASSIVE


# --- outline --------------------------------------------------------------------------

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
TryStatement = ast.Try | ast.TryStar
TRY_STATEMENTS = (ast.Try, ast.TryStar)


class Module(NamedTuple):
    """What the rules want to know about a file."""

    source: Source
    names: Names
    functions: list[Function]
    classes: list[ast.ClassDef]
    loops: list[tuple[Loop, Function | None]]
    tries: list[tuple[TryStatement, Function | None]]
    withs: list[ast.With | ast.AsyncWith]
    following: dict[int, ast.stmt]  # what stands after an attempt in its block, by the attempt's id

    def text_of(self, node: ast.AST | None) -> str:
        """The lines of a node with its comments, in lower case; of the whole file if there is none."""
        if node is None:
            return self.source.text.lower()
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])  # type: ignore[attr-defined]
        return "\n".join(self.source.lines[first - 1 : node.end_lineno]).lower()  # type: ignore[attr-defined]


def index(source: Source) -> Module:
    module = Module(source, Names(), [], [], [], [], [], {})
    waiting: list[tuple[list[ast.stmt], Function | None]] = [(source.tree.body, None)]
    rebound: list[ast.Assign] = []
    while waiting:
        block, function = waiting.pop()
        before: ast.stmt | None = None
        for node in block:
            kind = type(node)
            if before is not None:
                module.following[id(before)] = node
                before = None
            if kind is ast.Expr or kind is ast.Return:
                continue
            if kind is ast.Assign:
                if function is None and type(node.value) is ast.Attribute:  # type: ignore[attr-defined]
                    rebound.append(node)  # type: ignore[arg-type]
            elif kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
                module.functions.append(node)  # type: ignore[arg-type]
                waiting.append((node.body, node))  # type: ignore[attr-defined, arg-type]
            else:
                _visit(module, node, function, waiting)
                before = node if kind is ast.Try else None
    for assignment in rebound:
        module.names.rebind(assignment)
    return module


def _visit(
    module: Module,
    node: ast.stmt,
    function: Function | None,
    waiting: list[tuple[list[ast.stmt], Function | None]],
) -> None:
    if isinstance(node, ast.If):
        waiting += [(node.body, function), (node.orelse, function)]
    elif isinstance(node, LOOPS):
        module.loops.append((node, function))
        waiting += [(node.body, function), (node.orelse, function)]
    elif isinstance(node, TRY_STATEMENTS):
        module.tries.append((node, function))
        waiting += [(node.body, function), (node.orelse, function), (node.finalbody, function)]
        waiting += [(handler.body, function) for handler in node.handlers]
    elif isinstance(node, ast.With | ast.AsyncWith):
        module.withs.append(node)
        waiting.append((node.body, function))
    elif isinstance(node, ast.ClassDef):
        module.classes.append(node)
        waiting.append((node.body, None))
    elif isinstance(node, ast.Import | ast.ImportFrom):
        module.names.learn(node)
    elif isinstance(node, ast.Match):
        waiting += [(case.body, function) for case in node.cases]


def inside(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Every node below these, but not what a function defined there would do later."""
    waiting: list[ast.AST] = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def calls_in(nodes: Sequence[ast.AST]) -> list[ast.Call]:
    return [node for node in inside(nodes) if isinstance(node, ast.Call)]


def names_in(nodes: Sequence[ast.AST]) -> set[str]:
    """Plain names and the last part of attributes: `attempt`, `self.attempts` → `attempts`."""
    found = set()
    for node in inside(nodes):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def assigned_in(nodes: Sequence[ast.AST]) -> set[str]:
    """What is bound or changed here."""
    found: set[str] = set()
    for node in inside(nodes):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


def comments_above(lines: list[str], number: int) -> list[str]:
    """The comments that stand directly above a line."""
    found: list[str] = []
    for index in range(number - 2, -1, -1):
        text = lines[index].strip()
        if not text.startswith("#"):
            break
        found.append(text[1:])
    return found


# --- control flow ---------------------------------------------------------------------

NEXT, CONTINUE, BREAK, RETURN, RAISE = "next", "continue", "break", "return", "raise"
AGAIN = frozenset((NEXT, CONTINUE))
_GIVES_UP = re.compile(
    r"(?i)^_*(exit|abort|(\w+_)?fail(ed|ure)?|die|skip|fatal|give_?up|reraise|raise_\w+|throw)$"
)


def flow(block: list[ast.stmt]) -> set[str]:
    """Every way this block can end, approximately and without recursion limits that matter."""
    ends: set[str] = set()
    for node in block:
        if isinstance(node, ast.Return):
            return ends | {RETURN}
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and _gives_up(node.value)):
            return ends | {RAISE}
        if isinstance(node, ast.Break):
            return ends | {BREAK}
        if isinstance(node, ast.Continue):
            return ends | {CONTINUE}
        here = _compound(node)
        ends |= here - {NEXT}
        if NEXT not in here:
            return ends
    return ends | {NEXT}


def _compound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.If):
        return flow(node.body) | flow(node.orelse)
    if isinstance(node, ast.With | ast.AsyncWith):
        return flow(node.body)
    if isinstance(node, TRY_STATEMENTS):
        return _trying(node)
    if isinstance(node, LOOPS):
        inner = flow(node.body) & {RETURN, RAISE}
        forever = isinstance(node, ast.While) and is_true(node.test) and BREAK not in flow(node.body)
        return inner if forever else inner | {NEXT}
    if isinstance(node, ast.Match):
        return set().union({NEXT}, *(flow(case.body) for case in node.cases))
    return {NEXT}


def _trying(node: TryStatement) -> set[str]:
    last = flow(node.finalbody)
    if NEXT not in last:
        return last
    body = flow(node.body)
    if NEXT in body and node.orelse:
        body = (body - {NEXT}) | flow(node.orelse)
    return body.union(last - {NEXT}, *(flow(handler.body) for handler in node.handlers))


def _gives_up(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return _GIVES_UP.match(name) is not None


def is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def after(loop: Loop, wanted: ast.stmt) -> list[ast.stmt] | None:
    """The statements between the end of `wanted` and the next turn of the loop that holds it."""
    waiting: list[tuple[list[ast.stmt], list[ast.stmt]]] = [(loop.body, [])]
    while waiting:
        block, rest = waiting.pop()
        for index, node in enumerate(block):
            following = block[index + 1 :] + rest
            if node is wanted:
                return following
            if isinstance(node, ast.If):
                waiting += [(node.body, following), (node.orelse, following)]
            elif isinstance(node, ast.With | ast.AsyncWith):
                waiting.append((node.body, following))
            elif isinstance(node, TRY_STATEMENTS):
                waiting.append((node.body, node.orelse + node.finalbody + following))
                waiting.append((node.orelse, node.finalbody + following))
                waiting += [(handler.body, node.finalbody + following) for handler in node.handlers]
            elif isinstance(node, ast.Match):
                waiting += [(case.body, following) for case in node.cases]
    return None


def own(loop: Loop) -> list[ast.stmt]:
    """Every statement of a loop that is not inside an inner loop or function."""
    found: list[ast.stmt] = []
    waiting = [loop.body]
    while waiting:
        for node in waiting.pop():
            found.append(node)
            if isinstance(node, ast.If):
                waiting += [node.body, node.orelse]
            elif isinstance(node, ast.With | ast.AsyncWith):
                waiting.append(node.body)
            elif isinstance(node, TRY_STATEMENTS):
                waiting += [node.body, node.orelse, node.finalbody]
                waiting += [handler.body for handler in node.handlers]
            elif isinstance(node, ast.Match):
                waiting += [case.body for case in node.cases]
    return found
