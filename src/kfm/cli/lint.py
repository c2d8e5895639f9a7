"""`kfm lint`: forbidden retry behaviour in Python code. Needs no project and no configuration."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

import click

from kfm.cli.options import log_option
from kfm.cli.output import FORMATS as OUTPUTS
from kfm.lint.formats import FORMATS
from kfm.lint.rules import BY_CODE, CODES
from kfm.model.errors import UsageError

if TYPE_CHECKING:
    from kfm.lint.findings import Finding

_RULES = "\n".join(f"{rule.code}  {rule.message}" for rule in BY_CODE.values())


@click.command(epilog=f"\b\nRules (`kfm explain CODE` tells more):\n{_RULES}")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Form of the result.  [default: full]")
@click.option("-o", "--output", type=click.Choice(OUTPUTS), help="As in other commands; text is full.")
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option(
    "--select", metavar="CODES", help="Only these rules: KFM101,KFM102, or KFM10 for all that begin so."
)
@click.option("--ignore", metavar="CODES", help="Without these rules.")
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Leave out files or folders: *_pb2.py, vendor."
)
@click.option(
    "--all", "every", is_flag=True, help="Tell what is only likely, too. It counts for the exit code."
)
@log_option
def command(
    paths: tuple[str, ...],
    form: str | None,
    output: str | None,
    as_json: bool,
    select: str | None,
    ignore: str | None,
    exclude: tuple[str, ...],
    every: bool,
) -> int:
    """Find forbidden retry behaviour in Python code.

    PATH is a file, or a folder with Python files in it and below; environments, builds and hidden caches are
    left out. Code is read, never run. A finding is lifted by a comment that gives its reason, on its line
    or alone on the line above: `# kfm: allow KFM103 the device answers once a second`. Reported is what the
    code shows beyond doubt; with --all also what is only likely, and marked so. Exit code 1 if anything is
    reported, 2 if a path is not there.
    """
    chosen = _form(form, output, as_json)
    codes = _codes(select, "--select", CODES) - _codes(ignore, "--ignore", frozenset())
    for path in paths:
        if not os.path.exists(path):
            raise UsageError(f"There is no file or folder {path}.", remedy="Name what is to be checked.")
    findings, waived, files = _checked(paths, codes, exclude, every)
    _tell(chosen, findings, waived, files)
    return 1 if findings else 0


def _form(form: str | None, output: str | None, as_json: bool) -> str:
    wishes = {form, "json" if as_json else None, {"text": "full"}.get(output or "", output)} - {None}
    if len(wishes) > 1:
        raise UsageError("--format, --output and --json ask for different forms.", remedy="Give one of them.")
    return wishes.pop() or "full" if wishes else "full"


def _codes(text: str | None, option: str, default: frozenset[str]) -> frozenset[str]:
    if text is None:
        return default
    chosen: set[str] = set()
    for wish in text.upper().replace(",", " ").split():
        matching = {code for code in CODES if code.startswith(wish)}
        if not matching or not wish.startswith("KFM"):
            raise UsageError(
                f"{option}: there is no rule {wish}.", remedy=f"Known: {', '.join(sorted(CODES))}."
            )
        chosen |= matching
    if not chosen:  # an empty variable of a CI job would let everything pass
        raise UsageError(f"{option} names no rule.", remedy="Name rules, or leave the option out.")
    return frozenset(chosen)


def _checked(
    paths: tuple[str, ...], codes: frozenset[str], exclude: tuple[str, ...], every: bool
) -> tuple[list[Finding], list[Finding], int]:
    from kfm.lint.checking import check, unreadable
    from kfm.lint.files import python_files, read_bounded

    findings: list[Finding] = []
    waived: list[Finding] = []
    files = 0
    for path in python_files(paths, exclude):
        files += 1
        try:
            data = read_bounded(path)
        except OSError as error:
            checked = unreadable(path, error.strerror or str(error), codes=codes)
        else:
            checked = check(data, path, codes, every)
        findings += checked.findings
        waived += checked.waived
    return findings, waived, files


def _tell(form: str, findings: list[Finding], waived: list[Finding], files: int) -> None:
    from kfm.cli.output import encode
    from kfm.lint import formats

    _lines.cache_clear()  # files change between calls in one process
    if form == "sarif":
        sys.stdout.write(encode(formats.sarif(findings, waived, _line_of), "json"))
    elif form in ("json", "jsonl"):
        document = formats.document(findings, files, len(waived))
        for each in [document] if form == "json" else document["findings"]:
            sys.stdout.write(encode(each, form))
    else:
        lines = {
            "full": lambda: formats.full(findings, _line_of),
            "concise": lambda: formats.concise(findings),
            "github": lambda: formats.github(findings),
        }[form]()
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    noun = "finding" if len(findings) == 1 else "findings"
    lifted = f", {len(waived)} waived" if waived else ""
    checked = f"{files} file{'' if files == 1 else 's'}"
    sys.stdout.flush()
    click.echo(f"{len(findings)} {noun}{lifted} in {checked}", err=True)


def _line_of(path: str, line: int) -> str:
    lines = _lines(path)
    return lines[line - 1] if line <= len(lines) else ""


@lru_cache(maxsize=8)
def _lines(path: str) -> list[str]:
    from kfm.lint.files import read_bounded
    from kfm.lint.reading import decode, lines_of

    try:
        return lines_of(decode(read_bounded(path)))
    except OSError:
        return []
