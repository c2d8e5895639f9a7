"""Findings, and the waivers that lift them: `# kfm: allow KFM103 the device answers once a second`."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import NamedTuple, Protocol

# --- findings -------------------------------------------------------------------------

# How much the code itself shows. `sure` is reported; `likely` on request.
SURE, LIKELY = "sure", "likely"


class Finding(NamedTuple):
    """One rule, broken at one place. Lines and columns count from 1, columns in characters."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    message: str
    confidence: str = SURE


class Mark(NamedTuple):
    """A finding before it has a file: the node it is about."""

    code: str
    node: Placed
    message: str
    sure: bool = True


class Placed(Protocol):
    """What has a place in a file: statements, expressions, handlers, keywords."""

    lineno: int
    col_offset: int
    end_lineno: int | None
    end_col_offset: int | None


def head(node: ast.stmt | ast.excepthandler) -> ast.AST:
    """The part of a compound statement that a reader should look at first."""
    if isinstance(node, ast.While | ast.If):
        return node.test
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter
    return node


# --- waivers --------------------------------------------------------------------------

_WAIVER = re.compile(r"#\s*kfm:\s*(?P<verb>\w+)?\s*(?P<rest>.*)$", re.IGNORECASE)
_CODES = re.compile(r"(?P<codes>KFM\d+(?:\s*,\s*KFM\d+)*)\b[\s:,;–—-]*(?P<reason>.*)$", re.IGNORECASE)
REASON_CHARS_MIN = 8  # "ok" is no reason


class Waiver(NamedTuple):
    line: int
    column: int
    end_column: int
    covers: int  # the line that it speaks about
    codes: tuple[str, ...]
    problem: str


def waivers(text: str, known: frozenset[str]) -> list[Waiver]:
    if "kfm:" not in text.lower():
        return []
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and (match := _WAIVER.match(token.string)):
                found.append(_read(token, match, known))
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass  # the parser accepted the file; what was read of the comments so far stands
    return found


def _read(token: tokenize.TokenInfo, match: re.Match[str], known: frozenset[str]) -> Waiver:
    line, column = token.start
    alone = not token.line[:column].strip()
    problem, codes = "", tuple[str, ...]()
    said = _CODES.match(match["rest"])
    if (match["verb"] or "").lower() != "allow":
        problem = "A comment to kfm begins with `kfm: allow`."
    elif said is None:
        problem = "A waiver names the rules that it lifts: `kfm: allow KFM103 reason`."
    else:
        codes = tuple(each.strip().upper() for each in said["codes"].split(","))
        unknown = [code for code in codes if code not in known]
        if unknown:
            problem = f"There is no rule {', '.join(unknown)}."
        elif len(said["reason"].strip()) < REASON_CHARS_MIN:
            problem = "A waiver gives its reason: `kfm: allow " + ", ".join(codes) + " reason`."
    return Waiver(line, column + 1, token.end[1] + 1, line + 1 if alone else line, codes, problem)


def apply(path: str, findings: list[Finding], said: list[Waiver]) -> tuple[list[Finding], list[Finding]]:
    """(what stands, what is waived). A waiver with a problem lifts nothing and is a finding itself."""
    if not said:
        return findings, []
    covers = _through_comments(said)
    used: set[tuple[int, str]] = set()
    kept, lifted = [], []
    for finding in findings:
        owner = next(
            (
                each
                for each in said
                if not each.problem and finding.code in each.codes and covers[each.line] == finding.line
            ),
            None,
        )
        if owner is None:
            kept.append(finding)
        else:
            used.add((owner.line, finding.code))
            lifted.append(finding)
    for each in said:
        unused = [code for code in each.codes if (each.line, code) not in used]
        problem = each.problem or (
            f"This waiver lifts nothing: {', '.join(unused)} is not found here." if unused else ""
        )
        if problem:
            kept.append(Finding(path, each.line, each.column, each.line, each.end_column, "KFM100", problem))
    return kept, lifted


def _through_comments(said: list[Waiver]) -> dict[int, int]:
    """Waivers on lines of their own, one under the other, all speak about the line below the last."""
    covers = {each.line: each.covers for each in said}
    for line in sorted(covers, reverse=True):
        if covers[line] != line and covers[line] in covers and covers[covers[line]] != covers[line]:
            covers[line] = covers[covers[line]]
    return covers
