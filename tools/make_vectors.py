"""Write `vectors/*.json`, or with --check compare them with what the code says now.

    python tools/make_vectors.py [--check] [FAMILY …]

Each file has `family`, `description` and `cases`; a case `name`, `input`, `expected` or `error`, `source`.
A case with a pin (a published value, or one worked out by hand) is never written otherwise: a disagreement
is an error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from kfm.model.errors import KfmError  # noqa: E402 - the line above makes it importable from a checkout
from tools.vector_cases import (  # noqa: E402
    auditing,
    costs,
    documents,
    expressions,
    failures,
    identity,
    machines,
    retrying,
    showing,
    signing,
    starting,
    times,
    units,
    versions,
)
from tools.vector_cases.shape import Case, Family  # noqa: E402

FOLDER = ROOT / "vectors"
FAMILIES: list[Family] = [
    family
    for module in (
        documents,
        identity,
        units,
        times,
        machines,
        retrying,
        starting,
        failures,
        signing,
        costs,
        auditing,
        expressions,
        showing,
        versions,
    )
    for family in module.FAMILIES
]
CASES_MIN = 25


def outcome(family: Family, given: dict[str, Any]) -> dict[str, Any]:
    """`{"expected": …}` or `{"error": code}`."""
    try:
        return {"expected": family.evaluate(given)}
    except KfmError as error:
        return {"error": error.code}


def rendered(family: Family) -> str:
    """The text of a family's file."""
    names = [case.name for case in family.cases]
    if len(set(names)) != len(names) or len(names) < CASES_MIN:
        raise SystemExit(f"{family.name}: names must be unique, and at least {CASES_MIN}.")
    lines = ",\n".join("    " + json.dumps(_row(family, case), ensure_ascii=True) for case in family.cases)
    head = json.dumps({"family": family.name, "description": family.description}, indent=2, ensure_ascii=True)
    return head[:-2] + ',\n  "cases": [\n' + lines + "\n  ]\n}\n"


def _row(family: Family, case: Case) -> dict[str, Any]:
    got = outcome(family, case.input)
    if case.pin is not None:
        pin = (
            case.pin if isinstance(case.pin, dict) and set(case.pin) == {"error"} else {"expected": case.pin}
        )
        if got != pin:
            raise SystemExit(f"{family.name}, {case.name!r}: {got} instead of {pin} ({case.source}).")
    return {"name": case.name, "input": case.input, **got, "source": case.source}


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    wanted = [argument for argument in arguments if not argument.startswith("-")]
    differing = 0
    for family in FAMILIES:
        if wanted and family.name not in wanted:
            continue
        path, text = FOLDER / f"{family.name}.json", rendered(family)
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(
                f"{path.relative_to(ROOT)} differs from the code: run tools/make_vectors.py", file=sys.stderr
            )
            differing += 1
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
