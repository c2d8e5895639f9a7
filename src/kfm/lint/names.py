"""Which thing a name means, as far as the file itself tells: imports, aliases, plain re-binding."""

from __future__ import annotations

import ast
import re

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
    """Telling about something, or looking at it: changes nothing that a retry would depend on."""
    if last(dotted) in _LOG_CALLS:
        return True
    return any(_LOG_OWNERS.match(part) for part in dotted.split("."))


def is_passive(dotted: str) -> bool:
    """A remark, or a change to some list of ours: neither waits nor mends."""
    return is_remark(dotted) or last(dotted) in _PASSIVE
