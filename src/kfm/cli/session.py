"""How a command was called, and the means that it has. No click here: `kfm status` does without."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kfm.cli import process
from kfm.cli.output import Level, encode, message
from kfm.cli.signals import masked
from kfm.model.errors import UsageError
from kfm.model.patterns import late

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.ports import Progress


_STYLE = late(r"\x1b\[[0-9;]*m")


class CommandSession(NamedTuple):
    """How one command was called."""

    config: str | None = None
    output: str = "text"
    verbose: int = 0  # how often -v was given
    quiet: bool = False
    yes: bool = False
    no_input: bool = False
    color: str = "auto"
    overrides: tuple[str, ...] = ()

    def load(self, *, bare: bool = False) -> "Loaded":
        """The configuration; `bare`: the defaults where there is none."""
        from kfm.config.loader import load

        pairs = [text.partition("=") for text in self.overrides]
        for field, equals, _ in pairs:
            if not equals or not field:
                raise UsageError(f"--set takes FIELD=VALUE, not `{field}`.")
        loaded = load(self.config, {field: value for field, _, value in pairs}, bare=bare)
        process.begin(loaded)
        return loaded

    @contextmanager
    def app(
        self, *, read_only: bool = False, progress: Any = None, role: Any = None, bare: bool = False
    ) -> Iterator[Any]:
        """The application for this configuration; closed again in any case.

        What is opened to be changed needs the role operate, unless another is named. `bare`: also where
        there is no configuration.
        """
        process.keep_data_apart()
        with masked():
            from kfm.app import open_app

        loaded = self.load(bare=bare)
        with open_app(
            loaded,
            read_only=read_only,
            progress=progress,
            upgrading=self.upgrading,
            role=role,
            what=_command(),
        ) as app:
            yield app

    def upgrading(self) -> "Progress":
        """How far a ledger of an earlier kfm is upgraded, for a person at a terminal; others have the log."""
        from kfm.cli.progress import Silent, watched

        return watched(self, noun="step") if sys.stderr.isatty() else Silent()

    def emit(self, document: Any, lines: Sequence[str], rows: Sequence[Any] | None = None) -> None:
        """The command's result. `rows` are what `jsonl` prints one by one."""
        if self.output == "text":
            text = process.clean(process.with_config("".join(f"{line}\n" for line in lines)))
            _write(text if self.colour else _STYLE.sub("", text), len(lines))
        elif self.output == "json" or rows is None:
            process.data().write(encode(process.cleaned(document), self.output))
        else:
            for row in rows:
                process.data().write(encode(process.cleaned(row), "jsonl"))

    def note(self, text: str, level: Level = "info") -> None:
        """A message beside the result."""
        if level != "info" or not self.quiet:
            message(text, level)

    def fail(self, *lines: str) -> None:
        """An error beside the result: what went wrong, then all that helps with it. --quiet shows it, too."""
        message(lines[0], "error")
        for line in lines[1:]:
            message(line)

    def inform(self) -> None:
        """This command works for long, or for others: what it logs as information is shown, too."""
        from kfm.cli.logs import choose_levels

        choose_levels(verbose=self.verbose, quiet=self.quiet, service=True)

    @property
    def colour(self) -> bool:
        from kfm.config.loader import wants_colour

        return self.output == "text" and wants_colour(self.color, process.data().isatty())

    @property
    def at_terminal(self) -> bool:
        """Is a person at an interactive terminal? Cron, CI and pipes are machines."""
        return not self.no_input and sys.stdin is not None and sys.stdin.isatty()

    @property
    def by_person(self) -> bool:
        """Does a person ask? Then what a machine has to wait for starts at once."""
        return self.at_terminal

    def confirm(self, question: str) -> bool:
        """Ask for confirmation; --yes answers, --no-input and a missing terminal make it an error."""
        if self.yes:
            return True
        if not self.at_terminal or getattr(sys.stderr, "is_json", False):
            raise UsageError(
                "This asks for confirmation, and there is no terminal to ask.", remedy="Give --yes."
            )
        import click

        process.data().flush()  # what it is about comes before the question, also through a pipe
        return click.confirm(question, err=True)


def _command() -> str:
    """What was typed, as far as it is a command's name."""
    click = sys.modules.get("click")
    context = click.get_current_context(silent=True) if click is not None else None
    return context.command_path if context is not None else "kfm status"  # the one that does without click


def _write(text: str, lines: int) -> None:
    """To stdout; through PAGER where one is set and a terminal could not show all of it."""
    if process.data().isatty():
        import shutil

        from kfm.config.loader import pager

        if pager() and lines >= shutil.get_terminal_size().lines:
            import click

            with process.data_shared():
                click.echo_via_pager(text.rstrip("\n"), color=True)
            return
    process.data().write(text)
