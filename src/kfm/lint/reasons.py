"""Comments that say why: an error dropped with its reason in sight is a decision, not an oversight."""

from __future__ import annotations

import ast
import re

from kfm.lint.outline import Module, comments_above

WORDS_MIN = 4  # "should not happen" is a hope
# What a comment says to other tools; a reason may follow.
_DIRECTIVE = re.compile(
    r"(?i)\b(noqa(:\s*[a-z]+\d+(\s*,\s*[a-z]+\d+)*)?|pylint:\s*[\w-]+\s*=\s*[\w,-]+(\s*,\s*[\w-]+)*"
    r"|type:\s*ignore(\[[\w,-]*\])?|pragma:\s*no\s*\w+|noinspection\s+\w+(\s*,\s*\w+)*|nosec(:?\s+b\d+)?"
    r"|nosemgrep\S*|mypy:\s*\S+|lgtm\S*|codeql\S*|pyright:\s*\S+|ruff:\s*\S+|yapf:\s*\S+|skipcq\S*"
    r"|(bare|broad)-except(ion)?)"
)
_WORD = re.compile(r"[^\W\d_][\w'’]*")
_DOCUMENTED = re.compile(
    r"(?i)best[- ]?effort|silent|\bignor|never (raise|fail|break|block|let)|swallow|suppress|non-?fatal"
    r"|fail-?safe|fire[- ]and[- ]forget"
)
_BEFOREHAND = re.compile(
    r"(?i)best[- ]?effort|ignor|optional|if (we|it|you|this|possible|available|not|there)|silent"
    r"|doesn't|won't|not (fatal|critical|important)|never (fail|raise|break|block)|"
    r"(may|might|can|could) (fail|not|raise|be)|n['o]?t (care|fail|matter|break|crash|raise|block)"
    r"|(try|attempt) to|swallow|suppress|fall ?back"
    r"|whatever|harmless|reason|because|otherwise|workaround|dropped|in case|just in|clean"
)


def is_reasoned(module: Module, node: ast.stmt | ast.excepthandler, attempt: ast.stmt) -> bool:
    """Does a comment at the handler say why, or one above the attempt that it may fail?"""
    lines = module.source.lines
    last = max(node.lineno, *(each.end_lineno or 0 for each in getattr(node, "body", [node])[:1]))
    if node is attempt:  # `with suppress(…):`, whose body is the work
        last = node.lineno
    said = [line.partition("#")[2] for line in lines[node.lineno - 1 : last]]
    said += comments_above(lines, node.lineno)
    if words(" ".join(said)) >= WORDS_MIN:
        return True
    return any(_BEFOREHAND.search(line) for line in comments_above(lines, attempt.lineno))


def is_documented(function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> bool:
    """Does the function promise no more than a try?"""
    return (
        function is not None
        and _DOCUMENTED.search(ast.get_docstring(function, clean=False) or "") is not None
    )


def words(comment: str) -> int:
    return len(_WORD.findall(_DIRECTIVE.sub(" ", comment.replace("#", " "))))
