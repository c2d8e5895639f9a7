"""Runs the linter over public packages and prints what it finds: the runs behind the field study.

Not part of CI: it downloads. `python tools/lint_field_study.py FOLDER [PACKAGE …]` fetches wheels into
FOLDER, counts findings by package and rule, and writes a sample with the code around each finding to
FOLDER/sample.txt, for a person to read. Nothing of the packages is installed or executed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

from kfm.lint.checking import check
from kfm.lint.files import python_files
from kfm.lint.findings import Finding

PACKAGES = "apache-airflow-core celery dlt pystac-client boto3 botocore prefect luigi".split()
PER_RULE = 30
BEFORE, AFTER = 14, 8


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


def excerpt(finding: Finding) -> str:
    lines = Path(finding.path).read_text(encoding="utf-8", errors="replace").split("\n")
    first = max(finding.line - 1 - BEFORE, 0)
    shown = [
        f"{'>' if number == finding.line else ' '} {line}"
        for number, line in enumerate(lines[first : finding.line + AFTER], first + 1)
    ]
    return f"=== {finding.code} {finding.path}:{finding.line} {finding.message}\n" + "\n".join(shown) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    every: list[Finding] = []
    for package in options.packages:
        name, folder = fetch(options.folder, package)
        files = list(python_files([str(folder)]))
        findings = [each for path in files for each in check(Path(path).read_bytes(), path).findings]
        counts = Counter(each.code for each in findings)
        told = " ".join(f"{code}={count}" for code, count in sorted(counts.items()))
        print(f"{name}: {len(files)} files, {len(findings)} findings {told}", flush=True)
        every += findings
    chance = random.Random(options.seed)
    sample = []
    for code in sorted({each.code for each in every}):
        of_rule = [each for each in every if each.code == code]
        sample += chance.sample(of_rule, min(PER_RULE, len(of_rule)))
    (options.folder / "sample.txt").write_text("\n".join(map(excerpt, sample)), encoding="utf-8")
    print(f"{len(sample)} of {len(every)} findings to read in {options.folder / 'sample.txt'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
