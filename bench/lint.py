"""What checking a file costs, against parsing it: the linter may not make people wait for it."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from contextlib import ExitStack
from pathlib import Path

from bench.harness import Benchmark

FILES_MAX = 400
BYTES_MAX = 4 * 1024 * 1024


def _corpus(stack: ExitStack) -> list[bytes]:
    """Other people's code that is at hand: every nth file of what is installed here."""
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    folder = Path(sysconfig.get_path("purelib"))
    found = sorted(folder.rglob("*.py"))
    corpus: list[bytes] = []
    size = 0
    for path in found[:: max(1, len(found) // FILES_MAX)]:
        data = path.read_bytes()
        try:
            ast.parse(data)
        except (SyntaxError, ValueError):
            continue
        if size + len(data) <= BYTES_MAX:
            corpus.append(data)
            size += len(data)
    return corpus


def _lint(corpus: list[bytes]) -> None:
    from kfm_lint.checker import check

    for data in corpus:
        check(data)


def _parse(corpus: list[bytes]) -> None:
    for data in corpus:
        ast.parse(data)


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(name="lint", kind="cost", goal=3.0, setup=_corpus, ours=_lint, reference=_parse, rounds=5),
    ]
