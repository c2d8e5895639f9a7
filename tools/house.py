"""A mirror of the code's shape, with the target beside each figure: `make house`. It never fails.

Everything is read from the source text. An implementation of a protocol is a class that names it as a
base, or one that has all its members with the same parameters, inherited ones included; protocols of one
`__call__` do not count, because functions implement them. `--brief` leaves the lists out, `--untraced` the
traced commands.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import check_words
import touched

ROOT = Path(__file__).resolve().parents[1]
FOLDER_MAX = 35
LARGE_FOLDERS = {"nodd/datasets", "ingest/datasets", "cli"}  # one file per dataset, one per command group
# Layers that may repeat the name of an aggregate; everything else is a feature.
LAYERS = (
    "model", "db", "web/api", "web/console/views", "cli", "reports/explain", "reports", "config", "lineage",
    "telemetry",
)  # fmt: skip
NOUNS_IN_ING = {"string", "ring", "thing", "testing", "heading", "sibling", "masking"}  # or in the glossary
OLD_PATH = "Old import path"  # how the docstring of a module begins that only forwards


class Figure(NamedTuple):
    what: str
    value: float
    target: str
    listed: tuple[str, ...] = ()


class Class(NamedTuple):
    name: str
    module: str
    bases: tuple[str, ...]
    members: dict[str, frozenset[str] | None]  # a method has the names of its parameters


class Source(NamedTuple):
    path: str  # inside its tree
    lines: int
    tree: ast.Module


def read(folder: Path) -> list[Source]:
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Source(path.relative_to(folder).as_posix(), text.count("\n"), ast.parse(text)))
    return found


# --- names -------------------------------------------------------------------------------


def crowded(sources: Iterable[Source]) -> Iterator[str]:
    """Folders with too many modules to look through."""
    modules: dict[str, int] = defaultdict(int)
    for source in sources:
        folder, _, name = source.path.rpartition("/")
        modules[folder] += name != "__init__.py"
    for folder, count in sorted(modules.items()):
        if count > FOLDER_MAX and folder not in LARGE_FOLDERS:
            yield f"{folder or '.'}: {count} modules"


def named_twice(sources: Iterable[Source]) -> Iterator[str]:
    """Public class names that are defined at the top of two modules."""
    where: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(source.path)
    for name, paths in sorted(where.items(), key=lambda each: (-len(each[1]), each[0])):
        if len(paths) > 1:
            yield f"{name}: {', '.join(paths)}"


def _layer(path: str) -> str | None:
    return next((layer for layer in LAYERS if path.startswith(f"{layer}/")), None)


def shared_basenames(sources: Iterable[Source]) -> Iterator[str]:
    """Names of modules that two features have, or one layer has twice."""
    where: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        name = source.path.rpartition("/")[2]
        forwards = (ast.get_docstring(source.tree) or "").startswith(OLD_PATH)
        if not name.startswith("__") and not forwards:
            where[name].append(source.path)
    for name, paths in sorted(where.items(), key=lambda each: (-len(each[1]), each[0])):
        features = [path for path in paths if _layer(path) is None]
        layers = [layer for path in paths if (layer := _layer(path)) is not None]
        if len(features) > 1 or len(layers) > len(set(layers)):
            yield f"{name}: {', '.join(paths)}"


def gerunds(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        last = Path(source.path).stem.rpartition("_")[2]
        if last.endswith("ing") and last not in NOUNS_IN_ING:
            yield source.path


# --- protocols ---------------------------------------------------------------------------


def _base_name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def _members(node: ast.ClassDef) -> Iterator[tuple[str, frozenset[str] | None]]:
    """What a class defines: methods with their parameters, fields, and what its methods assign to `self`."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(part):
                if (
                    isinstance(inner, ast.Attribute)
                    and isinstance(inner.ctx, ast.Store)
                    and isinstance(inner.value, ast.Name)
                    and inner.value.id == "self"
                ):
                    yield inner.attr, None
            yield part.name, _parameters(part)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            yield part.target.id, None
        elif isinstance(part, ast.Assign):
            yield from ((target.id, None) for target in part.targets if isinstance(target, ast.Name))


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str] | None:
    """Their names; None where it takes any, or is read like a field."""
    given = function.args
    if given.vararg or given.kwarg or function.decorator_list:
        return None
    return frozenset(each.arg for each in [*given.args, *given.kwonlyargs])


def classes(sources: Iterable[Source]) -> list[Class]:
    return [
        Class(node.name, source.path, tuple(map(_base_name, node.bases)), dict(_members(node)))
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    ]


