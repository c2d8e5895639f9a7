"""`kfm graph RUN`: the graph of a pass, with what became of each node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import one_line, short_id
from kfm.cli.pass_lines import COLOURS, counted_words
from kfm.cli.places import directory_option, opened
from kfm.cli.session import Session
from kfm.core.errors import UsageError
from kfm.core.wording import counted, moment
from kfm.documents.passes import cells_of, find_pass, graph_document

if TYPE_CHECKING:
    from kfm.runs.layout import Cell


@click.command()
@click.argument("run")
@click.option("--svg", metavar="FILE", help="Draw it into this file, as SVG.")
@click.option(
    "--direction",
    type=click.Choice(("right", "down")),
    default="right",
    help="Where the picture's layers go.",
    show_default=True,
)
@directory_option
@session_options
def command(session: Session, directory: str | None, run: str, svg: str | None, direction: str) -> None:
    """Draw a pass: its nodes, and what became of each.

    RUN is a pass's id, the beginning of one, or `last`. As text: layer by layer, each node after what it
    reads from (←), with a sign (+ ran, = unchanged, ! failed, - blocked, ~ partial); of more than 300 nodes
    a summary by layer and the nodes at which something happened.
    """
    with opened(session, directory) as place:
        found = find_pass(place.tables, run)
        records = {each.dataset_id: each for each in place.tables.of_run(found.run_id)}
    from kfm.runs.sketch import sketch

    cells = cells_of(found, records)
    reads = dict(found.graph)
    title = f"{found.pipeline_id}, run {short_id(found.run_id)} on {found.branch}: {found.state}"
    said = _summary(found, cells)
    if svg is not None:
        from kfm.runs.picture import picture

        direct: Any = direction
        _write(svg, picture(cells, reads, title=title, said=said, direction=direct))
    document = graph_document(found, cells, svg)
    lines = [one_line(title), one_line(said), "", *map(_coloured, sketch(cells, reads))]
    session.emit(document, [f"{svg}: {said}"] if svg is not None else lines, rows=document["nodes"])


def _summary(found: Any, cells: list[Cell]) -> str:
    from collections import Counter

    words: Counter[str] = Counter(cell.word for cell in cells)
    if found.state == "running":
        words.pop("running", None)
        left = len(cells) - words.total()
        open_nodes = f"{counted(left, 'node')} without a record"
        return f"{counted_words(words)}, {open_nodes}; since {moment(found.started_at_ms)}"
    return f"{counted_words(words)}; {moment(found.started_at_ms)}"


def _coloured(line: str) -> str:
    """By the sign at its beginning; whoever wants no colour gets none."""
    sign = line[2:3] if line.startswith("  ") else ""
    word = {"+": "ran", "!": "failed", "-": "blocked", "~": "partial"}.get(sign)
    return f"\x1b[{COLOURS[word]}m{line}\x1b[0m" if word is not None else line


def _write(path: str, text: str) -> None:
    """The file appears whole or not at all."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}.") from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
