"""The options that every command understands, and what they mean."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kfm.cli.output import FORMATS, encode
from kfm.core.errors import UsageError

if TYPE_CHECKING:
    from kfm.config import Loaded


class Session(NamedTuple):
    """How one command was called."""

    config: str | None = None
    output: str = "text"
    verbose: bool = False
    yes: bool = False
    no_input: bool = False
    color: str = "auto"
    overrides: tuple[str, ...] = ()

    def load(self) -> Loaded:
        from kfm.config import load

        pairs = [text.partition("=") for text in self.overrides]
        for field, equals, _ in pairs:
            if not equals or not field:
                raise UsageError(f"--set takes FIELD=VALUE, not `{field}`.")
        return load(self.config, {field: value for field, _, value in pairs})

    @contextmanager
    def app(self, *, read_only: bool = False, progress: Any = None) -> Iterator[Any]:
        """The application for this configuration; closed again in any case."""
        from kfm import wiring

        with wiring.open_app(self.load(), read_only=read_only, progress=progress) as app:
            yield app

    def emit(self, document: Any, lines: Sequence[str], rows: Sequence[Any] | None = None) -> None:
        """The command's result. `rows` are what `jsonl` prints one by one."""
        if self.output == "text":
            for line in lines:
                click.echo(line, color=self.colour)
        elif self.output == "json" or rows is None:
            sys.stdout.write(encode(document, self.output))
        else:
            for row in rows:
                sys.stdout.write(encode(row, "jsonl"))

    def note(self, text: str) -> None:
        """A message beside the result."""
        click.echo(text, err=True)

    @property
    def colour(self) -> bool:
        from kfm.config import wants_colour

        return self.output == "text" and wants_colour(self.color, sys.stdout.isatty())

    def confirm(self, question: str) -> bool:
        """Ask; --yes answers, --no-input and a missing terminal mean that nobody can be asked."""
        if self.yes:
            return True
        if self.no_input or not sys.stdin.isatty():
            raise UsageError("This asks for confirmation and nobody can be asked.", remedy="Give --yes.")
        return click.confirm(question, err=True)


_OPTIONS = (
    click.option("-c", "--config", metavar="FILE", help="Configuration; else KFM_CONFIG, else ./kfm.yml."),
    click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="text",
        help="Form of the result.",
        show_default=True,
    ),
    click.option("--json", "as_json", is_flag=True, help="Short for --output json."),
    click.option("-v", "--verbose", is_flag=True, help="Say more, on stderr."),
    click.option("--yes", is_flag=True, help="Answer every question with yes."),
    click.option("--no-input", is_flag=True, help="Never ask; fail instead."),
    click.option(
        "--color", type=click.Choice(("auto", "always", "never")), default="auto", help="Use colour?"
    ),
    click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Override a setting."),
)


def session_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the common options, handed over as one `session`."""

    @functools.wraps(function)
    def wrapper(**options: Any) -> Any:
        output = "json" if options.pop("as_json") else options.pop("output", "text")
        options.pop("output", None)
        common = {name: options.pop(name) for name in Session._fields if name in options}
        return function(session=Session(output=output, **common), **options)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper
