"""The vectors that every implementation of the gates has to satisfy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.model import gates
from kfm.model.errors import KfmError
from kfm.model.records import GATE_CODES, GateResult, Switch, ValidationReport
from kfm.model.settings import DatasetSettings, Freeze

FACTS = ("code", "cause", "remedy", "command", "until_ms")
VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "gates.json").read_text("utf-8"))


def _answer(given: dict[str, Any]) -> Any:
    call = given["call"]
    if call == "switch":
        switches = msgspec.convert(given["switches"], list[Switch])
        return gates.switch_gate(switches, given["dataset_id"], given["domain"], given["in_flight"])
    if call == "freeze":
        freezes = msgspec.convert(given["freezes"], list[Freeze])
        return gates.freeze_gate(freezes, given["dataset_id"], given["domain"], given["now_ms"])
    if call == "rights":
        return gates.rights_gate(msgspec.convert(given["dataset"], DatasetSettings))
    if call == "contract":
        return gates.contract_gate(msgspec.convert(given["report"], ValidationReport | None))
    force = msgspec.convert(given["force"], gates.ForceRequest | None)
    return gates.combine(msgspec.convert(given["results"], list[GateResult]), force)


@pytest.mark.req("UPD-9", "UPD-10", "GOV-1")
@pytest.mark.parametrize("case", VECTORS["cases"], ids=[case["name"] for case in VECTORS["cases"]])
def test_gate_vectors(case: dict[str, Any]) -> None:
    """Each vector's decision, reason included, is the one that is written down; facts may be added to it."""
    expected = case["expected"]
    if "error" in expected:
        with pytest.raises(KfmError) as raised:
            _answer(case["input"])
        assert {"error": raised.value.code, "message": raised.value.message} == expected
    else:
        answer = json.loads(msgspec.json.encode(_answer(case["input"])))
        assert {name: value for name, value in answer.items() if name not in FACTS} == expected
        if not answer["allowed"] and "gate" in answer:
            assert answer["code"] in GATE_CODES
            assert answer["cause"] in answer["reason"]
            assert answer.get("remedy", "") in answer["reason"]
            assert answer.get("command", "") in answer["reason"]


def test_the_vectors_are_many_and_have_different_names() -> None:
    """No case hides another."""
    names = [case["name"] for case in VECTORS["cases"]]
    assert len(set(names)) == len(names) >= 25
