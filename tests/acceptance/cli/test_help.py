"""The help of every group: what is shown before a command is chosen."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kfm.cli.command_line import COMMANDS, HEADINGS, kfm


def groups(group: click.Group, name: str) -> Iterator[tuple[str, click.Group]]:
    yield name, group
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        if isinstance(command, click.Group):
            yield from groups(command, f"{name} {word}")


def test_no_line_of_help_breaks_off() -> None:
    """The help of every group has whole sentences, however long they are."""
    found = dict(groups(kfm, "kfm"))
    assert {"kfm incident", "kfm nodd dead"} < found.keys()
    for name, group in found.items():
        text = group.get_help(click.Context(group, info_name=name))
        assert not [
            line for line in text.splitlines() if line.endswith("...") and not line.startswith("Usage:")
        ], name


def test_every_command_is_under_one_heading() -> None:
    """A newcomer finds each command once, where it belongs, in lines of 80 columns."""
    assert sorted(name for names in HEADINGS.values() for name in names) == sorted(COMMANDS)
    text = kfm.get_help(click.Context(kfm, info_name="kfm", terminal_width=80))
    lines = text.splitlines()
    assert [line[:-1] for line in lines if line.endswith(":") and line[:-1] in HEADINGS] == list(HEADINGS)
    for name, (_, told) in COMMANDS.items():
        assert sum(line.split() == [name, *told.split()] for line in lines) == 1, name
    assert max(map(len, lines)) <= 80
