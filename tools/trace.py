"""Which test proves which requirement.

Reads docs/requirements.toml and the `@pytest.mark.req(...)` markers in tests/ (from
the source text: nothing is imported). Exit status 1 if a delivered requirement has
no test, or a marker names a requirement that is not listed.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATUSES = ("delivered", "partial")


@dataclass(frozen=True)
class Requirement:
    id: str
    text: str
    status: str


@dataclass(frozen=True)
class Proof:
    requirement: str
    test: str
    promise: str


def read_requirements(path: Path) -> list[Requirement]:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    found = [Requirement(**entry) for entry in document["requirement"]]
    ids = [requirement.id for requirement in found]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise SystemExit(f"{path}: listed twice: {', '.join(twice)}")
    if wrong := [requirement.id for requirement in found if requirement.status not in STATUSES]:
        raise SystemExit(f"{path}: status must be one of {STATUSES}: {', '.join(wrong)}")
    return found


def _named(decorators: list[ast.expr]) -> Iterator[str]:
    """The ids in `@pytest.mark.req("UPD-1", …)` decorators."""
    for decorator in decorators:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.req":
            for argument in decorator.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value
                else:
                    raise SystemExit(f"line {decorator.lineno}: a requirement must be written as text")


def _module_wide(tree: ast.Module) -> list[str]:
    """The ids in `pytestmark = pytest.mark.req(…)` or a list of such."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            ast.unparse(target) == "pytestmark" for target in node.targets
        ):
            marks = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            return list(_named(list(marks)))
    return []


def _tests(body: list[ast.stmt], inherited: list[str], prefix: str) -> Iterator[tuple[str, list[str], str]]:
    for node in body:
        if isinstance(node, ast.ClassDef):  # also a conformance suite that others inherit
            yield from _tests(
                node.body, inherited + list(_named(node.decorator_list)), f"{prefix}{node.name}::"
            )
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            promise = (ast.get_docstring(node) or "").split("\n")[0]
            yield prefix + node.name, inherited + list(_named(node.decorator_list)), promise


def collect(tests: Path) -> list[Proof]:
    proofs = []
    for path in sorted(tests.rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
            for name, ids, promise in _tests(tree.body, _module_wide(tree), ""):
                test = f"{path.relative_to(tests.parent)}::{name}"
                proofs += [Proof(requirement, test, promise) for requirement in dict.fromkeys(ids)]
        except SyntaxError as error:
            raise SystemExit(f"{path}: {error}") from None
        except SystemExit as error:
            raise SystemExit(f"{path}: {error}") from None
    return proofs


def report(requirements: list[Requirement], proofs: list[Proof], *, quiet: bool) -> list[str]:
    """Print the matrix; return what is wrong with it."""
    wrong = []
    listed = {requirement.id for requirement in requirements}
    for requirement in requirements:
        mine = [proof for proof in proofs if proof.requirement == requirement.id]
        if not quiet:
            print(f"{requirement.id}  [{requirement.status}, {len(mine)} tests]  {requirement.text}")
            for proof in mine:
                print(f"    {proof.test}" + (f"  — {proof.promise}" if proof.promise else ""))
        if requirement.status == "delivered" and not mine:
            wrong.append(f"{requirement.id} is listed as delivered but no test proves it")
    wrong += [
        f"{proof.test} names {proof.requirement}, which docs/requirements.toml does not list"
        for proof in proofs
        if proof.requirement not in listed
    ]
    return wrong


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requirements", type=Path, default=ROOT / "docs" / "requirements.toml")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    parser.add_argument("--quiet", action="store_true", help="only the summary and what is wrong")
    options = parser.parse_args(argv)
    requirements = read_requirements(options.requirements)
    proofs = collect(options.tests)
    wrong = report(requirements, proofs, quiet=options.quiet)
    proven = {proof.requirement for proof in proofs} & {requirement.id for requirement in requirements}
    print(
        f"{len(requirements)} requirements, {len(proven)} of them with tests, "
        f"{len({proof.test for proof in proofs})} tests"
    )
    for line in wrong:
        print(f"trace: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
