"""Move, merge and rename Python modules by a table, and every mention of them.

    python tools/move.py tools/moves.txt [--dry-run] [--root DIR] [--list-unlisted]

A line of the table is a rule; `#` begins a comment:

    kfm.core.retry         kfm.model.retry                  a module moves
    kfm.store.unit_claims  kfm.db.units                     several with one target are merged, in this order
    kfm.engine.run         kfm.runs.executor  Old=New …     names at the top of the module are renamed as well
    tests/unit/a/test_x.py tests/unit/b/test_x.py           any file by its path; Python files as modules
    @doc kfm.db.units  "text"                               the docstring of a merged module
    @keep kfm.sources                                       a text that only looks like a module

Edits are made at positions in the text, so that formatting and comments stay as they are; ruff sorts the
imports and wraps the lines afterwards.
"""

from __future__ import annotations

import argparse
import ast
import bisect
import builtins
import io
import re
import shlex
import shutil
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOTS = ("src", "tests", "bench", "tools", "examples")  # where Python modules are
# Evidence of the past, and what others read byte by byte: never rewritten.
EXCLUDED = (
    "CHANGELOG.md",
    "docs/decisions/",
    "src/kfm/contracts/",
    "vectors/",
    "requirements/",
    "tools/move.py",
    "tools/moves",
    "tests/foundation/test_move.py",
)
TEXT_SUFFIXES = frozenset(
    ".md .toml .yml .yaml .sh .mjs .js .ts .json5 .html .sql .cfg .ini .txt .service .css .pyi .py .json".split()
)
TEXT_NAMES = frozenset({"Makefile", "Containerfile", "Dockerfile"})
DATA = ("node/node_modules/", "node/test/data/", "docs/requirements.lock")
TOP = "kfm"
DEFINED = re.compile(r"(?:async\s+)?(?:def|class)\s+(\w+)")
BUILTINS = frozenset(dir(builtins))
DUNDERS = frozenset({"__all__", "__getattr__", "__dir__", "__name__", "__file__", "__doc__", "__package__"})


class TableError(Exception):
    """The table cannot be applied."""


# ---------------------------------------------------------------------------------------------- table


@dataclass
class Rule:
    old: str
    new: str
    renames: dict[str, str]
    line: int


@dataclass
class Table:
    rules: list[Rule] = field(default_factory=list)
    docs: dict[str, str] = field(default_factory=dict)
    keep: set[str] = field(default_factory=set)


def read_table(text: str) -> Table:
    table = Table()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise TableError(f"line {number}: {error}") from None
        if not words:
            continue
        if words[0] == "@doc" and len(words) == 3:
            table.docs[words[1]] = words[2]
        elif words[0] == "@keep" and len(words) >= 2:
            table.keep.update(words[1:])
        elif words[0].startswith("@") or len(words) < 2 or any("=" not in word for word in words[2:]):
            raise TableError(f"line {number}: cannot be read: {line.strip()}")
        else:
            renames = dict(word.split("=", 1) for word in words[2:])
            table.rules.append(Rule(words[0], words[1], renames, number))
    return table


# ------------------------------------------------------------------------------------------- analysis


class Scope:
    """A namespace of a file: module, class, function, lambda or comprehension."""

    def __init__(self, kind: str, parent: Scope | None) -> None:
        self.kind = kind
        self.parent = parent
        self.children: list[Scope] = []
        self.bindings: dict[str, list[Occurrence]] = defaultdict(list)
        self.used: set[str] = set()  # names that occur here, whatever they mean
        self.outer: dict[str, str] = {}  # global and nonlocal names
        self.rename: dict[str, str] = {}  # what names bound here are called afterwards
        self.gone: set[str] = set()  # names whose imports vanish
        if parent is not None:
            parent.children.append(self)

    def owner(self, name: str) -> Scope | None:
        """Where a name used here is bound; None for builtins and what is unknown."""
        scope: Scope | None = self
        if name in self.outer:
            if self.outer[name] == "global":
                return self.module
            scope = self.parent
        first = scope is self
        while scope is not None:
            if name in scope.bindings and (first or scope.kind != "class"):
                return scope
            if name in scope.outer and scope.kind != "class" and scope.outer[name] == "global":
                return scope.module
            first = False
            scope = scope.parent
        return None

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def bound_after(self, name: str) -> bool:
        """Is this name bound here when all is renamed?"""
        return any(self.rename.get(old, old) == name for old in self.bindings if old not in self.gone)

    def subtree(self) -> Iterator[Scope]:
        yield self
        for child in self.children:
            yield from child.subtree()


@dataclass(eq=False)
class Occurrence:
    name: str
    scope: Scope
    start: int
    end: int
    kind: str  # load, store, def, param, import, global
    node: ast.AST | None = None
    parents: tuple[ast.AST, ...] = ()


@dataclass(eq=False)
class Imported:
    """One name of an import statement."""

    statement: ast.Import | ast.ImportFrom
    scope: Scope
    source: str  # module named in the statement
    name: str  # what is imported of it; empty for `import a.b`
    alias: str | None
    block: list[ast.stmt]
    typing: bool
    # Settled later:
    module: str | None = None  # a known module that is bound
    home: str | None = None  # the known module a symbol comes from

    @property
    def local(self) -> str:
        if self.alias:
            return self.alias
        return self.name or self.source.partition(".")[0]


