"""What a sender is shown of a preview."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kfm.model.errors import GateDenied
from kfm.model.settings import Care, DatasetSettings, Rights
from kfm.runs.kernel import RunReport
from kfm.web.previews import CHANGES_MAX, preview_document

pytestmark = pytest.mark.req("TRG-4")


def report(changes: int, **more: Any) -> RunReport:
    header = SimpleNamespace(
        digest="sha256:00", base_sequence=3, version_id="sha256:11", tally={"added": changes}
    )
    plan = SimpleNamespace(
        header=header, unchanged=False, changes=tuple({"name": f"burial-{n}.csv"} for n in range(changes))
    )
    given: dict[str, Any] = {
        "outcome": "planned",
        "word": "planned",
        "source_id": "s",
        "dataset_id": "d",
        "window_start_ms": 0,
        "window_end_ms": 86_400_000,
        "invocation_id": None,
        "reason": "new",
        "plan": plan,
        **more,
    }
    return RunReport(**given)


def dataset(level: Any) -> DatasetSettings:
    return DatasetSettings(id="d", rights=Rights(license="CC0-1.0", care=Care(label="x", level=level)))


def test_public_changes_are_named_up_to_a_number() -> None:
    """What is left out is counted."""
    shown = preview_document(report(CHANGES_MAX + 7), dataset("public"))["plan"]
    assert len(shown["changes"]) == CHANGES_MAX
    assert shown["changes_left_out"] == 7
    assert shown["digest"] == "sha256:00"


def test_names_of_other_data_stay_here() -> None:
    """A caller who may ask for an update need not know what is in it."""
    shown = preview_document(report(2), dataset("review"))
    assert "burial" not in str(shown)
    assert shown["plan"]["changes_left_out"] == 2


@pytest.mark.req("RS-13")
@pytest.mark.parametrize("level", ["restricted", "blocked", None])
def test_of_a_masked_dataset_only_the_outcome_is_told(level: Any) -> None:
    """The secret of a source is no right to know its dataset, its rights, or why a gate refused."""
    declared = DatasetSettings(id="d") if level is None else dataset(level)
    assert preview_document(report(2), declared) == {
        "dry_run": True,
        "outcome": "planned",
        "source_id": "s",
        "error": None,
    }
    error = GateDenied("The council of the Osage has not yet given its consent.")
    refused = report(0, outcome="refused", plan=None, error=error, reason=str(error))
    assert preview_document(refused, declared) == {
        "dry_run": True,
        "outcome": "refused",
        "source_id": "s",
        "error": {"code": "KFM301"},
    }


def test_a_refusal_is_told_with_its_way_out() -> None:
    """No plan, but the reason and what would lift it."""
    error = GateDenied("The rule says no.")
    shown = preview_document(report(0, outcome="refused", plan=None, error=error), dataset("public"))
    assert shown["plan"] is None
    assert (shown["error"]["code"], shown["outcome"]) == ("KFM301", "refused")
