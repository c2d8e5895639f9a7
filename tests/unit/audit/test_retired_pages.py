"""Exports after retention: the verifier, which shares no line with kfm, knows what has gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.audit.chain_export import export
from kfm.contracts.verifier import verify_audit
from kfm.model.audit import UNITS, Seal, leaf_hash, root
from kfm.model.retention import RetiredSpan, is_as_sealed
from kfm.model.settings import Settings
from kfm.storage.retention import carry_out
from kfm.system import PosixFiles, SystemClock
from tests.conformance.db.ledgers import memory_store
from tests.conformance.units.scene import Scene
from tests.conformance.units.test_retention import a_pass, deliver
from tests.conformance.units.test_unit_evidence import busy

pytestmark = pytest.mark.req("GRO-2", "GOV-2")


def exported(scene: Scene, folder: Path) -> None:
    export(scene.store, Settings(), PosixFiles(), str(folder), internal=True, units=True)


DAMAGE = (
    "",
    "UPDATE unit_pages SET worker_id = 'x' WHERE number = (SELECT MAX(number) FROM unit_pages)",
    "INSERT INTO unit_pages (number, event, status, at_ms, members, form) VALUES (1, 'x', 'y', 1, '', 1)",
    "DELETE FROM unit_pages WHERE number = (SELECT MIN(number) FROM unit_pages)",
)


@pytest.mark.parametrize("damage", DAMAGE)
def test_pages_that_have_gone_are_told_and_others_are_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """Sound, with the number of pages that have gone; one that was edited, removed or put back is found."""
    scene = Scene(memory_store(SystemClock()))
    busy(scene)
    deliver(scene.store)
    gone = carry_out(a_pass(scene.store))["unit_history"].rows
    scene.store._database.write(lambda _: scene.store._database.script(damage))  # type: ignore[attr-defined]
    exported(scene, tmp_path / "out")
    assert verify_audit.main([str(tmp_path / "out")]) == (1 if damage else 0)
    told = capsys.readouterr().out
    assert f"retired: {gone} pages of it have gone by retention" in told
    assert ("it is not what row" in told) == bool(damage)


def test_what_has_gone_and_is_there_again_is_named() -> None:
    """A row that retention took away and that was put back is told as that, by its number; also where another
    row was removed in its place, so that the numbers are right."""
    leaves = {number: leaf_hash(b"%d" % number) for number in (1, 2, 3)}
    seal = Seal(stream=UNITS, high=3, count=3, root=root(list(leaves.values())).hex(), members=((1, 3),))
    gone = [RetiredSpan(seal=9, members=((1, 2),), count=2, leaves=(leaves[1], leaves[2]))]
    assert is_as_sealed(seal, {3: leaves[3]}, gone) is None
    for present in ({2: leaves[2], 3: leaves[3]}, {2: leaves[2]}):
        assert is_as_sealed(seal, present, gone) == "2 has gone by retention, and is there again"
