"""The checker: one file in, findings out. It returns for any content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kfm_lint.celery_tasks import check_tasks
from kfm_lint.concurrency import check_growth
from kfm_lint.confidence import is_sure, is_test
from kfm_lint.effects import check_effects
from kfm_lint.findings import LIKELY, SURE, Finding, Mark, apply, waivers
from kfm_lint.index import Module, index
from kfm_lint.loop_rules import check_loops, refused
from kfm_lint.retry_libraries import check_libraries
from kfm_lint.retry_loops import retries
from kfm_lint.rules import CODES
from kfm_lint.source import Source, Unreadable, parse
from kfm_lint.swallowed_exceptions import check_swallowed

FINDINGS_PER_FILE_MAX = 1_000
# A language model answers differently each time: what failed validation may pass the next time.
_ASKS_A_MODEL = re.compile(
    r"(?i)\b(llms?|openai|anthropic|langchain\w*|litellm|instructor|gemini|gpt|prompts?)\b"
)


class Checked(NamedTuple):
    """What came of one file."""

    findings: list[Finding]
    waived: list[Finding]


def check(data: bytes, path: str = "<string>", codes: frozenset[str] = CODES, every: bool = False) -> Checked:
    """Check one file's bytes against the rules in `codes`; with `every`, also report what is only likely."""
    try:
        return check_source(parse(data, path), codes, every)
    except Unreadable as problem:
        return unreadable(path, str(problem), problem.line, problem.column, codes)
    except RecursionError:
        return unreadable(path, "nested too deeply", codes=codes)


def check_source(source: Source, codes: frozenset[str] = CODES, every: bool = False) -> Checked:
    marks = [mark for mark in _marks(index(source)) if mark.code in codes]
    if any(mark.code == "KFM106" for mark in marks) and _ASKS_A_MODEL.search(source.text):
        marks = [mark for mark in marks if mark.code != "KFM106" or "Answer " in mark.message]
    if is_test(source.path):
        marks = [mark._replace(sure=False) for mark in marks]
    # Two rules of thumb may fire at one place: what one of them is sure of is sure.
    found = {mark[:3]: mark for mark in sorted(marks, key=lambda mark: mark.sure)}
    findings = sorted(_placed(source, mark) for mark in found.values())[:FINDINGS_PER_FILE_MAX]
    # A waiver for a rule that was not asked for may be needed all the same.
    said = [each for each in waivers(source.text, CODES) if each.problem or codes.issuperset(each.codes)]
    kept, lifted = apply(source.path, findings, said)  # a waiver may be for what is only likely
    if not every:
        kept = [finding for finding in kept if finding.confidence == SURE]
        lifted = [finding for finding in lifted if finding.confidence == SURE]
    if "KFM100" not in codes:
        kept = [finding for finding in kept if finding.code != "KFM100"]
    return Checked(sorted(kept), lifted)


def _marks(module: Module) -> Iterator[Mark]:
    text = module.source.text
    if module.loops or module.tries:
        found = retries(module)
        yield from check_loops(module, found)
        for retry in found:
            if not refused(retry):
                sure = is_sure(module, retry)
                for mark in check_effects(module, retry.work, retry.function or retry.loop):
                    yield mark if sure else mark._replace(sure=False)
        yield from check_growth(module)
        yield from check_swallowed(module, found)
    elif "suppress" in text:
        yield from check_swallowed(module, [])
    yield from check_libraries(module)
    yield from check_tasks(module)


def _placed(source: Source, mark: Mark) -> Finding:
    """Columns in the tree count bytes; people and editors count characters."""
    node = mark.node
    end_line, end_byte = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    if end_line != node.lineno:  # a handler or a call over several lines: its first line is the place
        end_line, end_byte = node.lineno, len(_line(source, node.lineno).rstrip().encode("utf-8", "replace"))
    return Finding(
        source.path,
        node.lineno,
        _column(source, node.lineno, node.col_offset),
        end_line,
        max(_column(source, end_line, end_byte), _column(source, node.lineno, node.col_offset)),
        mark.code,
        mark.message,
        SURE if mark.sure else LIKELY,
    )


def _line(source: Source, number: int) -> str:
    return source.lines[number - 1] if number <= len(source.lines) else ""


def _column(source: Source, number: int, byte: int) -> int:
    line = _line(source, number)
    if line.isascii():
        return byte + 1
    return len(line.encode("utf-8", "replace")[:byte].decode("utf-8", "ignore")) + 1


def unreadable(
    path: str, problem: str, line: int = 1, column: int = 1, codes: frozenset[str] = CODES
) -> Checked:
    if "KFM109" not in codes:
        return Checked([], [])
    message = f"This file can't be checked: {problem.rstrip('.')}."
    return Checked([Finding(path, line, column, line, column, "KFM109", message)], [])
