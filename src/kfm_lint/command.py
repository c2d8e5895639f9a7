"""The command `kfm-lint`, and what `kfm lint` shares with it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from kfm_lint import __version__
from kfm_lint.findings import Finding
from kfm_lint.report import FORMATS, concise, document, full, github, sarif
from kfm_lint.rules import BY_CODE, CODES

CLEAN, FOUND, USAGE = 0, 1, 2  # exit codes


class UsageProblem(Exception):
    """What was asked for can't be done: exit code 2."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Result(NamedTuple):
    """What came of all files."""

    findings: list[Finding]
    waived: list[Finding]
    files: int

    @property
    def exit_code(self) -> int:
        return FOUND if self.findings else CLEAN

    @property
    def summary(self) -> str:
        noun = "finding" if len(self.findings) == 1 else "findings"
        lifted = f", {len(self.waived)} waived" if self.waived else ""
        return f"{len(self.findings)} {noun}{lifted} in {self.files} file{'' if self.files == 1 else 's'}"


def choose_codes(select: str | None, ignore: str | None) -> frozenset[str]:
    """The rules that two options leave; a beginning such as KFM10 stands for all that begin so."""
    return _codes(select, "--select", CODES) - _codes(ignore, "--ignore", frozenset())


def _codes(text: str | None, option: str, default: frozenset[str]) -> frozenset[str]:
    if text is None:
        return default
    chosen: set[str] = set()
    for asked in text.upper().replace(",", " ").split():
        matching = {code for code in CODES if code.startswith(asked)}
        if not matching or not asked.startswith("KFM"):
            raise UsageProblem(f"{option}: there is no rule {asked}.", f"Known: {', '.join(sorted(CODES))}.")
        chosen |= matching
    if not chosen:  # an empty variable of a CI job would let everything pass
        raise UsageProblem(f"{option} names no rule.", "Name rules, or leave the option out.")
    return frozenset(chosen)


def check_paths(
    paths: Sequence[str], codes: frozenset[str] = CODES, exclude: Sequence[str] = (), every: bool = False
) -> Result:
    """Check files, and the Python files below folders."""
    from kfm_lint.checker import check, unreadable
    from kfm_lint.source import python_files, read_bounded

    for path in paths:
        if not os.path.exists(path):
            raise UsageProblem(f"There is no file or folder {path}.", "Name what is to be checked.")
    findings: list[Finding] = []
    waived: list[Finding] = []
    files = 0
    for path in python_files(paths, exclude):
        files += 1
        try:
            data = read_bounded(path)
        except OSError as error:
            checked = unreadable(path, error.strerror or str(error), codes=codes)
        else:
            checked = check(data, path, codes, every)
        findings += checked.findings
        waived += checked.waived
    return Result(findings, waived, files)


def render(result: Result, form: str) -> Iterator[str]:
    """The lines of a report in one of FORMATS, or in `jsonl`: one finding on each."""
    _lines.cache_clear()  # files change between calls in one process
    if form == "sarif":
        yield _indented(sarif(result.findings, result.waived, _line_of))
    elif form == "json":
        yield _indented(document(result.findings, result.files, len(result.waived)))
    elif form == "jsonl":
        for row in document(result.findings, result.files, len(result.waived))["findings"]:
            yield json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    elif form == "full":
        yield from full(result.findings, _line_of)
    else:
        yield from {"concise": concise, "github": github}[form](result.findings)


def _indented(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _line_of(path: str, line: int) -> str:
    lines = _lines(path)
    return lines[line - 1] if line <= len(lines) else ""


@lru_cache(maxsize=8)
def _lines(path: str) -> list[str]:
    from kfm_lint.source import decode, lines_of, read_bounded

    try:
        return lines_of(decode(read_bounded(path)))
    except OSError:
        return []


def rule_lines() -> str:
    return "\n".join(f"{rule.code}  {rule.message}" for rule in BY_CODE.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """`kfm-lint`: exit code 0 without findings, 1 with findings, 2 for bad usage."""
    given = _parser().parse_args(arguments)
    try:
        if given.explain:
            sys.stdout.write(_explained(given.explain))
            return CLEAN
        if not given.paths:
            raise UsageProblem("No file or folder is named.", "kfm-lint PATH...")
        codes = choose_codes(given.select, given.ignore)
        result = check_paths(given.paths, codes, given.exclude, given.all)
    except UsageProblem as problem:
        sys.stderr.write(f"kfm-lint: {problem.message}\n  fix: {problem.remedy}\n")
        return USAGE
    try:
        for line in render(result, given.format):
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:  # `kfm-lint src | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stderr.write(f"{result.summary}\n")
    return result.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kfm-lint",
        description="Find forbidden retry behaviour in Python code. Code is read, never run.",
        epilog=f"Rules:\n{rule_lines()}\n\nA finding is lifted by a comment that gives its reason: "
        "# kfm: allow KFM103 the device answers once a second",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a file, or a folder with Python files")
    parser.add_argument("--format", choices=FORMATS, default="full", help="form of the result")
    parser.add_argument("--select", metavar="CODES", help="only these rules: KFM101,KFM102 or KFM10")
    parser.add_argument("--ignore", metavar="CODES", help="without these rules")
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="leave out files or folders"
    )
    parser.add_argument("--all", action="store_true", help="report what is only likely, too")
    parser.add_argument("--explain", metavar="CODE", help="print one rule")
    parser.add_argument("-V", "--version", action="version", version=f"kfm-lint {__version__}")
    return parser


def _explained(code: str) -> str:
    rule = BY_CODE.get(code.upper())
    if rule is None:
        raise UsageProblem(f"There is no rule {code}.", f"Known: {', '.join(sorted(CODES))}.")
    return f"{rule.code} {rule.name}: {rule.message}\n\n{rule.page}\n\nfix: {rule.remedy}\n"
