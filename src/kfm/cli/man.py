"""`kfm man`: manual pages, generated from the same parser as --help."""

from __future__ import annotations

import os
import re

import click

from kfm import __version__
from kfm.cli.options import log_option
from kfm.model.errors import UsageError


@click.command()
@click.argument("folder")
@log_option
def command(folder: str) -> None:
    """Write a manual page for each command into FOLDER.

    Read one with `man FOLDER/kfm-run.1`.
    """
    from kfm.cli.command_line import kfm

    try:
        os.makedirs(folder, exist_ok=True)
        for path, page in pages(kfm):
            with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
                file.write(page)
            click.echo(f"{folder}/{path}")
    except OSError as error:
        raise UsageError(f"{folder} can't be written: {(error.strerror or '').lower()}.") from None


def pages(root: click.Group) -> list[tuple[str, str]]:
    """File name and text of every page, parents first."""
    found: list[tuple[str, str]] = []

    def visit(command: click.Command, name: str, parent: click.Context | None) -> None:
        ctx = click.Context(command, parent=parent, info_name=name)
        found.append((f"{ctx.command_path.replace(' ', '-')}.1", page(command, ctx)))
        if isinstance(command, click.Group):
            for child in command.list_commands(ctx):
                found_child = command.get_command(ctx, child)
                if found_child is not None and not found_child.hidden:  # older spellings
                    visit(found_child, child, ctx)

    visit(root, "kfm", None)
    return found


def page(command: click.Command, ctx: click.Context) -> str:
    title = ctx.command_path.replace(" ", "-")
    summary = command.get_short_help_str(200).rstrip(".")
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = [
        f'.TH "{title.upper()}" "1" "" "kfm {__version__}" "kfm manual"',
        ".SH NAME",
        f"{_text(title)} \\- {_text(summary)}",
        ".SH SYNOPSIS",
        f".B {_text(ctx.command_path)}",
        _text(usage),
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
    ]
    records = [record for param in command.get_params(ctx) if (record := param.get_help_record(ctx))]
    if records:
        lines.append(".SH OPTIONS")
        for names, text in records:
            lines += [".TP", f"\\fB{_text(names)}\\fP", _text(text)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if child is not None:
                lines += [
                    ".TP",
                    f"\\fB{_text(title)}\\-{_text(name)}\\fP(1)",
                    _text(child.get_short_help_str(200)),
                ]
    lines += [".SH EXIT STATUS", *_paragraphs(_EXIT)]
    return "\n".join(lines) + "\n"


_EXIT = (
    "0 done, or nothing to do; 1 the work failed, or findings; 2 bad usage or configuration; "
    "3 refused by governance or a guardrail; 4 a backend is unavailable; 5 busy; 130 cancelled."
)


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b\n"):
            lines += [".PP", ".nf", *(_text(line) for line in paragraph[2:].splitlines()), ".fi"]
        else:
            lines += [".PP", _text(" ".join(paragraph.split()))]
    return lines


def _text(text: str) -> str:
    """Text with roff's special characters escaped."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", escaped)
