"""`kfm lint`: find forbidden retry behaviour; its JSON document is the schema `cli-lint`."""

from __future__ import annotations

import sys

import click
import msgspec

from kfm.cli.options import log_option
from kfm.cli.output import FORMATS as OUTPUTS
from kfm.model.errors import UsageError
from kfm_lint.command import UsageProblem, check_paths, choose_codes, render, rule_lines
from kfm_lint.report import FORMATS


class ReportedFinding(msgspec.Struct, frozen=True):
    code: str
    name: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    confidence: str
    remedy: str
    docs: str


class LintReport(msgspec.Struct, frozen=True):
    """The result of `kfm lint`; with jsonl one of `findings` on each line"""

    findings: list[ReportedFinding]
    files: int
    waived: int
    exit_code: int


@click.command(epilog=f"\b\nRules (`kfm explain CODE` has more):\n{rule_lines()}")
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
    try:
        result = check_paths(paths, choose_codes(select, ignore), exclude, every)
    except UsageProblem as problem:
        raise UsageError(problem.message, remedy=problem.remedy) from None
    for line in render(result, chosen):
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    click.echo(result.summary, err=True)
    return result.exit_code


def _form(form: str | None, output: str | None, as_json: bool) -> str:
    forms = {form, "json" if as_json else None, {"text": "full"}.get(output or "", output)} - {None}
    if len(forms) > 1:
        raise UsageError("--format, --output and --json ask for different forms.", remedy="Give one of them.")
    return forms.pop() or "full" if forms else "full"