class File:
    """A Python file, its names and where they are."""

    def __init__(self, path: str, module: str | None, text: str) -> None:
        self.path = path
        self.module = module
        self.text = text
        self.tree = ast.parse(text)
        self.lines = [0]
        for line in text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.raw = text.splitlines(keepends=True)
        self.top = Scope("module", None)
        self.occurrences: list[Occurrence] = []
        self.imports: list[Imported] = []
        self.attributes: dict[ast.AST, ast.AST] = {}
        self.positions: dict[ast.AST, tuple[int, int]] = {}
        self.guards: list[ast.If] = []
        self.strings: list[ast.Constant] = []
        self.calls: list[ast.Call] = []
        Visitor(self).run()
        self.postponed = any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in self.tree.body
        )

    @property
    def is_package(self) -> bool:
        return self.path.endswith("/__init__.py")

    def offset(self, line: int, column: int) -> int:
        row = self.raw[line - 1] if line <= len(self.raw) else ""
        if not row.isascii():
            column = len(row.encode()[:column].decode())
        return self.lines[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        known = self.positions.get(node)
        if known is None:
            start = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
            end = self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
            known = self.positions[node] = (start, end)
        return known

    def line_of(self, position: int) -> int:
        return bisect.bisect_right(self.lines, position)


def is_typing_guard(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and (
            (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
            or (isinstance(node.test, ast.Attribute) and node.test.attr == "TYPE_CHECKING")
        )
    )


class Visitor:
    """Fills a file's scopes and occurrences."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.parents: list[ast.AST] = []
        self.typing = 0
        self.declares = re.search(r"^\s+(?:global|nonlocal)\s", file.text, re.MULTILINE) is not None

    def run(self) -> None:
        self.block(self.file.tree.body, self.file.top)
        for occurrence in self.file.occurrences:
            occurrence.scope.used.add(occurrence.name)

    def add(
        self, name: str, scope: Scope, start: int, end: int, kind: str, node: ast.AST | None = None
    ) -> None:
        if kind == "store" and scope.kind == "comp" and isinstance(node, ast.NamedExpr):
            while scope.kind == "comp" and scope.parent is not None:
                scope = scope.parent
        occurrence = Occurrence(name, scope, start, end, kind, node, tuple(self.parents[-3:]))
        self.file.occurrences.append(occurrence)
        if kind in ("store", "def", "param", "import"):
            target = scope
            if name in scope.outer:
                found = scope.owner(name)
                target = found if found is not None else scope.module
            target.bindings[name].append(occurrence)

    def block(self, body: list[ast.stmt], scope: Scope) -> None:
        # Global and nonlocal hold for the whole function.
        for node in body:
            self.statement(node, scope, body)

    def declare(self, body: list[ast.stmt], scope: Scope) -> None:
        pending: list[ast.AST] = list(body) if self.declares else []
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Global | ast.Nonlocal):
                for name in node.names:
                    scope.outer[name] = "global" if isinstance(node, ast.Global) else "nonlocal"
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                pending.extend(ast.iter_child_nodes(node))

    def statement(self, node: ast.stmt, scope: Scope, body: list[ast.stmt]) -> None:
        file = self.file
        if isinstance(node, ast.Import | ast.ImportFrom):
            self.imported(node, scope, body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.decorator_list:
                self.expression(each, scope)
            self.named(node, scope)
            self.function(node.args, scope, node)
            if node.returns is not None:
                self.annotation(node.returns, scope)
        elif isinstance(node, ast.ClassDef):
            for each in [*node.decorator_list, *node.bases, *(each.value for each in node.keywords)]:
                self.expression(each, scope)
            self.named(node, scope)
            inner = Scope("class", scope)
            self.declare(node.body, inner)
            self.block(node.body, inner)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            start, end = file.span(node)
            for name in node.names:
                for found in re.finditer(rf"\b{re.escape(name)}\b", file.text[start:end]):
                    self.add(name, scope, start + found.start(), start + found.end(), "global", node)
        elif isinstance(node, ast.AnnAssign):
            self.annotation(node.annotation, scope)
            self.expression(node.target, scope)
            if node.value is not None:
                self.expression(node.value, scope)
        elif isinstance(node, ast.Try | ast.TryStar):
            self.block(node.body, scope)
            for handler in node.handlers:
                if handler.type is not None:
                    self.expression(handler.type, scope)
                if handler.name:
                    start = file.span(handler.type)[1]  # type: ignore[arg-type]
                    found = re.compile(rf"\bas\s+({handler.name})\b").search(file.text, start)
                    assert found is not None
                    self.add(handler.name, scope, *found.span(1), "store", handler)
                self.block(handler.body, scope)
            self.block(node.orelse, scope)
            self.block(node.finalbody, scope)
        elif isinstance(node, ast.If):
            self.expression(node.test, scope)
            guard = is_typing_guard(node)
            if guard:
                file.guards.append(node)
            self.typing += guard
            self.block(node.body, scope)
            self.typing -= guard
            self.block(node.orelse, scope)
        elif isinstance(node, ast.Match):
            self.expression(node.subject, scope)
            for case in node.cases:
                self.pattern(case.pattern, scope)
                if case.guard is not None:
                    self.expression(case.guard, scope)
                self.block(case.body, scope)
        else:
            for name, value in ast.iter_fields(node):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    self.block(value, scope)
                elif isinstance(value, list):
                    for each in value:
                        if isinstance(each, ast.withitem):
                            self.expression(each.context_expr, scope)
                            if each.optional_vars is not None:
                                self.expression(each.optional_vars, scope)
                        elif isinstance(each, ast.AST):
                            self.expression(each, scope)
                elif isinstance(value, ast.expr) or (
                    isinstance(value, ast.AST) and name not in ("op", "ctx")
                ):
                    self.expression(value, scope)

    def pattern(self, node: ast.AST, scope: Scope) -> None:
        for each in ast.walk(node):
            name = getattr(each, "name", None) or getattr(each, "rest", None)
            if isinstance(each, ast.MatchAs | ast.MatchStar | ast.MatchMapping) and isinstance(name, str):
                start, end = self.file.span(each)
                found = list(re.finditer(rf"\b{re.escape(name)}\b", self.file.text[start:end]))[-1]
                self.add(name, scope, start + found.start(), start + found.end(), "store", each)
            for child in ast.iter_child_nodes(each):
                if isinstance(child, ast.expr):
                    self.expression(child, scope)

    def named(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: Scope) -> None:
        start = self.file.span(node)[0]
        found = DEFINED.match(self.file.text, start)
        assert found is not None, (self.file.path, node.lineno)
        self.add(node.name, scope, *found.span(1), "def", node)

    def imported(self, node: ast.Import | ast.ImportFrom, scope: Scope, body: list[ast.stmt]) -> None:
        for alias in node.names:
            source = alias.name if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
            name = "" if isinstance(node, ast.Import) else alias.name
            one = Imported(node, scope, source, name, alias.asname, body, bool(self.typing))
            self.file.imports.append(one)
            self.add(one.local, scope, *self.file.span(alias), "import", alias)

    def function(
        self,
        arguments: ast.arguments,
        scope: Scope,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
    ) -> None:
        for each in [*arguments.defaults, *arguments.kw_defaults]:
            if each is not None:
                self.expression(each, scope)
        inner = Scope("function", scope)
        if not isinstance(node, ast.Lambda):
            self.declare(node.body, inner)
        every = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]
        for each_arg in every:
            if each_arg is not None:
                start = self.file.span(each_arg)[0]
                self.add(each_arg.arg, inner, start, start + len(each_arg.arg), "param", each_arg)
                if each_arg.annotation is not None:
                    self.annotation(each_arg.annotation, scope)
        if isinstance(node, ast.Lambda):
            self.expression(node.body, inner)
        else:
            self.block(node.body, inner)

    def annotation(self, node: ast.expr, scope: Scope) -> None:
        self.expression(node, scope, quoted=True)

    def expression(self, node: ast.AST, scope: Scope, quoted: bool = False) -> None:
        file = self.file
        if isinstance(node, ast.Name):
            start, end = file.span(node)
            assert file.text[start:end] == node.id, (file.path, node.lineno, node.id, file.text[start:end])
            self.add(node.id, scope, start, end, "load" if isinstance(node.ctx, ast.Load) else "store", node)
            return
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                file.strings.append(node)
                if quoted:
                    self.quoted(node, scope)
            return
        self.parents.append(node)
        if isinstance(node, ast.Lambda):
            self.function(node.args, scope, node)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            inner = Scope("comp", scope)
            for number, each in enumerate(node.generators):
                self.expression(each.iter, inner if number else scope)
                self.expression(each.target, inner)
                for condition in each.ifs:
                    self.expression(condition, inner)
            if isinstance(node, ast.DictComp):
                self.expression(node.key, inner)
                self.expression(node.value, inner)
            else:
                self.expression(node.elt, inner)
        elif isinstance(node, ast.NamedExpr):
            target = scope
            while target.kind == "comp" and target.parent is not None:
                target = target.parent
            self.expression(node.target, target)
            self.expression(node.value, scope)
        elif isinstance(node, ast.JoinedStr):
            if node in file.positions:  # inside of another one
                for value in node.values:
                    self.expression(value, scope)
            else:
                self.format_string(node, scope)
        elif isinstance(node, ast.Call):
            file.calls.append(node)
            self.expression(node.func, scope)
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            for number, each_arg in enumerate(node.args):
                types = called == "cast" and number == 0
                self.expression(each_arg, scope, quoted=types)
            for keyword in node.keywords:
                self.expression(keyword.value, scope, quoted=called == "TypeVar")
        else:
            literal = isinstance(node, ast.Subscript) and "Literal" in ast.dump(node.value)
            for child in ast.iter_child_nodes(node):
                self.expression(child, scope, quoted=quoted and not literal)
        self.parents.pop()

    def quoted(self, node: ast.Constant, scope: Scope) -> None:
        """A type in quotes."""
        start, end = self.file.span(node)
        found = re.fullmatch(r"([\"'])([^\\\"'\n]+)\1", self.file.text[start:end])
        if found is not None:
            self.part(found.group(2), start + 1, scope)

    def part(self, text: str, position: int, scope: Scope) -> None:
        try:
            tree = ast.parse(f"({text}\n)", mode="eval").body
        except SyntaxError:
            return
        starts = [0]
        rows = f"({text}\n)".splitlines(keepends=True)
        for row in rows:
            starts.append(starts[-1] + len(row))

        def place(line: int, column: int) -> int:
            return starts[line - 1] + len(rows[line - 1].encode()[:column].decode()) + position - 1

        for each in ast.walk(tree):
            if hasattr(each, "lineno"):
                self.file.positions[each] = (
                    place(each.lineno, each.col_offset),
                    place(each.end_lineno, each.end_col_offset),
                )
        for each in ast.walk(tree):
            if isinstance(each, ast.JoinedStr):  # nested: what is inside has no places before Python 3.12
                self.file.positions.pop(each)
        self.expression(tree, scope)

    def format_string(self, node: ast.JoinedStr, scope: Scope) -> None:
        """Expressions in f-strings: their places in the tree are not to be relied on before Python 3.12."""
        start, end = self.file.span(node)
        text = self.file.text[start:end]
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(f"(\n{text}\n)").readline))
        except (tokenize.TokenError, IndentationError):
            return
        starts = [0, 0]
        for row in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(row))
        for token in tokens:
            if token.type == tokenize.STRING:
                prefix = re.match(r"[A-Za-z]*", token.string)
                assert prefix is not None
                if "f" in prefix.group().lower():
                    at = start + starts[token.start[0] - 1] + token.start[1]
                    quote = 3 if token.string[prefix.end() : prefix.end() + 3] in ('"""', "'''") else 1
                    inside = token.string[prefix.end() + quote : -quote]
                    self.fields(inside, at + prefix.end() + quote, scope)

    def fields(self, text: str, position: int, scope: Scope, spec: bool = False) -> None:
        index = 0
        while index < len(text):
            char = text[index]
            if char in "{}" and text[index : index + 2] == char * 2 and not spec:
                index += 2
                continue
            if char != "{":
                index += 1
                continue
            begin = index + 1
            depth, index, quote = 0, begin, ""
            stop = -1
            while index < len(text):
                char = text[index]
                if quote:
                    if char == quote:
                        quote = ""
                elif char in "\"'":
                    quote = char
                elif char in "([{":
                    depth += 1
                elif char in ")]}" and depth:
                    depth -= 1
                elif char == "}":
                    break
                elif depth == 0 and (char == ":" or (char == "!" and text[index + 1 : index + 2] != "=")):
                    stop = index
                    break
                index += 1
            expression = text[begin : stop if stop >= 0 else index]
            self.part(
                expression.rstrip().removesuffix("=")
                if expression.rstrip()[-2:-1] not in "=!<>"
                else expression,
                position + begin,
                scope,
            )
            if stop >= 0:
                depth, finish = 1, stop
                while finish < len(text) and depth:
                    depth += {"{": 1, "}": -1}.get(text[finish], 0)
                    finish += 1
                self.fields(text[stop : finish - 1], position + stop, scope, spec=True)
                index = finish - 1
            index += 1


# ---------------------------------------------------------------------------------------------- moving


@dataclass
class Chunk:
    """A statement of a merged module with the comments before it."""

    file: File
    nodes: list[ast.stmt]
    start: int
    end: int
    binds: set[str] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)
    deep: set[str] = field(default_factory=set)
    everything: set[str] = field(default_factory=set)
    text: str = ""


Edit = tuple[int, int, str]


def apply_edits(text: str, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> str:
    end = len(text) if end is None else end
    parts, at = [], start
    for begin, finish, new in sorted(edits, key=lambda edit: (edit[0], edit[1])):
        if begin < at or finish > end:
            continue
        parts += [text[at:begin], new]
        at = finish
    return "".join([*parts, text[at:end]])


class Mover:
    """Applies a table to a tree."""

    def __init__(self, root: Path, table: Table) -> None:
        self.root = root
        self.table = table
        self.notes: dict[str, list[str]] = defaultdict(list)
        self.files: dict[str, File] = {}  # by path
        self.modules: dict[str, File] = {}  # by dotted name
        self.packages: set[str] = set()
        self.tracked = self._tracked()
        self.target: dict[str, str] = {}  # module → new module
        self.paths: dict[str, str] = {}  # any file → new path, by lines with a slash
        self.order: dict[str, int] = {}
        self.rename: dict[tuple[str, str], str] = {}  # module, name → new name
        self.groups: dict[str, list[File]] = {}
        self.dropped: set[tuple[str, str]] = set()  # definitions that another merged module has just so
        self.aliases: dict[str, dict[str, str]] = defaultdict(dict)  # new module → name → alias
        self.new_files: dict[str, str] = {}
        self.removed: set[str] = set()
        self.edits: dict[str, list[Edit]] = defaultdict(list)
        self.variants: dict[tuple[str, str], list[Edit] | None] = {}

    def note(self, kind: str, text: str) -> None:
        if text not in self.notes[kind]:
            self.notes[kind].append(text)

    # -- reading

    def _tracked(self) -> list[str]:
        try:
            found = subprocess.run(
                ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                cwd=self.root,
                capture_output=True,
                check=True,
            ).stdout.decode()
            names = [name for name in found.split("\0") if name]
        except (subprocess.CalledProcessError, OSError):
            names = []
        if not names:
            names = [
                path.relative_to(self.root).as_posix()
                for path in self.root.rglob("*")
                if path.is_file() and ".git/" not in path.as_posix()
            ]
        return sorted(name for name in set(names) if (self.root / name).is_file())

    @staticmethod
    def module_of(path: str) -> str:
        dotted = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        return dotted.removesuffix(".__init__")

    def read(self) -> None:
        for path in self.tracked:
            if path.endswith((".py", ".pyi")) and path.startswith(tuple(f"{root}/" for root in ROOTS)):
                if self.excluded(path):
                    continue
                text = (self.root / path).read_text("utf-8")
                try:
                    file = File(path, None if path.endswith(".pyi") else self.module_of(path), text)
                except SyntaxError as error:
                    self.note("not parsed", f"{path}: {error}")
                    continue
                self.files[path] = file
                if file.module is not None:
                    self.modules[file.module] = file
        for module in self.modules:
            parts = module.split(".")
            self.packages.update(".".join(parts[:count]) for count in range(1, len(parts)))

    def excluded(self, path: str) -> bool:
        return path.startswith(EXCLUDED) or path.startswith(DATA)

    # -- the table

    def settle(self) -> None:
        errors = []
        for number, rule in enumerate(self.table.rules):
            if "/" in rule.old:
                if not (self.root / rule.old).exists():
                    errors.append(f"line {rule.line}: no such file: {rule.old}")
                    continue
                if (self.root / rule.old).is_dir():
                    for path in self.tracked:
                        if path.startswith(rule.old.rstrip("/") + "/"):
                            new_path = rule.new.rstrip("/") + path[len(rule.old.rstrip("/")) :]
                            errors += self._place(path, new_path, number, rule)
                    continue
                errors += self._place(rule.old, rule.new, number, rule)
            elif rule.old in self.modules:
                errors += self._module(rule.old, rule.new, number, rule)
            else:
                errors.append(f"line {rule.line}: no such module: {rule.old}")
        if errors:
            raise TableError("\n".join(errors))
        for module in self.modules:
            self.target.setdefault(module, module)
        for module, target in self.target.items():
            self.groups.setdefault(target, []).append(self.modules[module])
        for target, group in self.groups.items():
            group.sort(key=lambda file: self.order.get(file.module or "", -1))
            if len(group) > 1:
                # An empty __init__ is no part of a merger.
                real = [file for file in group if file.text.strip()] or group[:1]
                self.removed.update(file.path for file in group if file not in real)
                self.groups[target] = real
        self._packages_after()

    def _place(self, old: str, new: str, number: int, rule: Rule) -> list[str]:
        if old.endswith(".py") and old in self.files:
            return self._module(self.module_of(old), self.module_of(new), number, rule, old, new)
        if old in self.paths:
            return [f"line {rule.line}: {old} is moved twice"]
        self.paths[old] = new
        return []

    def _module(
        self,
        old: str,
        new: str,
        number: int,
        rule: Rule,
        path: str | None = None,
        new_path: str | None = None,
    ) -> list[str]:
        if old in self.target and self.target[old] != new:
            return [f"line {rule.line}: {old} is moved twice"]
        file = self.modules[old]
        self.target[old] = new
        self.order.setdefault(old, number)
        if path is not None and new_path is not None:
            self.paths[path] = new_path
        errors = []
        for name, renamed in rule.renames.items():
            if name not in file.top.bindings:
                errors.append(f"line {rule.line}: {old} has no {name}")
            self.rename[old, name] = renamed
        return errors

    def _packages_after(self) -> None:
        self.packages_after = set()
        for target in self.groups:
            parts = target.split(".")
            self.packages_after.update(".".join(parts[:count]) for count in range(1, len(parts)))
        for target, group in self.groups.items():
            for file in group:
                if file.is_package and self.target[file.module or ""] == file.module:
                    self.packages_after.add(target)

        self.living: set[str] = set()
        for target, group in self.groups.items():
            idle = all(file.is_package and self._only_says(file) and file.module == target for file in group)
            if not idle:
                parts = target.split(".")
                self.living.update(".".join(parts[:count]) for count in range(1, len(parts)))
                if any(file.is_package for file in group) and target in self.packages:
                    self.living.add(target)

    @staticmethod
    def _only_says(file: File) -> bool:
        """Is there nothing but a docstring in it?"""
        return all(isinstance(node, ast.Expr) for node in file.tree.body)

    def path_after(self, target: str) -> str:
        group = self.groups[target]
        for file in group:
            if file.path in self.paths:
                return self.paths[file.path]
        for file in group:
            if file.module == target and (file.is_package or target not in self.packages_after):
                return file.path
        first = group[0]
        base = "src/" if first.path.startswith("src/") else ""
        tail = "/__init__.py" if target in self.packages_after else ".py"
        return base + target.replace(".", "/") + tail

    # -- what imports mean

    def is_module(self, name: str) -> bool:
        return name in self.modules or name in self.packages

    def after(self, module: str) -> str:
        """Where a module or package is afterwards."""
        if module in self.target and (module not in self.packages or self.target[module] != module):
            return self.target[module]
        if module in self.packages:
            return self.package_after(module) or module
        return self.target.get(module, module)

    def package_after(self, package: str) -> str | None:
        """The package into which all modules of a package moved, if there is one."""
        if not hasattr(self, "_package_cache"):
            self._package_cache: dict[str, str | None] = {}
        if package not in self._package_cache:
            found = set()
            for module in self.modules:
                if module.startswith(package + ".") and not self.modules[module].is_package:
                    below = module[len(package) :]
                    new = self.target[module]
                    if "." in below[1:]:
                        inner = package + "." + below[1:].split(".")[0]
                        there = self.package_after(inner)
                        found.add(there.rpartition(".")[0] if there else None)
                    else:
                        found.add(new.rpartition(".")[0])
            self._package_cache[package] = found.pop() if len(found) == 1 else None
        return self._package_cache[package]

    def classify(self) -> None:
        for file in self.files.values():
            self.classify_file(file)

    def classify_file(self, file: File) -> None:
        for one in file.imports:
            if one.source.startswith("."):
                self.note("relative imports are left unchanged", f"{file.path}:{one.statement.lineno}")
                continue
            if not one.name:
                if self.is_module(one.source):
                    one.module = one.source
            elif self.is_module(one.source):
                below = f"{one.source}.{one.name}"
                package = self.modules.get(one.source)
                defined = package is not None and self._defines(package, one.name)
                if self.is_module(below) and not defined:
                    one.module = below
                elif one.source in self.modules:
                    one.home = one.source

    @staticmethod
    def _defines(file: File, name: str) -> bool:
        return any(each.kind != "import" for each in file.top.bindings.get(name, ())) or any(
            one.local == name
            and one.scope is file.top
            and f"{one.source}.{one.name}" != f"{file.module}.{name}"
            for one in file.imports
        )

    def final(self, module: str, name: str, seen: tuple[tuple[str, str], ...] = ()) -> str:
        """What a top-level name of a module is called afterwards."""
        if (module, name) in self.rename:
            return self.rename[module, name]
        file = self.modules.get(module)
        if file is None or (module, name) in seen:
            return name
        for one in file.imports:
            if one.scope is file.top and one.local == name and self.vanishes(file, one):
                if one.home is not None:
                    return self.final(one.home, one.name, (*seen, (module, name)))
        return name

    def new_home(self, file: File) -> str | None:
        return self.target[file.module] if file.module is not None else None

    def vanishes(self, file: File, one: Imported) -> bool:
        """Does it import from the file it is merged into?"""
        here = self.new_home(file)
        if here is None or one.statement is None:
            return False
        if one.home is not None:
            return self.target[one.home] == here and one.home != file.module
        if one.module is not None and one.name and one.module in self.modules:
            return self.target[one.module] == here and one.module != file.module
        return False

    def identity(self, file: File, one: Imported) -> tuple[str, str]:
        """What an import binds, in terms of the new tree."""
        if one.module is not None:
            return (self.after(one.module), "") if one.name or one.alias else (one.local, "")
        if one.home is not None:
            return self.origin(one.home, one.name)
        if one.name:
            return one.source, one.name
        return (one.source, "") if one.alias else (one.local, "")

    def origin(self, module: str, name: str) -> tuple[str, str]:
        return self.target[module], self.final(module, name)

    # -- names

    def settle_names(self) -> None:
        self._mark_gone()
        for target, group in self.groups.items():
            if len(group) > 1:
                self._definitions(target, group)
        # Names of imports follow the names of definitions.
        for target, group in self.groups.items():
            self._import_names(target, group)
        for file in self.files.values():
            if file.module is None:
                self._import_names("", [file])

    def _mark_gone(self) -> None:
        for file in self.files.values():
            self._mark_gone_in(file)

    def _mark_gone_in(self, file: File) -> None:
        by_name: dict[tuple[Scope, str], list[Imported]] = defaultdict(list)
        for one in file.imports:
            by_name[one.scope, one.local].append(one)
        for (scope, name), ones in by_name.items():
            if all(self.vanishes(file, one) for one in ones):
                if len(scope.bindings[name]) == len(ones):
                    scope.gone.add(name)
                else:
                    self.note("UNRESOLVED", f"{file.path}:{ones[0].statement.lineno}: {name} is bound twice")

    def _definition(self, file: File, name: str) -> ast.stmt | None:
        """The one statement that binds a name and nothing else."""
        found = [node for node in file.tree.body if name in self._bound_by(node)]
        if len(found) == 1 and self._bound_by(found[0]) == {name}:
            return found[0]
        return None

    @staticmethod
    def _bound_by(node: ast.stmt) -> set[str]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return {node.name}
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return {
                each.id
                for target in targets
                for each in ast.walk(target)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
        if isinstance(node, ast.Import | ast.ImportFrom):
            return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        found: set[str] = set()
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                found.add(each.id)
            elif isinstance(each, ast.stmt):
                found |= Mover._bound_by(each)
            elif isinstance(each, ast.ExceptHandler):
                for inner in each.body:
                    found |= Mover._bound_by(inner)
            elif isinstance(each, ast.withitem) and each.optional_vars is not None:
                found |= {inner.id for inner in ast.walk(each.optional_vars) if isinstance(inner, ast.Name)}
            elif isinstance(each, ast.Tuple):
                found |= {
                    inner.id
                    for inner in ast.walk(each)
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
                }
        return found

    def _own(self, file: File) -> list[str]:
        """Top-level names that are not imports."""
        return [
            name for name, found in file.top.bindings.items() if any(each.kind != "import" for each in found)
        ]

    def _free(self, file: File) -> set[str]:
        """Names used in a file that it does not bind: builtins."""
        if not hasattr(file, "free_names"):
            file.free_names = {  # type: ignore[attr-defined]
                each.name
                for each in file.occurrences
                if each.kind == "load" and each.scope.owner(each.name) is None
            }
        return file.free_names  # type: ignore[attr-defined,no-any-return]

    def _same(self, first: File, second: File, name: str, assumed: frozenset[str]) -> bool:
        if name in assumed:
            return True
        one, other = self._definition(first, name), self._definition(second, name)
        if one is None or other is None or ast.dump(one) != ast.dump(other):
            return False
        if (first.module, name) in self.rename or (second.module, name) in self.rename:
            return False
        start, end = first.span(one)
        for each in first.occurrences:
            if start <= each.start < end and each.name != name:
                mine = each.scope.owner(each.name)
                if mine is not first.top:
                    continue
                if self._meaning(first, each.name) == self._meaning(second, each.name):
                    continue
                if not self._same(first, second, each.name, assumed | {name}):
                    return False
        return True

    def _meaning(self, file: File, name: str) -> tuple[str, str]:
        for one in file.imports:
            if one.local == name and one.scope is file.top:
                return self.identity(file, one)
        return (file.module or "", name)

    def _definitions(self, target: str, group: list[File]) -> None:
        taken: dict[str, File] = {}
        wanted: dict[str, int] = defaultdict(int)
        for file in group:
            for name in self._own(file):
                wanted[self.rename.get((file.module or "", name), name)] += 1
        for file in group:
            module = file.module or ""
            for name in self._own(file):
                if name in ("__all__", "__getattr__", "__dir__"):
                    if name in taken and name != "__all__":
                        self.note("UNRESOLVED", f"{target}: two {name}, of {taken[name].module} and {module}")
                    taken.setdefault(name, file)
                    continue
                new = self.rename.get((module, name), name)
                other = taken.get(new)
                if other is not None and self._same(other, file, name, frozenset()):
                    self.dropped.add((module, name))
                    continue
                captured = [each.module for each in group if each is not file and new in self._free(each)]
                if other is None and not captured:
                    taken[new] = file
                    continue
                renamed = self._prefixed(module, new)
                while renamed in taken or renamed in wanted:
                    renamed += "_"
                self.rename[module, name] = renamed
                taken[renamed] = file
                kind = "renamed because of a clash"
                if not name.startswith("_"):
                    kind += " (PUBLIC)"
                why = (
                    f"with {other.module}" if other is not None else f"with the builtin used in {captured[0]}"
                )
                self.note(kind, f"{module}.{name} -> {target}.{renamed} ({why})")

    @staticmethod
    def _prefixed(module: str, name: str) -> str:
        base = module.rpartition(".")[2].strip("_")
        bare = name.lstrip("_")
        lead = name[: len(name) - len(bare)]
        if bare.isupper():
            return f"{lead}{base.upper()}_{bare}"
        if bare[:1].isupper():
            return lead + "".join(part.title() for part in base.split("_")) + bare
        return f"{lead}{base}_{bare}"

    def _import_names(self, target: str, group: list[File]) -> None:
        taken: dict[str, object] = {}
        for file in group:
            for name in self._own(file):
                taken.setdefault(self.rename.get((file.module or "", name), name), "definition")
        for file in group:
            self._own_shadows(target, file)
        for file in group:
            by_name: dict[tuple[Scope, str], list[Imported]] = defaultdict(list)
            for one in file.imports:
                if one.source != "__future__":
                    by_name[one.scope, one.local].append(one)
            for (scope, name), ones in by_name.items():
                if name in scope.gone and all(self.vanishes(file, one) for one in ones):
                    continue
                self._import_name(target, group, file, scope, name, ones, taken)
        for file in group:
            for one in file.imports:
                if self.vanishes(file, one):
                    self._vanish(target, file, one)

    def _own_shadows(self, target: str, file: File) -> None:
        """Renamed definitions of this very file must stay visible where they are used."""
        for (module, name), new in list(self.rename.items()):
            if module == file.module and new != name and name in self._own(file):
                for each in self._references(file, file.top, name):
                    self._visible(target, file, each, new)

    def _references(self, file: File, scope: Scope, name: str) -> list[Occurrence]:
        if not hasattr(file, "by_name"):
            table: dict[str, list[Occurrence]] = defaultdict(list)
            for each in file.occurrences:
                table[each.name].append(each)
            file.by_name = table  # type: ignore[attr-defined]
        found: list[Occurrence] = file.by_name[name]  # type: ignore[attr-defined]
        return [each for each in found if each.kind != "import" and each.scope.owner(name) is scope]

    def _import_name(
        self,
        target: str,
        group: list[File],
        file: File,
        scope: Scope,
        name: str,
        ones: list[Imported],
        taken: dict[str, object],
    ) -> None:
        identities = {self.identity(file, one) for one in ones}
        pure = len(scope.bindings[name]) == len(ones) and len(identities) == 1
        first = ones[0]
        identity = self.identity(file, first)
        dotted = not first.name and not first.alias
        wanted_names = [name]
        if pure and not first.alias and not dotted:
            if first.module is not None:
                wanted_names.insert(0, self.after(first.module).rpartition(".")[2])
            elif first.home is not None:
                wanted_names.insert(0, self.final(first.home, first.name))
        source = first.source if first.module is None else first.module.rpartition(".")[0]
        wanted_names.append(self._prefixed(source, wanted_names[0]))
        wanted_names += [f"{wanted_names[-1]}{'_' * count}" for count in range(1, 4)]
        top = scope is file.top
        references = self._references(file, scope, name)
        for wanted in dict.fromkeys(wanted_names):
            if top:
                holder = taken.get(wanted)
                if holder is not None and holder != identity and not (wanted == name and not pure):
                    continue
                captured = (
                    wanted != name and any(wanted in self._free(each) for each in group if each is file)
                ) or (
                    len(group) > 1 and any(wanted in self._free(each) for each in group if each is not file)
                )
                if captured:
                    continue
            else:
                if wanted != name and self._bound_besides(file, scope, wanted, name, identity):
                    continue
                if wanted != name and self._used_free(scope, wanted):
                    continue
            if wanted != name and any(self._shadowed(each, wanted, scope) for each in references):
                continue
            break
        else:
            self.note("UNRESOLVED", f"{file.path}: no name for {name}")
            wanted = name
        if top:
            taken.setdefault(wanted, identity)
        if wanted != name:
            scope.rename[name] = wanted
            if top and file.module is not None:
                self.rename[file.module, name] = wanted
        plain = wanted_names[0]
        if wanted != plain and not dotted:
            self.note(
                "aliases used",
                f"{file.path}:{first.statement.lineno}: {'.'.join(filter(None, identity))} as {wanted}",
            )

    def _bound_besides(
        self, file: File, scope: Scope, wanted: str, name: str, identity: tuple[str, str]
    ) -> bool:
        for other in scope.bindings:
            if other == name or other in scope.gone or scope.rename.get(other, other) != wanted:
                continue
            same = [one for one in file.imports if one.scope is scope and one.local == other]
            if len(same) == len(scope.bindings[other]) and all(
                self.identity(file, one) == identity for one in same
            ):
                continue
            return True
        return False

    @staticmethod
    def _used_free(scope: Scope, wanted: str) -> bool:
        """Does something in this scope or below mean a name of that kind outside?"""
        for inner in scope.subtree():
            if wanted in inner.used:
                owner = inner.owner(wanted)
                if owner is None:
                    return True
                outer: Scope | None = scope.parent
                while outer is not None:
                    if owner is outer:
                        return True
                    outer = outer.parent
        return False

    @staticmethod
    def _shadowed(each: Occurrence, wanted: str, owner: Scope) -> bool:
        scope: Scope | None = each.scope
        while scope is not None and scope is not owner:
            if (scope.kind != "class" or scope is each.scope) and scope.bound_after(wanted):
                return True
            scope = scope.parent
        return False

    def _vanish(self, target: str, file: File, one: Imported) -> None:
        references = self._references(file, one.scope, one.local)
        for each in references:
            if one.home is not None:
                self._visible(target, file, each, self.final(one.home, one.name))
            else:
                parent = each.parents[-1] if each.parents else None
                if isinstance(parent, ast.Attribute) and parent.value is each.node:
                    self._visible(target, file, each, self.final(one.module or "", parent.attr))

    def _visible(self, target: str, file: File, each: Occurrence, name: str) -> None:
        """See to it that a top-level name means itself here."""
        scope: Scope | None = each.scope
        while scope is not None and scope.parent is not None:
            if (scope.kind != "class" or scope is each.scope) and scope.bound_after(name):
                old = next(
                    old
                    for old in scope.bindings
                    if old not in scope.gone and scope.rename.get(old, old) == name
                )
                plain = scope.kind != "class" and all(b.kind == "store" for b in scope.bindings[old])
                new = name + "_"
                if plain and not any(new in inner.used for inner in scope.subtree()):
                    scope.rename[old] = new
                    self.note(
                        "local variables renamed", f"{file.path}:{file.line_of(each.start)}: {old} -> {new}"
                    )
                elif name not in self.aliases[target]:
                    alias = f"_{name.lstrip('_')}"
                    tops = {
                        final
                        for member in self.groups.get(target, [])
                        for bound in member.top.bindings
                        for final in (bound, self.rename.get((member.module or "", bound), bound))
                    }
                    while alias == name or alias in tops or alias in self.aliases[target].values():
                        alias += "_"
                    self.aliases[target][name] = alias
                    self.note(
                        "aliases at the top of a module",
                        f"{target}: {alias} = {name} (hidden at {file.path}:{file.line_of(each.start)})",
                    )
                return
            scope = scope.parent

    def visible_name(self, target: str, each: Occurrence, name: str) -> str:
        scope: Scope | None = each.scope
        while scope is not None and scope.parent is not None:
            if (scope.kind != "class" or scope is each.scope) and scope.bound_after(name):
                return self.aliases[target].get(name, name)
            scope = scope.parent
        return name

    # -- edits

    def edit(self, file: File, skip_top_imports: bool = False) -> list[Edit]:
        edits: list[Edit] = []
        self._name_edits(file, edits)
        self._import_edits(file, edits, skip_top_imports)
        self._call_edits(file, edits)
        if "Patch(" in file.text and file.path.startswith("tests/"):
            self._patch_edits(file, edits)
        self._place_edits(file, edits)
        self._text_edits(file, edits)
        return self._without_overlaps(file, edits)

    def _without_overlaps(self, file: File, edits: list[Edit]) -> list[Edit]:
        kept: list[Edit] = []
        for edit in sorted(set(edits), key=lambda edit: (edit[0], -edit[1])):
            if kept and edit[0] < kept[-1][1]:
                continue
            kept.append(edit)
        return kept

    def _bound_module(self, file: File, scope: Scope, name: str) -> tuple[Imported, str] | None:
        for one in file.imports:
            if one.scope is scope and one.local == name and one.module is not None:
                if one.name or one.alias:
                    return one, one.module
                return one, one.local  # `import a.b` binds `a`
        return None

    def _bound_modules(self, file: File) -> dict[tuple[Scope, str], tuple[Imported, str]]:
        found: dict[tuple[Scope, str], tuple[Imported, str]] = {}
        for one in file.imports:
            if one.module is not None:
                bound = one.module if one.name or one.alias else one.local
                found.setdefault((one.scope, one.local), (one, bound))
        return found

    def _name_edits(self, file: File, edits: list[Edit]) -> None:
        target = self.new_home(file) or ""
        bound = self._bound_modules(file)
        symbols = {
            (one.scope, one.local): one
            for one in file.imports
            if one.home is not None and self.vanishes(file, one)
        }
        for each in file.occurrences:
            if each.kind == "import":
                continue
            owner = each.scope.owner(each.name)
            if owner is None:
                continue
            key = (owner, each.name)
            if key in bound:
                self._module_use(file, target, each, *bound[key], edits)
                continue
            if key in symbols and each.name in owner.gone:
                one = symbols[key]
                new = self.visible_name(target, each, self.final(one.home or "", one.name))
            elif owner is file.top:
                new = self.rename.get((file.module or "", each.name), owner.rename.get(each.name, each.name))
                if new != each.name and each.kind == "load":
                    new = self.visible_name(target, each, new)
            else:
                new = owner.rename.get(each.name, each.name)
            if new != each.name:
                edits.append((each.start, each.end, new))

    def _chain(
        self, file: File, each: Occurrence, bound: str
    ) -> tuple[str, str | None, tuple[int, int], int]:
        """The module an expression like `a.b.c` means, the attribute of it, the span of both, of the module."""
        module, position = bound, each.end
        text = file.text
        while True:
            found = re.compile(r"\s*\.\s*([A-Za-z_]\w*)").match(text, position)
            if found is None:
                return module, None, (each.start, position), position
            attribute = found.group(1)
            package = self.modules.get(module)
            below = f"{module}.{attribute}"
            if self.is_module(below) and not (package is not None and self._defines(package, attribute)):
                module, position = below, found.end()
                continue
            return module, attribute, (each.start, found.end()), position

    def _module_use(
        self, file: File, target: str, each: Occurrence, one: Imported, bound: str, edits: list[Edit]
    ) -> None:
        module, attribute, (start, end), middle = self._chain(file, each, bound)
        owner = each.scope.owner(each.name)
        assert owner is not None
        if module not in self.modules:
            if module in self.packages and middle == each.end:
                new = owner.rename.get(each.name, each.name)
                if new != each.name:
                    edits.append((each.start, each.end, new))
            return
        gone = each.name in owner.gone and self.vanishes(file, one)
        if gone and middle == each.end:
            if attribute is None:
                edits.append((each.start, each.end, "sys.modules[__name__]"))
                self.note(
                    "UNRESOLVED", f"{file.path}:{file.line_of(each.start)}: {each.name} is used as an object"
                )
            else:
                edits.append((start, end, self.visible_name(target, each, self.final(module, attribute))))
            return
        if middle == each.end:
            prefix = owner.rename.get(each.name, each.name)
        elif one.name or one.alias:
            # An attribute of a package that is a module.
            prefix = owner.rename.get(each.name, each.name) + file.text[each.end : middle]
            if self.after(module) != module:
                self.note(
                    "UNRESOLVED", f"{file.path}:{file.line_of(each.start)}: a module through its package"
                )
        else:
            prefix = self.after(module)
        if attribute is None:
            if prefix != file.text[start:middle]:
                edits.append((start, middle, prefix))
            return
        new = prefix + file.text[middle : end - len(attribute)] + self.final(module, attribute)
        if new != file.text[start:end]:
            edits.append((start, end, new))

    def import_lines(self, file: File, node: ast.Import | ast.ImportFrom) -> tuple[list[str], bool]:
        """The statements that take the place of one, and whether they differ from it."""
        mine = [one for one in file.imports if one.statement is node]
        items, changed = [], False
        for one in mine:
            if self.vanishes(file, one):
                changed = True
                continue
            item = self.import_item(file, one)
            items.append(item)
            changed = changed or item != (one.source, one.name, one.alias)
        return self.statements(items), changed

    def import_item(self, file: File, one: Imported) -> tuple[str, str, str | None]:
        """Module, name and alias of an import afterwards."""
        local = one.scope.rename.get(one.local, one.local)
        if one.module is not None:
            new = self.after(one.module)
            if not one.name:
                return new, "", local if one.alias else None
            parent, _, base = new.rpartition(".")
            if not parent:
                return new, "", local if local != new else None
            return parent, base, local if local != base or one.alias == base else None
        if one.home is not None:
            name = self.final(one.home, one.name) if one.name != "*" else "*"
            keep = one.alias is not None and one.alias == one.name  # an explicit re-export
            return self.target[one.home], name, local if local != name or keep else None
        if one.name:
            keep = one.alias is not None
            return one.source, one.name, local if local != one.name or keep else None
        return one.source, "", local if one.alias else None

    @staticmethod
    def statements(items: list[tuple[str, str, str | None]]) -> list[str]:
        lines: list[str] = []
        members: dict[str, list[str]] = {}
        for source, name, alias in items:
            tail = f" as {alias}" if alias else ""
            if not name:
                line = f"import {source}{tail}"
                if line not in lines:
                    lines.append(line)
            else:
                if source not in members:
                    members[source] = []
                    lines.append(f"\0{source}")
                if name + tail not in members[source]:
                    members[source].append(name + tail)
        return [
            f"from {line[1:]} import {', '.join(members[line[1:]])}" if line.startswith("\0") else line
            for line in lines
        ]

    def comments_in(self, file: File, start: int, end: int) -> str:
        """Comments inside a statement and after it on its last line."""
        stop = file.text.find("\n", end)
        text = file.text[start : stop if stop >= 0 else len(file.text)]
        return "  ".join(re.findall(r"#[^\n]*", text))

    def _import_edits(self, file: File, edits: list[Edit], skip_top: bool) -> None:
        done: set[ast.AST] = set()
        emptied: dict[int, tuple[list[ast.stmt], set[ast.AST]]] = {}
        for one in file.imports:
            node = one.statement
            if node in done:
                continue
            done.add(node)
            if skip_top and one.block is file.tree.body:
                continue
            lines, changed = self.import_lines(file, node)
            if not changed:
                continue
            if not lines:
                emptied.setdefault(id(one.block), (one.block, set()))[1].add(node)
                continue
            start, end = file.span(node)
            indent = " " * (start - file.lines[node.lineno - 1])
            inner = re.findall(r"#[^\n]*", file.text[start:end])
            text = f"\n{indent}".join(lines) + "".join(f"  {each}" for each in inner)
            edits.append((start, end, text))
        for block, nodes in emptied.values():
            everything = len(nodes) == len(block)
            guard = next((each for each in file.guards if each.body is block), None)
            if everything and guard is not None and guard in file.tree.body:
                edits.append((*self._whole_lines(file, guard), ""))
                continue
            for number, node in enumerate(each for each in block if each in nodes):
                if everything and number == 0:
                    edits.append((*file.span(node), "pass"))
                else:
                    edits.append((*self._whole_lines(file, node), ""))

    @staticmethod
    def _whole_lines(file: File, node: ast.stmt) -> tuple[int, int]:
        start = file.lines[node.lineno - 1]
        end_line = node.end_lineno or node.lineno
        return start, file.lines[min(end_line, len(file.lines) - 1)]

    def _call_edits(self, file: File, edits: list[Edit]) -> None:
        """`setattr(module, "name")`, `import_module("kfm.a").name`."""
        names = {each.node: each for each in file.occurrences if each.node is not None}
        bound = self._bound_modules(file)

        def meant(node: ast.expr) -> str | None:
            if isinstance(node, ast.Name) and node in names:
                owner = names[node].scope.owner(node.id)
                found = bound.get((owner, node.id)) if owner is not None else None
                return found[1] if found else None
            if isinstance(node, ast.Attribute):
                above = meant(node.value)
                below = f"{above}.{node.attr}"
                return below if above and self.is_module(below) else None
            return imported_by_text(node)

        def imported_by_text(node: ast.expr) -> str | None:
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "attr", getattr(node.func, "id", ""))
                in ("import_module", "importorskip")
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and node.args[0].value in self.modules
            ):
                return str(node.args[0].value)
            return None

        for call in file.calls:
            for first, second in zip(call.args, call.args[1:], strict=False):
                if isinstance(second, ast.Constant) and isinstance(second.value, str):
                    module = meant(first)
                    if module in self.modules:
                        new = self.final(module, second.value)
                        if new != second.value:
                            start, end = file.span(second)
                            edits.append((start, end, file.text[start:end].replace(second.value, new)))
        for node in ast.walk(file.tree) if "import_module" in file.text else ():
            if isinstance(node, ast.Attribute):
                module = imported_by_text(node.value)
                if module is not None:
                    new = self.final(module, node.attr)
                    if new != node.attr:
                        end = file.span(node)[1]
                        edits.append((end - len(node.attr), end, new))

    def _place_edits(self, file: File, edits: list[Edit]) -> None:
        """`__file__.rpartition("/core/")`: a file that knows the name of its folder."""
        new_path = self.paths_after.get(file.path)
        if new_path is None or "__file__" not in file.text:
            return
        old, new = (Path(path).parent.name for path in (file.path, new_path))
        if file.path.count("/") != new_path.count("/"):
            self.note("uses of __file__ in files that moved to another DEPTH", f"{file.path} -> {new_path}")
        for node in file.strings:
            start, end = file.span(node)
            if f"/{old}/" in str(node.value) and "__file__" in file.raw[file.line_of(start) - 1]:
                edits.append((start, end, file.text[start:end].replace(f"/{old}/", f"/{new}/")))

    # -- texts

    DOTTED = re.compile(r"(?<![\w./-])(?:kfm|tests|bench|tools|examples)(?:\.\w+)+")
    PATHED = re.compile(r"(?<![\w.-])(?:src/)?(?:kfm|tests|bench|tools|examples)(?:/[\w.-]+)+/?")
    FROM = re.compile(r"(?<![\w.])from (kfm[\w.]*) import (\w+(?: as \w+)?(?:, *\w+(?: as \w+)?)*)")

    def _text_edits(self, file: File, edits: list[Edit]) -> None:
        code = {each.start for each in file.occurrences if each.kind != "import"}
        imports = [file.span(node) for node in {one.statement: None for one in file.imports}]
        imports.sort()
        starts = [start for start, _ in imports]
        for start, end, new in self.text_edits(file.text, file.path):
            if start in code:
                continue
            at = bisect.bisect_right(starts, start) - 1
            if at >= 0 and imports[at][0] <= start < imports[at][1]:
                continue
            edits.append((start, end, new))

    def text_edits(self, text: str, path: str) -> list[Edit]:
        edits: list[Edit] = []
        for found in self.FROM.finditer(text):
            source = found.group(1)
            if not self.is_module(source):
                continue
            items = []
            for item in found.group(2).split(","):
                name, _, alias = item.strip().partition(" as ")
                below = f"{source}.{name}"
                if self.is_module(below):
                    parent, _, base = self.after(below).rpartition(".")
                    items.append((parent, base, alias or (name if base != name else None)))
                elif source in self.modules:
                    items.append((self.target[source], self.final(source, name), alias or None))
                else:
                    items.append((source, name, alias or None))
            joint = "\n" if "\n" in text[max(0, found.start() - 1) : found.start()] else "; "
            new = joint.join(self.statements(items))
            if new != found.group():
                edits.append((*found.span(), new))
        for found in self.DOTTED.finditer(text):
            if found.group() in self.table.keep:
                continue
            new = self.dotted_after(found.group())
            if new is None:
                line = text.count("\n", 0, found.start()) + 1
                self.note("mentions of packages that are spread out", f"{path}:{line}: {found.group()}")
            elif new != found.group():
                edits.append((*found.span(), new))
        for found in self.PATHED.finditer(text):
            if found.group() in self.table.keep:
                continue
            new = self.path_mention(found.group())
            if new is None:
                line = text.count("\n", 0, found.start()) + 1
                self.note("mentions of packages that are spread out", f"{path}:{line}: {found.group()}")
            elif new != found.group():
                edits.append((*found.span(), new))
        edits.sort()
        return edits

    def dotted_after(self, dotted: str) -> str | None:
        parts = dotted.split(".")
        for count in range(len(parts), 1, -1):
            prefix = ".".join(parts[:count])
            rest = parts[count:]
            if prefix in self.modules and not (rest and rest[0] in ("py", "pyi", "md", "toml")):
                file = self.modules[prefix]
                if file.is_package:
                    if rest and not self._defines(file, rest[0]) and f'"{rest[0]}"' not in file.text:
                        return dotted
                    if not file.text.strip() or (not rest and self.target[prefix] == prefix):
                        if self.lives(prefix):
                            return dotted
                        new = self.package_after(prefix)
                        return None if new is None else ".".join([new, *rest])
                new = self.target[prefix]
                if rest:
                    rest = [self.final(prefix, rest[0]), *rest[1:]]
                return ".".join([new, *rest])
            if prefix in self.packages and not rest:
                if self.lives(prefix):
                    return dotted
                return self.package_after(prefix)
        return dotted

    def lives(self, package: str) -> bool:
        """Is something left in a package?"""
        return package in self.living

    def path_mention(self, mention: str) -> str | None:
        folder = mention.endswith("/")
        lead = "src/" if mention.startswith(f"{TOP}/") else ""
        full = lead + mention.rstrip("/").rstrip(".")
        tail = mention[len(full) - len(lead) :]
        if full in self.paths_after:
            return self.paths_after[full].removeprefix(lead) + tail
        if full.endswith(".py") or "." in full.rpartition("/")[2]:
            return mention
        module = full.removeprefix("src/").replace("/", ".")
        if module in self.modules and not folder and not self.modules[module].is_package:
            new_path = self.paths_after.get(self.modules[module].path)
            return mention if new_path is None else new_path.removesuffix(".py").removeprefix(lead) + tail
        if module in self.packages and not self.lives(module) and (self.root / full).is_dir():
            left = [p for p in self.tracked if p.startswith(full + "/") and p not in self.paths_after]
            if any(not p.endswith("__init__.py") for p in left):
                return mention
            new = self.package_after(module)
            if new is None:
                return None
            return (("src/" if full.startswith("src/") else "") + new.replace(".", "/")).removeprefix(
                lead
            ) + tail
        return mention

    # -- merging

    def merge(self, target: str, group: list[File]) -> str:
        imports: list[tuple[str, str, str | None]] = []
        typing_imports: list[tuple[str, str, str | None]] = []
        typing_rest: list[str] = []
        special: list[str] = []  # statements with comments
        typing_special: list[str] = []
        chunks: list[Chunk] = []
        future = False
        doc = None
        exported: list[str] = []
        tails: list[str] = []
        needs_sys = False
        for file in group:
            edits = self.edit(file, skip_top_imports=True)
            needs_sys = needs_sys or any(new.startswith("sys.modules[") for _, _, new in edits)
            body = list(file.tree.body)
            at = 0
            if (
                body
                and isinstance(body[0], ast.Expr)
                and isinstance(body[0].value, ast.Constant)
                and isinstance(body[0].value.value, str)
            ):
                end = file.lines[body[0].end_lineno or 1]
                if doc is None:
                    start = file.lines[body[0].lineno - 1]
                    doc = apply_edits(file.text, edits, start, file.span(body[0])[1])
                else:
                    self.note("docstrings left out", f"{target}: {body[0].value.value.splitlines()[0]}")
                at = end
                body = body[1:]
            for node in body:
                first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
                begin = at
                end = file.lines[min(node.end_lineno or node.lineno, len(file.lines) - 1)]
                at = end
                before = file.text[begin : file.lines[first - 1]] if begin < file.lines[first - 1] else ""
                if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                    future = True
                    continue
                if isinstance(node, ast.Import | ast.ImportFrom):
                    self._take_import(file, node, before, imports, special)
                    continue
                if is_typing_guard(node):
                    assert isinstance(node, ast.If)
                    for inner in node.body:
                        if isinstance(inner, ast.Import | ast.ImportFrom):
                            self._take_import(file, inner, "", typing_imports, typing_special)
                        else:
                            start, stop = self._whole_lines(file, inner)
                            typing_rest.append(apply_edits(file.text, edits, start, stop).rstrip("\n"))
                    if before.strip():
                        typing_rest.insert(0, before.strip("\n"))
                    continue
                bound = self._bound_by(node)
                if bound and all((file.module or "", name) in self.dropped for name in bound):
                    self.note(
                        "identical definitions kept once",
                        f"{target}: {', '.join(sorted(bound))} of {file.module}",
                    )
                    continue
                if "__all__" in bound and isinstance(node, ast.Assign | ast.AnnAssign):
                    try:
                        listed = ast.literal_eval(node.value)  # type: ignore[arg-type]
                    except (ValueError, TypeError):
                        self.note("UNRESOLVED", f"{file.path}:{node.lineno}: __all__ is computed")
                    else:
                        exported += [self.final(file.module or "", name) for name in listed]
                        continue
                if isinstance(node, ast.If) and "__main__" in ast.dump(node.test):
                    tails.append(apply_edits(file.text, edits, begin, end))
                    continue
                chunk = Chunk(file, [node], begin, end)
                chunk.text = apply_edits(file.text, edits, begin, end)
                self._dependencies(chunk, node)
                chunks.append(chunk)
            rest = file.text[at:]
            if rest.strip():
                tails.append(apply_edits(file.text, edits, at))
        if len(tails) > 1 and sum("__main__" in tail for tail in tails) > 1:
            self.note("UNRESOLVED", f"{target}: several `if __name__ == '__main__'`")
        chunks = self._ordered(target, group, chunks)
        for name, alias in self.aliases[target].items():
            place = next((i for i, chunk in enumerate(chunks) if name in chunk.binds), -1)
            extra = Chunk(group[0], [], 0, 0, binds={alias}, text=f"\n\n{alias} = {name}\n")
            chunks.insert(place + 1, extra)
        parts = []
        doc_text = self.table.docs.get(target)
        if doc_text is not None:
            doc = '"""' + doc_text + '"""'
        if doc is not None:
            parts.append(doc + "\n\n")
        if future:
            parts.append("from __future__ import annotations\n\n")
        if needs_sys:
            imports.append(("sys", "", None))
        real = {(source, name): alias for source, name, alias in imports}
        typing_imports = [
            item for item in typing_imports if item not in imports and real.get(item[:2], "") != item[2]
        ]
        has_typing = bool(typing_imports or typing_special or typing_rest)
        if has_typing:
            imports.append(("typing", "TYPE_CHECKING", None))
        else:
            imports = [item for item in imports if item != ("typing", "TYPE_CHECKING", None)]
            uses_flag = any("TYPE_CHECKING" in chunk.text for chunk in chunks)
            if uses_flag:
                imports.append(("typing", "TYPE_CHECKING", None))
        lines = self.statements(imports)
        parts.append("".join(f"{line}\n" for line in [*lines, *dict.fromkeys(special)]))
        if has_typing:
            inner = [*self.statements(typing_imports), *dict.fromkeys(typing_special)]
            block = "".join(f"    {line}\n" for line in inner) + "".join(f"{line}\n" for line in typing_rest)
            parts.append(f"\nif TYPE_CHECKING:\n{block}")
        if exported:
            names = ", ".join(f'"{name}"' for name in dict.fromkeys(exported))
            parts.append(f"\n__all__ = [{names}]\n")
        parts.append("\n")
        previous: File | None = None
        for chunk in chunks:
            text = chunk.text
            if previous is not None and chunk.file is not previous:
                text = "\n\n" + text.lstrip("\n")
            parts.append(text if text.endswith("\n") else text + "\n")
            previous = chunk.file
        parts += [f"\n\n{tail.strip(chr(10))}\n" for tail in tails]
        return "".join(parts)

    def _take_import(
        self,
        file: File,
        node: ast.Import | ast.ImportFrom,
        before: str,
        imports: list[tuple[str, str, str | None]],
        special: list[str],
    ) -> None:
        mine = [one for one in file.imports if one.statement is node and not self.vanishes(file, one)]
        if not mine:
            return
        items = [self.import_item(file, one) for one in mine]
        comments = self.comments_in(file, *file.span(node))
        above = before.strip()
        if comments or above:
            lines = self.statements(items)
            text = "\n".join(lines) + (f"  {comments}" if comments else "")
            special.append(f"{above}\n{text}" if above else text)
        else:
            imports += [item for item in items if item not in imports]

    def _dependencies(self, chunk: Chunk, node: ast.stmt) -> None:
        """Names, as they are called afterwards, that a statement binds, and needs when it is executed."""
        file = chunk.file
        module = file.module or ""
        chunk.binds = {self.final(module, name) for name in self._bound_by(node)}
        start, end = file.span(node)
        start = min([start, *(file.span(each)[0] for each in getattr(node, "decorator_list", []))])
        lazy: list[tuple[int, int]] = []
        called: list[tuple[int, int]] = []
        for each in ast.walk(node):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                lazy.append((file.span(each.body[0])[0], file.span(each)[1]))
                if file.postponed:
                    arguments = each.args
                    for one in [
                        *arguments.posonlyargs,
                        *arguments.args,
                        *arguments.kwonlyargs,
                        arguments.vararg,
                        arguments.kwarg,
                    ]:
                        if one is not None and one.annotation is not None:
                            lazy.append(file.span(one.annotation))
                    if each.returns is not None:
                        lazy.append(file.span(each.returns))
            elif isinstance(each, ast.Lambda):
                lazy.append(file.span(each.body))
            elif isinstance(each, ast.AnnAssign) and file.postponed:
                lazy.append(file.span(each.annotation))
            elif isinstance(each, ast.Call):
                called.append(file.span(each))
            elif isinstance(each, ast.ClassDef | ast.FunctionDef):
                called += [file.span(deco) for deco in each.decorator_list]
        for each_ast in ast.walk(node):
            for decorator in getattr(each_ast, "decorator_list", []):
                called.append(file.span(decorator))
        for each in file.occurrences:
            if not start <= each.start < end or each.kind == "import":
                continue
            owner = each.scope.owner(each.name)
            if owner is None:
                continue
            name = self._meant_top(file, owner, each)
            if name is None:
                continue
            chunk.everything.add(name)
            if each.kind == "load" and not any(a <= each.start < b for a, b in lazy):
                chunk.needs.add(name)
                if any(a <= each.start < b for a, b in called):
                    chunk.deep.add(name)

    def _meant_top(self, file: File, owner: Scope, each: Occurrence) -> str | None:
        module = file.module or ""
        for one in file.imports:
            if one.scope is owner and one.local == each.name and self.vanishes(file, one):
                if one.home is not None:
                    return self.final(one.home, one.name)
                parent = each.parents[-1] if each.parents else None
                if isinstance(parent, ast.Attribute):
                    return self.final(one.module or "", parent.attr)
                return None
        return self.final(module, each.name) if owner is file.top else None

    def _ordered(self, target: str, group: list[File], chunks: list[Chunk]) -> list[Chunk]:
        binders: dict[str, list[int]] = defaultdict(list)
        for number, chunk in enumerate(chunks):
            for name in chunk.binds:
                binders[name].append(number)

        def deep(name: str, seen: set[str]) -> set[str]:
            if name in seen:
                return seen
            seen.add(name)
            for number in binders.get(name, ()):
                for inner in chunks[number].everything:
                    deep(inner, seen)
            return seen

        hard: list[set[int]] = []
        soft: list[set[int]] = []
        for number, chunk in enumerate(chunks):
            direct = {at for name in chunk.needs for at in binders.get(name, ())[:1] if at != number}
            direct |= {at for name in chunk.binds for at in binders[name] if at < number}
            wide: set[int] = set()
            for name in chunk.deep:
                for inner in deep(name, set()):
                    wide.update(at for at in binders.get(inner, ()) if at != number)
            hard.append(direct)
            soft.append(direct | wide)
        if all(at < number for number in range(len(chunks)) for at in soft[number]):
            return chunks
        # Whole modules first.
        modules = [file.module for file in group]
        needs: dict[str | None, set[str | None]] = defaultdict(set)
        for number, chunk in enumerate(chunks):
            needs[chunk.file.module] |= {chunks[at].file.module for at in hard[number]} - {chunk.file.module}
        for number, chunk in enumerate(chunks):
            for at in soft[number]:
                other = chunks[at].file.module
                if other != chunk.file.module and chunk.file.module not in self._reach(needs, other):
                    needs[chunk.file.module].add(other)
        if not any(module in self._reach(needs, other) for module in modules for other in needs[module]):
            placed: list[str | None] = []

            def place(module: str | None) -> None:
                if module not in placed:
                    for other in modules:
                        if other in needs[module]:
                            place(other)
                    placed.append(module)

            for module in modules:
                place(module)
            if placed != modules:
                self.note("merged in another order", f"{target}: {', '.join(str(each) for each in placed)}")
            rank = {module: number for number, module in enumerate(placed)}
            order = sorted(range(len(chunks)), key=lambda number: (rank[chunks[number].file.module], number))
        else:
            order = list(range(len(chunks)))
        done: list[int] = []
        state: dict[int, int] = {}

        def emit(number: int) -> None:
            if number in state:
                if state[number] == 1:
                    self.note(
                        "UNRESOLVED", f"{target}: statements that need each other: {chunks[number].binds}"
                    )
                return
            state[number] = 1
            for at in sorted(hard[number], key=order.index):
                emit(at)
            for at in sorted(soft[number] - hard[number], key=order.index):
                if at not in state and not self._needs_back(hard, at, number):
                    emit(at)
            state[number] = 2
            done.append(number)

        sys.setrecursionlimit(10_000)
        for number in order:
            emit(number)
        moved = sum(1 for a, b in zip(done, order, strict=True) if a != b)
        if moved:
            self.note("statements reordered", f"{target}: {moved} places differ")
        return [chunks[number] for number in done]

    @staticmethod
    def _reach(needs: dict[str | None, set[str | None]], start: str | None) -> set[str | None]:
        seen: set[str | None] = {start}
        pending = [start]
        while pending:
            for other in needs.get(pending.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
        return seen

    @staticmethod
    def _needs_back(hard: list[set[int]], start: int, goal: int) -> bool:
        seen, pending = {start}, [start]
        while pending:
            for at in hard[pending.pop()]:
                if at == goal:
                    return True
                if at not in seen:
                    seen.add(at)
                    pending.append(at)
        return False

    # -- everything

    def run(self) -> None:
        self.read()
        self.settle()
        self.classify()
        self.paths_after = dict(self.paths)
        for target, group in self.groups.items():
            new_path = self.path_after(target)
            for file in group:
                if file.path != new_path:
                    self.paths_after[file.path] = new_path
        self.settle_names()
        for target, group in self.groups.items():
            new_path = self.path_after(target)
            if len(group) > 1:
                self.new_files[new_path] = self.merge(target, group)
            else:
                file = group[0]
                text = apply_edits(file.text, self.edit(file))
                for name, alias in self.aliases[target].items():
                    text += f"\n\n{alias} = {name}\n"
                if target in self.table.docs:
                    text = self._with_doc(text, self.table.docs[target])
                if new_path != file.path or text != file.text:
                    self.new_files[new_path] = text
            for file in group:
                if file.path != new_path:
                    self.removed.add(file.path)
        for file in self.files.values():
            if file.module is None:
                text = apply_edits(file.text, self.edit(file))
                if text != file.text:
                    self.new_files[file.path] = text
        self._other_texts()
        self._inits()
        self._renamed_strings()

    @staticmethod
    def _with_doc(text: str, doc: str) -> str:
        tree = ast.parse(text)
        if ast.get_docstring(tree, clean=False) is not None:
            lines = text.splitlines(keepends=True)
            return f'"""{doc}"""\n' + "".join(lines[tree.body[0].end_lineno :])
        return f'"""{doc}"""\n\n{text}'

    def _other_texts(self) -> None:
        for path in self.tracked:
            new_path = self.paths.get(path, path)
            if path in self.files:
                continue
            name = path.rpartition("/")[2]
            textual = Path(name).suffix in TEXT_SUFFIXES or name in TEXT_NAMES or "." not in name
            if self.excluded(path) or not textual:
                continue
            try:
                text = (self.root / path).read_text("utf-8")
            except UnicodeDecodeError:
                continue
            new = apply_edits(text, self.text_edits(text, path))
            if new != text:
                self.new_files[new_path] = new

    def _inits(self) -> None:
        """Packages that are new get an `__init__.py`; those that are empty go."""
        gone = self.removed | {old for old, new in self.paths.items() if old != new}
        after = (set(self.tracked) - gone) | set(self.new_files) | set(self.paths.values())
        folders = defaultdict(list)
        for path in after:
            folders[path.rpartition("/")[0]].append(path)
        for path in sorted(self.tracked, key=lambda each: -each.count("/")):
            if not path.endswith("/__init__.py") or path in gone or not path.startswith(tuple(ROOTS)):
                continue
            folder = path.rpartition("/")[0]
            others = [each for each in after if each.startswith(folder + "/") and each != path]
            before = [each for each in self.tracked if each.startswith(folder + "/") and each != path]
            if others or not before:
                continue
            file = self.files.get(path)
            if file is None or self._only_says(file):
                self.removed.add(path)
                self.new_files.pop(path, None)
                after.discard(path)
            else:
                self.note("UNRESOLVED", f"{path} is the only file left in its folder")
        for path in list(self.new_files):
            if not path.endswith(".py"):
                continue
            folder = path.rpartition("/")[0]
            wants = path.startswith("src/") or any(
                (self.root / old).parent.joinpath("__init__.py").exists()
                for old, new in self.paths_after.items()
                if new == path
            )
            while wants and folder.count("/") >= 1:
                init = f"{folder}/__init__.py"
                if init not in after and folder != "src":
                    self.new_files[init] = ""
                    after.add(init)
                folder = folder.rpartition("/")[0]

    def _renamed_strings(self) -> None:
        renamed = {
            name: new
            for (module, name), new in self.rename.items()
            if new != name
            and len(name) > 3
            and module in self.modules
            and name in self._own(self.modules[module])
        }
        for file in self.files.values():
            for node in file.strings:
                if node.value in renamed:
                    self.note(
                        "texts equal to a renamed name (look)",
                        f"{file.path}:{file.line_of(file.span(node)[0])}: {node.value!r} (-> {renamed[str(node.value)]})",
                    )

    # -- patches of the simulation: a module and pieces of its text

    def _patch_edits(self, file: File, edits: list[Edit]) -> None:
        for module, changes, last in patches_in(file):
            if module not in self.modules:
                continue
            text = self.modules[module].text
            for old, new in changes:
                before, after = str(old.value), str(new.value)
                where = f"{file.path}:{old.lineno}"
                if before not in text:
                    self.note("UNRESOLVED", f"{where}: {module} does not say {before!r}")
                    break
                at = text.rindex(before) if last else text.index(before)
                changed = text[:at] + after + text[at + len(before) :]
                there = self._piece(module, text, at, before, changed, after, where)
                if not last:
                    changed = text.replace(before, after)
                text = changed
                for node, was, now in ((old, before, there[0]), (new, after, there[1])):
                    if was != now:
                        start, end = file.span(node)
                        edits.append((start, end, literal(now, start - file.lines[node.lineno - 1])))

    def _piece(
        self, module: str, text: str, at: int, before: str, changed: str, after: str, where: str
    ) -> tuple[str, str]:
        """A piece of a module and what takes its place, as both are after the move."""
        edits, others = self._variant(module, text), self._variant(module, changed)
        if edits is None:
            self.note("UNRESOLVED", f"{where}: {module} cannot be read once it is patched")
            return before, after
        start, end, other_end = at, at + len(before), at + len(after)
        if others is None:
            words = {text[a:b]: new for a, b, new in edits if a < end and b > start}
            made = after
            for word, new in words.items():
                made = re.sub(rf"(?<![\w.]){re.escape(word)}(?!\w)", lambda _, new=new: new, made)
            return apply_edits(text, edits, start, end), made
        while True:
            left = min([start, *(a for a, b, _ in [*edits, *others] if a < start < b)])
            right = max([end, *(b for a, b, _ in edits if a < end < b)])
            right = max([right, *(b - other_end + end for a, b, _ in others if a < other_end < b)])
            if (left, right) == (start, end):
                break
            start, other_end, end = left, other_end + right - end, right
        return apply_edits(text, edits, start, end), apply_edits(changed, others, start, other_end)

    def _variant(self, module: str, text: str) -> list[Edit] | None:
        """The edits of a module if this were its text."""
        original = self.modules[module]
        key = (module, text)
        if key in self.variants:
            return self.variants[key]
        notes, self.notes = self.notes, defaultdict(list)
        try:
            file = File(original.path, module, text)
        except SyntaxError:
            self.variants[key] = None
            return None
        finally:
            self.notes = notes
        notes, self.notes = self.notes, defaultdict(list)
        self.classify_file(file)
        self._mark_gone_in(file)
        target = self.target[module]
        file.top.rename = dict(original.top.rename)
        by_name: dict[tuple[Scope, str], list[Imported]] = defaultdict(list)
        for one in file.imports:
            if one.scope is not file.top and one.source != "__future__":
                by_name[one.scope, one.local].append(one)
        self._own_shadows(target, file)
        for (scope, name), ones in by_name.items():
            if not (name in scope.gone and all(self.vanishes(file, one) for one in ones)):
                self._import_name(target, [file], file, scope, name, ones, {})
        for one in file.imports:
            if self.vanishes(file, one):
                self._vanish(target, file, one)
        self.variants[key] = self.edit(file)
        self.notes = notes
        return self.variants[key]

    def refit_patches(self) -> None:
        """Pieces of text once more, after lines were wrapped."""
        for path, text in list(self.new_files.items()):
            if "Patch(" not in text or not path.startswith("tests/"):
                continue
            file = File(path, None, text)
            edits: list[Edit] = []
            for module, changes, last in patches_in(file):
                home = next((self.path_after(target) for target in self.groups if target == module), None)
                if home is None:
                    self.note("UNRESOLVED", f"{path}: a patch of {module}, which is not there")
                    continue
                source = self.new_files.get(home) or self.files[home].text
                for old, new in changes:
                    piece = str(old.value)
                    where = f"{path}:{old.lineno}"
                    if piece not in source:
                        found = list(loosely(piece).finditer(source))
                        if not found:
                            self.note("UNRESOLVED", f"{where}: {module} does not say {piece!r}")
                            break
                        piece = (found[-1] if last else found[0]).group()
                        start, end = file.span(old)
                        edits.append((start, end, literal(piece, start - file.lines[old.lineno - 1])))
                    if source.count(piece) > 1 and not last:
                        self.note(
                            "patches that change several places (look)", f"{where}: {module}: {piece!r}"
                        )
                    source = source.replace(piece, str(new.value))
            if edits:
                self.new_files[path] = apply_edits(text, edits)
                (self.root / path).write_text(self.new_files[path], "utf-8")
                tidy(self.root, [path])

    # -- writing and checking

    def write(self) -> list[str]:
        for path in sorted(self.removed):
            if path not in self.new_files:
                (self.root / path).unlink(missing_ok=True)
        for old, new in self.paths.items():
            if old in self.files or old == new:
                continue
            (self.root / new).parent.mkdir(parents=True, exist_ok=True)
            if new in self.new_files:
                (self.root / old).unlink()
            else:
                shutil.move(self.root / old, self.root / new)
        for path, text in self.new_files.items():
            place = self.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, "utf-8")
        for path in {*self.removed, *self.paths}:
            folder = (self.root / path).parent
            while folder != self.root and folder.is_dir():
                shutil.rmtree(folder / "__pycache__", ignore_errors=True)
                if any(folder.iterdir()):
                    break
                folder.rmdir()
                folder = folder.parent
        return [path for path in self.new_files if path.endswith((".py", ".pyi"))]

    def texts_after(self) -> dict[str, str]:
        """Python files of the new tree."""
        found = {
            path: file.text
            for path, file in self.files.items()
            if path not in self.removed and path not in self.new_files
        }
        found.update({path: text for path, text in self.new_files.items() if path.endswith(".py")})
        return found


def patches_in(file: File) -> Iterator[tuple[str, list[tuple[ast.Constant, ast.Constant]], bool]]:
    """Calls like `Patch("why", "module", (("old", "new"), …), also=(("module", "old", "new"), …))`."""
    constants = {
        node.targets[0].id: node.value.value
        for node in file.tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }

    def text(node: ast.expr) -> object:
        if isinstance(node, ast.Name):
            return constants.get(node.id)
        return node.value if isinstance(node, ast.Constant) else None

    def rows(node: ast.expr | None, length: int) -> list[list[ast.expr]]:
        if not isinstance(node, ast.Tuple):
            return []
        return [each.elts for each in node.elts if isinstance(each, ast.Tuple) and len(each.elts) == length]

    for call in file.calls:
        if not (isinstance(call.func, ast.Name) and call.func.id == "Patch") or len(call.args) < 2:
            continue
        named = {each.arg: each.value for each in call.keywords}
        last = isinstance(found := named.get("last"), ast.Constant) and bool(found.value)
        module = text(call.args[1])
        changes = call.args[2] if len(call.args) > 2 else named.get("changes")
        pairs = [
            (old, new)
            for old, new in rows(changes, 2)
            if isinstance(old, ast.Constant) and isinstance(new, ast.Constant)
        ]
        if isinstance(module, str) and pairs:
            yield module, pairs, last
        for name, old, new in rows(named.get("also"), 3):
            where = text(name)
            if isinstance(where, str) and isinstance(old, ast.Constant) and isinstance(new, ast.Constant):
                yield where, [(old, new)], last


def literal(text: str, indent: int) -> str:
    """A text as it stands in code: a literal for each line."""
    pieces: list[str] = []
    for line in text.splitlines(keepends=True) or [""]:
        while len(line) > 88 and " " in line[40:88]:
            cut = line.rindex(" ", 40, 88) + 1
            pieces.append(line[:cut])
            line = line[cut:]
        pieces.append(line)

    def quoted(piece: str) -> str:
        made = repr(piece)
        if made.startswith("'") and '"' not in piece:
            made = '"' + made[1:-1].replace("\\'", "'") + '"'
        return made

    return f"\n{' ' * indent}".join(quoted(piece) for piece in pieces)


def loosely(piece: str) -> re.Pattern[str]:
    """A piece of code, wherever its lines are broken."""
    bare = piece.strip()
    words = re.findall(r"\w+|[^\w\s]", bare)
    parts = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        parts.append(re.escape(word) + (r"(?:\s*,)?" if following in (")", "]", "}") and word != "," else ""))
        if word == "," and following in (")", "]", "}"):
            parts[-1] = ",?"
    start = piece[: len(piece) - len(piece.lstrip())]
    end = piece[len(piece.rstrip()) :]
    return re.compile(re.escape(start) + r"\s*".join(parts) + re.escape(end))


def check(texts: dict[str, str], known: dict[str, File]) -> dict[str, list[str]]:
    """Does everything compile, is every imported name there, does no module import itself?"""
    problems: dict[str, list[str]] = defaultdict(list)
    files: dict[str, File] = {}
    for path, text in sorted(texts.items()):
        try:
            file = known.get(path)  # type: ignore[assignment]
            if file is None or file.text != text:
                compile(text, path, "exec", dont_inherit=True)
                file = File(path, Mover.module_of(path), text)
        except SyntaxError as error:
            problems["does not compile"].append(f"{path}:{error.lineno}: {error.msg}")
            continue
        files[file.module or path] = file
    packages = {
        ".".join(parts[:count])
        for parts in (module.split(".") for module in files)
        for count in range(1, len(parts))
    }
    roots = {module.partition(".")[0] for module in files}

    def has(module: str, name: str) -> bool:
        if f"{module}.{name}" in files or f"{module}.{name}" in packages or name.startswith("__"):
            return True
        file = files.get(module)
        if file is None:
            return False
        if name in file.top.bindings or "__getattr__" in file.top.bindings:
            return True
        return any(each.name == "*" for each in file.imports)

    graph: dict[str, set[str]] = defaultdict(set)
    for module, file in files.items():
        bound: dict[tuple[Scope, str], str] = {}
        for one in file.imports:
            where = f"{file.path}:{one.statement.lineno}"
            if one.source.partition(".")[0] not in roots or one.source.startswith("."):
                continue
            if one.source == "tools" or (one.source not in files and one.source not in packages):
                if one.source.partition(".")[0] in (TOP, "tests"):
                    problems["no such module"].append(f"{where}: {one.source}")
                continue
            if not one.name:
                if one.alias:
                    bound[one.scope, one.local] = one.source
            elif one.name != "*" and not has(one.source, one.name):
                problems["no such name"].append(f"{where}: {one.source}.{one.name}")
            elif f"{one.source}.{one.name}" in files:
                bound[one.scope, one.local] = f"{one.source}.{one.name}"
            if one.scope is file.top and not one.typing:
                below = f"{one.source}.{one.name}"
                needed = below if one.name and below in files else one.source
                if needed in files and needed != module:
                    graph[module].add(needed)
        for each in file.occurrences:
            owner = each.scope.owner(each.name)
            if each.kind == "load":
                if owner is None and each.name not in BUILTINS and each.name not in DUNDERS:
                    problems["unknown name"].append(f"{file.path}:{file.line_of(each.start)}: {each.name}")
                parent = each.parents[-1] if each.parents else None
                if owner is not None and (owner, each.name) in bound and isinstance(parent, ast.Attribute):
                    home = bound[owner, each.name]
                    if (
                        parent.value is each.node
                        and isinstance(parent.ctx, ast.Load)
                        and not has(home, parent.attr)
                    ):
                        problems["no such name"].append(
                            f"{file.path}:{file.line_of(each.start)}: {home}.{parent.attr}"
                        )
    for cycle in cycles({module: graph[module] for module in files if module.startswith(TOP)}):
        problems["import cycles"].append(" -> ".join(cycle))
    return problems


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One cycle for each knot of modules."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    knots: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            knot = []
            while True:
                other = stack.pop()
                knot.append(other)
                if other == node:
                    break
            if len(knot) > 1:
                knots.append(knot)

    sys.setrecursionlimit(10_000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    found = []
    for knot in knots:
        members = set(knot)
        start = min(members)
        paths = [[start]]
        seen = {start}
        done = None
        while paths and done is None:
            path = paths.pop(0)
            for other in sorted(graph[path[-1]] & members):
                if other == start:
                    done = [*path, start]
                    break
                if other not in seen:
                    seen.add(other)
                    paths.append([*path, other])
        found.append([*(done or []), f"({len(knot)} modules in the knot)"])
    return found


def tool(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def tidy(root: Path, paths: list[str]) -> None:
    """Sort imports, drop those that became unused, wrap lines."""
    ruff = tool("ruff")
    if ruff is None or not paths:
        return
    for command in (["check", "--select", "I,F401", "--fix", "-q"], ["format", "-q"]):
        done = subprocess.run([ruff, *command, *paths], cwd=root, capture_output=True, text=True, check=False)
        if done.returncode and command[0] == "format":
            print(done.stdout, done.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="write nothing; print the same report")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--list-unlisted", action="store_true", help="list modules that no rule names")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    try:
        mover = Mover(root, read_table(options.table.read_text("utf-8")))
        mover.run()
    except TableError as error:
        print(error)
        return 2
    if options.list_unlisted:
        for module, file in sorted(mover.modules.items()):
            if file.path.startswith("src/") and module not in mover.order and file.text.strip():
                print(module)
        return 0
    before = [path for path in mover.files if path.startswith("src/")]
    if not options.dry_run:
        written = mover.write()
        tidy(root, written)
        for path in written:
            mover.new_files[path] = (root / path).read_text("utf-8")
        mover.refit_patches()
    texts = mover.texts_after()
    problems = check(texts, mover.files)
    for kind, notes in sorted(mover.notes.items()):
        print(f"\n== {kind} ({len(notes)})")
        for each in notes:
            print(f"  {each}")
    for kind, notes in sorted(problems.items()):
        print(f"\n== CHECK: {kind} ({len(notes)})")
        for each in notes:
            print(f"  {each}")
    after = [path for path in texts if path.startswith("src/")]
    print(
        f"\nfiles in src: {len(before)} before, {len(after)} after; {len(mover.new_files)} written, "
        f"{len(mover.removed)} removed"
    )
    return 1 if problems or mover.notes.get("UNRESOLVED") else 0


if __name__ == "__main__":
    sys.exit(main())
