"""Options that every command understands, times in the past, the folder of a pipeline's project."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kfm.cli.output import FORMATS
from kfm.cli.process import choose_colour, keep_data_apart, name_config
from kfm.cli.session import CommandSession
from kfm.cli.signals import masked
from kfm.model.errors import ConfigNotFound, UsageError

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.pipelines.project import PipelineProject


# What people say is kept for good, in every copy of the ledger: a reason is not the place for a log.
_SAID_CHARS_MAX = {"rationale": 4000, "ticket": 200, "actor": 200}


class CommandGroup(click.Group):
    """A group whose help has the whole first sentence of each command: half of one teaches nothing."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, each.get_short_help_str(limit=1000)) for name, each in found if each and not each.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


log_option = click.option(  # read by `kfm.cli.process` before the parser sees it
    "--log-format",
    type=click.Choice(("text", "json")),
    expose_value=False,
    help="Form of messages on stderr; else KFM_LOG_FORMAT.",
)


class Finite(click.FloatRange):
    """A number in a range: neither `nan`, which is in every one, nor `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


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
    click.option("-v", "--verbose", count=True, help="Log more, on stderr; -vv: log everything."),
    click.option("-q", "--quiet", is_flag=True, help="Only warnings and errors, on stderr."),
    log_option,
    click.option("--yes", is_flag=True, help="Answer every question with yes."),
    click.option("--no-input", is_flag=True, help="Never ask; fail instead."),
    click.option(
        "--color", type=click.Choice(("auto", "always", "never")), default="auto", help="Use colour?"
    ),
    click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Override a setting."),
)


class StateChoice(click.Choice[str]):
    """One of the words that tables show; the stored value is taken as well, but not listed by help."""

    def __init__(self, words: Iterable[str], stored: Mapping[str, str]) -> None:
        """`stored`: the values that are taken, too, each with its word, which then means that value."""
        super().__init__(tuple(dict.fromkeys(map(_typed, words))))
        self._stored = {_typed(word): value for value, word in stored.items()} | {
            each: each for each in stored
        }

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The stored value; of a word that has none, the word."""
        typed = _typed(str(value))
        if typed in self._stored:
            return self._stored[typed]
        return super().convert(typed if typed in self.choices else value, param, ctx)


def _typed(word: str) -> str:
    return word.replace(" ", "-")


def session_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the common options, handed over as one `session`."""

    @functools.wraps(function)
    def wrapper(**options: Any) -> Any:
        _require_brief(options)
        _require_values()
        output = "json" if options.pop("as_json") else options.pop("output", "text")
        options.pop("output", None)
        common = {name: options.pop(name) for name in CommandSession._fields if name in options}
        name_config(common["config"])
        choose_colour(common["color"])
        _choose_levels(common["verbose"], common["quiet"])
        session = CommandSession(output=output, **common)
        wanted = click.get_current_context().find_root().params.get("server")
        if wanted:
            from kfm.cli.remote import carry_out, find_server

            return carry_out(find_server(wanted), session, options)
        return function(session=session, **options)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper


def _choose_levels(verbose: int, quiet: bool) -> None:
    if verbose and quiet:
        raise UsageError("--verbose and --quiet exclude each other.")
    from kfm.cli.logs import choose_levels

    choose_levels(verbose=verbose, quiet=quiet)


def _require_brief(options: dict[str, Any]) -> None:
    for name, limit in _SAID_CHARS_MAX.items():
        chars = len(options.get(name) or "")
        if chars > limit:
            raise UsageError(
                f"--{name} has {chars:,} characters; {limit:,} are kept.",
                remedy="Say it in short, and name the place where the rest is.",
            )
    if (options.get("rationale") or "").strip():
        from kfm.model.rationales import refuse_placeholder

        refuse_placeholder(options["rationale"])


_NUMBER_MAX = 2**53 - 1  # what JSON, SQLite and PostgreSQL all hold


def _require_values() -> None:
    """Refuse an empty text where a name is meant: an unset variable of the shell must not mean everything.
    And a number that no ledger can hold."""
    context = click.get_current_context()
    for each in context.command.params:
        name = each.name or ""
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        given = context.params.get(name)
        empty = given == "" or (isinstance(given, tuple) and "" in given)
        called = each.opts[0] if isinstance(each, click.Option) else each.human_readable_name.strip("[]")
        if empty and name not in ("rationale", "ticket") and each.default != "":
            raise UsageError(f"{called} is empty.", remedy="Give it a value, or leave it out.")
        if isinstance(given, int) and abs(given) > _NUMBER_MAX:
            raise UsageError(f"{called} is too great a number.", remedy=f"At most {_NUMBER_MAX:,} is one.")


_SPANS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN_CHARS_MAX = 9


def past_ms(text: str, option: str, now_ms: int) -> int:
    """2026-11-01T00:00:00Z, or 30m, 2h, 3d ago."""
    from kfm.model.times import parse_rfc3339

    count, unit = text[:-1], text[-1:]
    if count.isascii() and count.isdigit() and unit in _SPANS_MS and len(text) <= _SPAN_CHARS_MAX:
        return now_ms - int(count) * _SPANS_MS[unit]
    try:
        return parse_rfc3339(text)
    except UsageError:
        raise UsageError(
            f"{option} takes a time such as 2026-11-01T00:00:00Z, or 30m, 2h, 3d ago, not `{text[:40]}`."
        ) from None


def directory_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--directory",
        metavar="DIR",
        help="Work in this folder: by its kfm.yml, else with its state in DIR/.kfm. Without: by the "
        "configuration, else here.",
    )(function)


@contextmanager
def opened(
    session: CommandSession, directory: str | None, *, read_only: bool = True, moving: bool = False
) -> Iterator[PipelineProject]:
    """What the session's configuration says, if there is one; what changes something needs a role."""
    keep_data_apart()
    with masked():
        from kfm.pipelines.project import open_project

    loaded = _loaded(session, directory)
    if loaded is not None:
        from kfm.config.loader import require_role
        from kfm.system import SystemClock

        what = click.get_current_context().command_path
        require_role(loaded, "read" if read_only else "operate", what, SystemClock())
    session.inform()
    with open_project(
        directory, None, loaded=loaded, read_only=read_only, moving=moving, upgrading=session.upgrading
    ) as place:
        yield place


def _loaded(session: CommandSession, directory: str | None) -> Loaded | None:
    """The configuration; None where there is none. A folder that has one is never worked in without it."""
    if directory is not None:
        if session.config is not None:
            raise UsageError("--directory and --config exclude each other.")
        found = config_in(directory)
        if found is None:
            return None
        session = session._replace(config=found)
    try:
        return session.load()
    except ConfigNotFound:
        if session.config is not None:
            raise
        return None


def config_in(directory: str) -> str | None:
    """The configuration of a folder, if it has one."""
    from kfm.config.loader import NAMES

    paths = [os.path.join(directory, name) for name in NAMES]
    return next((path for path in paths if os.path.exists(path)), None)
