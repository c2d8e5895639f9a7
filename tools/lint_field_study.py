"""The field study of the linter: runs it over public packages, and counts what people made of the findings.

`run FOLDER PACKAGE …` fetches wheels into FOLDER, counts findings by package and rule, and writes a sample
with the code around each finding to FOLDER/sample.txt, for a person to read. It downloads, so it is no part
of CI; nothing of the packages is installed or executed. `tables` prints the tables of the documentation from
the verdicts in docs/reference/lint/field-study.tsv; with `--write` it puts them into the page.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference" / "lint"
DATA, PAGE = PAGES / "field-study.tsv", PAGES / "field-study.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
PACKAGES = "apache-airflow-core celery dlt pystac-client boto3 botocore prefect luigi".split()
PER_RULE = 30
BEFORE, AFTER = 14, 8


class Verdict(NamedTuple):
    """One finding that a person read."""

    round: str
    package: str
    version: str
    place: str
    rule: str
    verdict: str
    reason: str


def verdicts(path: Path = DATA) -> list[Verdict]:
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return [Verdict(*line.split("\t")) for line in lines]


def tables(rows: list[Verdict]) -> str:
    """By round and rule, then by package and rule, in Markdown."""
    rounds = sorted({each.round for each in rows})
    rules = sorted({each.rule for each in rows})
    lines = ["| rule | " + " | ".join(f"round {each}" for each in rounds) + " |"]
    lines.append("|---|" + "---|" * len(rounds))
    for rule in [*rules, "all"]:
        of_rule = [each for each in rows if rule in (each.rule, "all")]
        cells = [_share([each for each in of_rule if each.round == number]) for number in rounds]
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    lines += ["", "| round | package | version | read | true | precision | true of read, by rule |"]
    lines.append("|---|---|---|---|---|---|---|")
    by_package: defaultdict[tuple[str, str, str], list[Verdict]] = defaultdict(list)
    for each in rows:
        by_package[each.round, each.package, each.version].append(each)
    for (number, package, version), held in sorted(by_package.items()):
        true = sum(each.verdict == "true" for each in held)
        lines.append(
            f"| {number} | {package} | {version} | {len(held)} | {true} | {100 * true // len(held)} % |"
            f" {_by_rule(held)} |"
        )
    return "\n".join(lines)


def _share(rows: list[Verdict]) -> str:
    true = sum(each.verdict == "true" for each in rows)
    return f"{true} of {len(rows)} ({100 * true // len(rows)} %)" if rows else "none found"


def _by_rule(rows: list[Verdict]) -> str:
    read = Counter(each.rule for each in rows)
    true = Counter(each.rule for each in rows if each.verdict == "true")
    return ", ".join(f"{rule} {true[rule]}/{read[rule]}" for rule in sorted(read))


def page_with(text: str, made: str) -> str:
    """The page with its tables replaced."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}"


def fetch(folder: Path, package: str) -> tuple[str, Path]:
    """(name and version, folder with its files)"""
    wheels = folder / "wheels" / package
    if not list(wheels.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "-d", str(wheels), package], check=True)
    (wheel,) = wheels.glob("*.whl")
    target = folder / "files" / package
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    name, version = wheel.name.split("-")[:2]
    return f"{name} {version}", target


def excerpt(path: str, line: int, code: str, message: str) -> str:
    lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    first = max(line - 1 - BEFORE, 0)
    shown = [
        f"{'>' if number == line else ' '} {text}"
        for number, text in enumerate(lines[first : line + AFTER], first + 1)
    ]
    return f"=== {code} {path}:{line} {message}\n" + "\n".join(shown) + "\n"


def run(folder: Path, packages: list[str], seed: int) -> None:
    from kfm_lint.checker import check
    from kfm_lint.source import python_files

    every = []
    for package in packages:
        name, target = fetch(folder, package)
        files = list(python_files([str(target)]))
        findings = [each for path in files for each in check(Path(path).read_bytes(), path).findings]
        counts = Counter(each.code for each in findings)
        told = " ".join(f"{code}={count}" for code, count in sorted(counts.items()))
        print(f"{name}: {len(files)} files, {len(findings)} findings {told}", flush=True)
        every += findings
    chance = random.Random(seed)
    sample = []
    for code in sorted({each.code for each in every}):
        of_rule = [each for each in every if each.code == code]
        sample += chance.sample(of_rule, min(PER_RULE, len(of_rule)))
    shown = [excerpt(each.path, each.line, each.code, each.message) for each in sample]
    (folder / "sample.txt").write_text("\n".join(shown), encoding="utf-8")
    print(f"{len(sample)} of {len(every)} findings to read in {folder / 'sample.txt'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run", help="fetch packages, count findings, write a sample to read")
    runner.add_argument("folder", type=Path)
    runner.add_argument("packages", nargs="*", default=PACKAGES)
    runner.add_argument("--seed", type=int, default=0)
    counter = commands.add_parser("tables", help="print the tables of the page from the verdicts")
    counter.add_argument("--write", action="store_true", help="put them into the page")
    options = parser.parse_args()
    if options.command == "run":
        run(options.folder, options.packages, options.seed)
        return 0
    made = tables(verdicts())
    if options.write:
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    else:
        print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
