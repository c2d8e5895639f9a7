"""`kfm status` on a terminal: how things are, causes first, on one screen; and again every few seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kfm.cli.output import clipped, duration, one_line, short_id, utc
from kfm.model.quantities import counted

if TYPE_CHECKING:
    from kfm.ports import Clock

LINES_MAX = 23  # of a terminal of 24, so that the prompt has one, too
WIDTH_MIN = 40
NAMES_MAX = 3
RUNNING_MAX = 3
EVERY_MS = 5_000
ALL = "kfm status --all"
CLEAR = "\x1b[H\x1b[2J"
_INDENT = " " * 12
_RED, _YELLOW, _CYAN = 31, 33, 36
_COLOURS = {
    **dict.fromkeys(("shown", "stopped", "halted", "failing", "given up"), _RED),
    **dict.fromkeys(("circuit", "late", "incomplete", "refused", "paused", "frozen", "approval"), _YELLOW),
    "running": _CYAN,
}


def brief(document: Mapping[str, Any], sentence: str, width: int = 80) -> list[str]:
    """No more lines than a terminal of 24 shows; what has no room is counted. Commands are never cut."""
    width = max(width, WIDTH_MIN)
    end = [*_running(document, width), *_also(document), _datasets(document)]
    lines = [*_first(document, sentence, width), *_environment(document, width)]
    room = LINES_MAX - _rows(lines, width) - _rows(end, width) - 2
    causes, left = _fitting([_cause(one, width) for one in document["needs"]], room, width)
    if left:
        causes.append(f"and {left} more: {ALL}")
    return [*lines, *([""] if causes else []), *causes, "", *end]


def _first(document: Mapping[str, Any], sentence: str, width: int) -> list[str]:
    """The sentence; where no cause is on the list, the blocker and its command."""
    if document["needs"]:
        return [clipped(sentence, width)]
    head = document["headline"]
    told = head["sentence"]
    first = clipped(f"{told[:1].upper()}{told[1:]}.", width)
    return [first, f"{_INDENT}{head['command']}"] if head["command"] else [first]


def _environment(document: Mapping[str, Any], width: int) -> list[str]:
    return [clipped(f"environment {document['environment']}, read {utc(document['at'])}", width)]


def _rows(lines: Sequence[str], width: int) -> int:
    """How many a terminal makes of them."""
    return sum(max(-(-len(line) // width), 1) for line in lines)


def _fitting(causes: Sequence[list[str]], room: int, width: int) -> tuple[list[str], int]:
    """The first of them, in `room` lines with the line that counts the others; and how many are left."""
    shown: list[str] = []
    for number, lines in enumerate(causes):
        is_last = number == len(causes) - 1
        if _rows([*shown, *lines], width) + (not is_last) > room and number:
            return shown, len(causes) - number
        shown += lines
    return shown, 0


def _cause(one: Mapping[str, Any], width: int) -> list[str]:
    names = ", ".join(one["about"][:NAMES_MAX])
    if len(one["about"]) > NAMES_MAX:
        names += f" and {len(one['about']) - NAMES_MAX} more"
    facts = (
        names,
        counted(one["count"], one["unit"]) if one["count"] else "",
        f"since {utc(one['since'])}" if one["since"] else "",
        f"by {one['by']}" if one["by"] else "",
    )
    what = one_line(one["what"]).rstrip(".")
    then = one_line(one["then"])
    room = width - len(_INDENT)
    if len(what) + len(then) + 2 > room:  # what becomes of it is told before all of what it is
        what = clipped(what, max(room - len(then) - 2, room // 2))
    return [
        f"{one['kind']:<{len(_INDENT)}}{clipped(' · '.join(filter(None, facts)), room)}",
        f"{_INDENT}{clipped(f'{what}; {then}', room)}",
        f"{_INDENT}{one_line(one['command'])}",
    ]


def _running(document: Mapping[str, Any], width: int) -> Iterator[str]:
    found = document["running"]
    for run in found[:RUNNING_MAX]:
        held = f"lease ends in {duration(run['lease_left_ms'])}" if run["holder"] else "no process holds it"
        told = (
            f"{run['dataset_id']} from {run['source_id']} · run {short_id(run['run_id'])} · "
            f"since {utc(run['started_at'])} · {held}"
        )
        yield f"{'running':<{len(_INDENT)}}{clipped(told, width - len(_INDENT))}"
    if len(found) > RUNNING_MAX:
        yield f"{_INDENT}and {len(found) - RUNNING_MAX} more: kfm runs --status running"


def _also(document: Mapping[str, Any]) -> Iterator[str]:
    """What is behind although no dataset is, each with its count and the command; and what waits."""
    behind = (
        ("withdrawn, and still shown", document["still_shown"], "kfm project"),
        ("promoted, and not shown yet", document["pending_projections"], "kfm project"),
        ("shown where it is not taken", document["not_taken"], ALL),
        ("stale, as inputs have changed", document["stale"], "kfm schedule run-due"),
    )
    for words, found, command in behind:
        if found:
            yield f"{counted(len(found), 'dataset')} {words}: {command}"
    if document["lineage"]["waiting"]:
        waiting = counted(document["lineage"]["waiting"], "lineage event")
        yield f"{waiting} not delivered yet: kfm lineage deliver"
    waits = sum(document["requests"]["waiting"].values())
    if waits:
        yield f"{counted(waits, 'request')} waiting: kfm requests list"


def _datasets(document: Mapping[str, Any]) -> str:
    states: dict[str, int] = {}
    for one in document["datasets"]:
        state = one["health"]["state"]
        states[state] = states.get(state, 0) + 1
    if not states:
        return "No datasets."
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items(), key=_by_count))
    return f"{counted(len(document['datasets']), 'dataset')}: {told}. All: {ALL}"


def _by_count(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


def coloured(lines: Sequence[str]) -> list[str]:
    """With the words of causes, and of what runs, in colour."""
    return [_painted(line) for line in lines]


def _painted(line: str) -> str:
    word = line[: len(_INDENT)].rstrip()
    colour = _COLOURS.get(word)
    return f"\x1b[{colour}m{word}\x1b[0m{line[len(word) :]}" if colour else line


def watch(
    read: Callable[[], Sequence[str]], write: Callable[[str], Any], clock: Clock, every_ms: int = EVERY_MS
) -> int:
    """Draw again and again, until Ctrl-C: that is how it is meant to end."""
    try:
        while True:
            lines = [*read(), f"Refreshed every {duration(every_ms)}; Ctrl-C ends it."]
            write(CLEAR + "".join(f"{line}\n" for line in lines))
            clock.sleep_ms(every_ms)
    except KeyboardInterrupt:
        return 0
