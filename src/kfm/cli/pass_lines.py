"""How a pass is told: a line for each node at which something happened, and one that sums it up."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from kfm.cli.output import clipped, duration, one_line, short_id
from kfm.core.errors import Cancelled, KfmError

if TYPE_CHECKING:
    from kfm.core.records import NodeOutcome

Word = Literal[
    "ran", "partial", "failed", "unchanged", "done", "blocked", "skipped", "would run", "would fail"
]
# unchanged: its result stands, made by an earlier run; done: this very run made it before;
# blocked: something before it did not succeed; skipped: nobody asked for it.
ORDER: tuple[Word, ...] = (
    "would run",
    "would fail",
    "ran",
    "partial",
    "failed",
    "blocked",
    "done",
    "unchanged",
    "skipped",
)
COLOURS = {"ran": 32, "partial": 33, "failed": 31, "blocked": 33, "would run": 36, "would fail": 31}
FAILURES_SHOWN_MAX = 10
REASON_CHARS_MAX = 60
_WORD_CHARS = 10


def word_of(report: Any) -> Word:
    return word_for(report.outcome, ran=report.ran)


def word_for(outcome: NodeOutcome | None, *, ran: bool) -> Word:
    if outcome is None:
        return "blocked"
    if outcome == "skipped":
        return "unchanged"
    if not ran:
        return "done"
    return "ran" if outcome == "success" else outcome


def node_line(word: str, node: str, reason: str, took_ms: int | None = None, width: int = 0) -> str:
    told = f"{word.ljust(_WORD_CHARS)}  {one_line(node).ljust(width)}  {clipped(reason, REASON_CHARS_MAX)}"
    line = f"{told}  {duration(took_ms)}" if took_ms is not None else told
    return f"\x1b[{COLOURS[word]}m{line}\x1b[0m" if word in COLOURS else line


def counted_words(words: Counter[str]) -> str:
    """3 ran, 9,997 unchanged."""
    return ", ".join(f"{words[word]:,} {word}" for word in ORDER if words[word]) or "no nodes"


def summary_line(report: Any, words: Counter[str], took_ms: int) -> str:
    state = "" if report.state == "success" else f"{report.state}: "
    place = f"run {short_id(report.run_id)} on {one_line(report.branch)}"
    return f"{state}{counted_words(words)}; {place}, {duration(took_ms)}"


def failure_lines(report: Any, again: str, *, verbose: bool) -> Iterable[str]:
    """Every failed node's error and the way out; then how to go on."""
    failed = [each for each in report.nodes.values() if each.outcome == "failed" and each.error is not None]
    for each in failures(report):
        yield f"error {each.error.code}: {_said(each.error)}"
        cause = each.error.__cause__
        if cause is None or isinstance(each.error, Cancelled):
            yield f"  fix: {each.error.way_out}"
            continue
        yield f"  at: {_where(cause)}"
        if verbose:
            import traceback

            elsewhere: str | None = getattr(cause, "trace", None)
            yield from (elsewhere or "".join(traceback.format_exception(cause))).rstrip().splitlines()
        else:
            yield "  fix: Mend the function; with --verbose the traceback is printed."
    if len(failed) > FAILURES_SHOWN_MAX:
        yield f"… and {len(failed) - FAILURES_SHOWN_MAX} more: kfm graph {short_id(report.run_id)}"
    if report.state == "cancelled":
        yield "cancelled: what was finished is kept"
    elif not failed and report.error is not None:
        yield f"error {report.error.code}: {_said(report.error)}"
        yield f"fix: {report.error.way_out}"
    yield f"go on with: {again}"


def failures(report: Any) -> list[Any]:
    """Those that are told one by one."""
    failed = (each for each in report.nodes.values() if each.outcome == "failed" and each.error is not None)
    return list(islice(failed, FAILURES_SHOWN_MAX))


def _where(cause: BaseException) -> str:
    """The innermost line outside of libraries, as far as can be told; else the innermost."""
    import os
    import traceback

    told: str | None = getattr(cause, "place", None)  # it was raised in another process
    if told is not None:
        return told
    frames = traceback.extract_tb(cause.__traceback__)
    own = [each for each in frames if f"{os.sep}site-packages{os.sep}" not in each.filename]
    kernel = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    own = [each for each in own if not each.filename.startswith(kernel)] or own or list(frames)
    if not own:
        return "a place that is not known"
    last = own[-1]
    return f"{min(last.filename, os.path.relpath(last.filename), key=len)}:{last.lineno} in {last.name}"


def _said(error: KfmError) -> str:
    return "\n".join(one_line(line) for line in error.message.splitlines())


class Live:
    """Node by node, as they end. On a terminal a line on stderr says how far it is; it leaves no trace."""

    def __init__(self, show: Any, total: int, *, is_tty: bool) -> None:
        self._show = show  # writes one line of the result
        self._total = total
        self._is_tty = is_tty
        self._seen = 0
        self._drawn = False

    def node(self, report: Any) -> None:
        self._seen += 1
        self.clear()
        word = word_of(report)
        if word not in ("unchanged", "done"):
            self._show(word, report)
        if self._is_tty:
            sys.stdout.flush()
            sys.stderr.write(f"{self._seen:,} of at most {self._total:,} nodes …")
            sys.stderr.flush()
            self._drawn = True

    def say(self, node: str, line: str) -> None:
        self.clear()
        sys.stderr.write(f"{one_line(node)}: {one_line(line)}\n")

    def clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._drawn = False


# --- for programs ----------------------------------------------------------------------


def node_document(report: Any, word: str) -> dict[str, Any]:
    return {
        "node": report.id,
        "word": word,
        "outcome": report.outcome,
        "reason": report.reason,
        "inputs_hash": report.inputs_hash or None,
        "made_by": report.made_by,
        "duration_ms": report.duration_ms if report.ran else None,
        "error": report.error.as_document() if report.error else None,
    }


def pass_document(
    report: Any, words: Counter[str], took_ms: int, exit_code: int, *, with_unchanged: bool
) -> dict[str, Any]:
    return {
        "run_id": report.run_id,
        "pipeline_id": report.pipeline_id,
        "branch": report.branch,
        "state": report.state,
        "attempt": report.attempt,
        "commit": report.commit,
        "counts": {word.replace(" ", "_"): words[word] for word in ORDER if not word.startswith("would")},
        "nodes": [
            node_document(each, word)
            for each in report.nodes.values()
            if (word := word_of(each)) != "unchanged" or with_unchanged
        ],
        "error": report.error.as_document() if report.error else None,
        "duration_ms": took_ms,
        "exit_code": exit_code,
    }