class Protocols:
    """The protocols of a tree, and which classes have what each asks for."""

    def __init__(self, source: Iterable[Source], tests: Iterable[Source]) -> None:
        self._source, self._tests = classes(source), classes(tests)
        self._by_name: dict[str, list[Class]] = defaultdict(list)
        for one in [*self._source, *self._tests]:
            self._by_name[one.name].append(one)
        self.protocols = [one for one in self._source if "Protocol" in one.bases]

    def _parents(self, one: Class, seen: set[str]) -> Iterator[Class]:
        """Its bases, as far as they are ours; of a protocol, those that are protocols."""
        for base in one.bases:
            if base not in seen:
                seen.add(base)
                for parent in self._by_name.get(base, ()):
                    if "Protocol" not in one.bases or "Protocol" in parent.bases:
                        yield parent
                        yield from self._parents(parent, seen)

    def _all_members(self, one: Class) -> dict[str, frozenset[str] | None]:
        found: dict[str, frozenset[str] | None] = {}
        for parent in self._parents(one, {one.name}):
            found = parent.members | found
        return found | one.members

    def implementations(self, protocol: Class, among: Iterable[Class]) -> list[Class]:
        asked = self._all_members(protocol)
        return [one for one in among if "Protocol" not in one.bases and self._has(one, protocol.name, asked)]

    def _has(self, one: Class, name: str, asked: dict[str, frozenset[str] | None]) -> bool:
        if name in one.bases or any(name in parent.bases for parent in self._parents(one, {one.name})):
            return True
        own = self._all_members(one)
        return asked.keys() <= own.keys() and all(
            parameters is None or (has := own[member]) is None or parameters <= has
            for member, parameters in asked.items()
        )

    def lonely(self) -> Iterator[str]:
        """Protocols with fewer than two implementations and no twin in the tests."""
        for one in sorted(self.protocols, key=lambda each: (each.module, each.name)):
            asked = self._all_members(one)
            if asked.keys() <= {"__call__"}:
                continue
            ours = self.implementations(one, self._source)
            twins = self.implementations(one, self._tests)
            if len(ours) < 2 and not twins:
                named = ", ".join(f"{each.module}:{each.name}" for each in ours) or "none"
                yield f"{one.module}:{one.name} ({len(asked)} members): {named}"


# --- imports and tests -------------------------------------------------------------------


def lazy_imports(sources: Iterable[Source], package: str = "kfm") -> int:
    """Imports of our own modules inside functions."""
    return sum(_lazy(source.tree, package, inside=False) for source in sources)


def _lazy(node: ast.AST, package: str, *, inside: bool) -> int:
    count = 0
    for child in ast.iter_child_nodes(node):
        if inside and isinstance(child, ast.ImportFrom):
            count += (child.module or "").split(".")[0] == package
        elif inside and isinstance(child, ast.Import):
            count += any(name.name.split(".")[0] == package for name in child.names)
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            count += _lazy(child, package, inside=inside or function)
    return count


def private_accesses(sources: Iterable[Source]) -> int:
    """`something._private` in tests, where something is not the object itself."""
    return sum(
        isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        for source in sources
        for node in ast.walk(source.tree)
    )


# --- the report --------------------------------------------------------------------------


def figures(root: Path) -> list[Figure]:
    source, tests = read(root / "src" / "kfm"), read(root / "tests")
    protocols = Protocols(source, tests)
    folders = tuple(crowded(source))
    twice, shared, named = tuple(named_twice(source)), tuple(shared_basenames(source)), tuple(gerunds(source))
    lonely = tuple(protocols.lonely())
    words = check_words.check(root)
    return [
        Figure("files in src/kfm", len(source), "≤ 450"),
        Figure("lines in src/kfm", sum(one.lines for one in source), "≤ 90,000"),
        Figure("lines of a file, median", statistics.median(one.lines for one in source), "about 200"),
        Figure("files above 700 lines", sum(one.lines > 700 for one in source), "few"),
        Figure(f"folders with more than {FOLDER_MAX} modules", len(folders), "0", folders),
        Figure("public class names defined twice", len(twice), "0", twice),
        Figure("file names shared between features", len(shared), "0", shared),
        Figure("modules named by a gerund", len(named), "0", named),
        Figure("protocols", len(protocols.protocols), "–"),
        Figure("protocols with < 2 implementations, no twin", len(lonely), "0", lonely),
        Figure("imports of kfm inside functions", lazy_imports(source), "at commands"),
        Figure("private attributes used by tests", private_accesses(tests), "fewer"),
        Figure("refused words", len(words), "0"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--brief", action="store_true", help="figures only")
    parser.add_argument("--untraced", action="store_true", help="run no commands")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    given = parser.parse_args(arguments)
    root = given.root.resolve()
    found = figures(root)
    if not given.untraced:
        found += [
            Figure(f"files touched: {one.scenario}", len(one.files), f"≤ {one.goal}")
            for one in touched.measure(root)
        ]
    for figure in found:
        print(f"{figure.what:52}{figure.value:>10,.0f}   target {figure.target}")
    if not given.brief:
        for figure in found:
            if figure.listed:
                print(f"\n{figure.what}:")
                print("\n".join(f"  {line}" for line in figure.listed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
