"""The shared vectors: what every implementation of the kernel must answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tools.make_vectors import CASES_MIN, FAMILIES, FOLDER, main, outcome

BY_NAME = {family.name: family for family in FAMILIES}


def _cases() -> Iterator[Any]:
    for name in BY_NAME:
        for case in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["cases"]:
            yield pytest.param(name, case, id=f"{name}: {case['name']}")


@pytest.mark.req(
    "TRG-1", "TRG-2", "RS-6", "UPD-3", "UPD-12", "WAL-2", "WAL-3", "RET-1", "RET-3", "RET-5", "RET-7"
)
@pytest.mark.parametrize(("family", "case"), list(_cases()))
def test_case_of_a_vector(family: str, case: dict[str, Any]) -> None:
    """The stored answer is the answer."""
    got = outcome(BY_NAME[family], case["input"])
    assert got == {key: case[key] for key in ("expected", "error") if key in case}


@pytest.mark.parametrize("name", BY_NAME)
def test_file_of_a_family(name: str) -> None:
    """A file names its family, and has enough cases, each with a source and exactly one outcome."""
    document = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert document["family"] == name
    assert len(document["cases"]) >= CASES_MIN
    assert all(case["source"] and ("expected" in case) != ("error" in case) for case in document["cases"])


def test_files_are_what_the_generator_writes() -> None:
    """No vector was edited by hand."""
    assert main(["--check"]) == 0
