"""Plans: frozen, digested, compared before they are applied."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.contracts import require_valid
from kfm.model.errors import PlanError
from kfm.model.records import GateResult, Promotion, Window
from kfm.model.targets import ReachedTarget
from kfm.model.versions import Version
from kfm.publish import manifest as m
from kfm.runs import plan as p
from tests.unit.publish.stand_ins import DATASET, DAY_MS, asset, item

pytestmark = pytest.mark.req("UPD-7")
WINDOW = Window(start_ms=DAY_MS, end_ms=2 * DAY_MS, spec="P1D")
OLD = m.merge(None, DATASET, item(1, asset("a.csv", b"old"), asset("gone.csv", b"gone")), "merge")
NEW = m.merge(OLD, DATASET, item(1, asset("a.csv", b"newer"), asset("b.csv", b"x" * 2048)), "merge")
GATE = GateResult(gate="policy", allowed=True, reason="permitted", policy_ids=("care-1",))


SHELF = ReachedTarget(name="shelf", kind="s3", place="s3://shelf")


def promotion(version: Version, sequence: int = 4) -> Promotion:
    return Promotion(
        dataset_id=DATASET.id,
        sequence=sequence,
        version_id=version.version_id,
        run_id="r",
        fence=1,
        policy_epoch=1,
        promoted_at_ms=0,
    )


def make(version: Version = NEW, **changes: Any) -> p.RunPlan:
    facts: dict[str, Any] = {
        "base": (promotion(OLD), OLD),
        "version": version,
        "source_id": "usgs",
        "partition": None,
        "window": WINDOW,
        "fingerprint": "sha256:1",
        "output_version": "v1",
        "gates": (GATE,),
        "targets": (SHELF,),
        "kfm_version": "0.1.0",
        "made_at_ms": 1_700_000_000_000,
    }
    return p.make(**{**facts, **changes})


@pytest.mark.req("DAT-6")
def test_another_target_is_drift() -> None:
    """A target that is added, moved or gone makes it another plan, with another digest."""
    for targets in ((), (SHELF, ReachedTarget(name="b", kind="local", place="b"))):
        other = make(targets=targets)
        assert other.header.digest != make().header.digest
        (sentence,) = p.compare(make(), other)
        assert "shown by" in sentence


@pytest.mark.req("DAT-6")
def test_a_plan_of_an_earlier_version_is_read_and_binds_no_targets() -> None:
    """Its digest holds, and what it does not name is not compared."""
    old = make(targets=msgspec.UNSET)
    assert b'"targets"' not in p.write(old)
    assert p.read(p.write(old)) == old
    assert p.compare(old, make()) == []
    assert "shown by" not in p.render_text(old)


def test_a_plan_survives_being_written() -> None:
    """What is read is what was made, and each line matches the schema."""
    plan = make()
    data = p.write(plan)
    assert p.read(data) == plan
    for line in data.splitlines():
        require_valid("plan", msgspec.json.decode(line))
    assert [change.name for change in plan.changes] == ["a.csv", "b.csv", "gone.csv"]


def test_the_digest_is_over_the_outcome_not_over_the_moment() -> None:
    """Made a second later, the plan is the same plan."""
    assert make().header.digest == make(made_at_ms=1).header.digest
    assert make().header.digest != make(fingerprint="sha256:2").header.digest


@given(st.data())
def test_any_change_of_a_byte_is_noticed(data: st.DataObject) -> None:
    """A plan that was edited, cut or put in another order is refused."""
    whole = p.write(make())
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
    changed = whole[:at] + bytes([byte]) + whole[at + 1 :]
    try:
        read = p.read(changed)
    except PlanError:
        return
    # The moment is not part of the digest: it alone may differ.
    assert msgspec.structs.replace(read.header, made_at="") == msgspec.structs.replace(
        make().header, made_at=""
    )
    assert read.changes == make().changes


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"{}\n",
        b"null\n",
        b"not json\n",
        b"\xff\xfe\n",
        p.write(make())[:-1],
        p.write(make()) + b"\n",
        p.write(make()) * 2,
        b"".join(reversed(p.write(make()).splitlines(keepends=True))),
        b"".join(p.write(make()).splitlines(keepends=True)[:-1]),
    ],
)
def test_nonsense_is_refused(data: bytes) -> None:
    """A file that is no whole plan is an error of usage, whatever it holds."""
    with pytest.raises(PlanError):
        p.read(data)


def test_a_plan_without_drift_may_be_applied() -> None:
    """The same outcome, computed later and by another release, is no drift."""
    assert p.compare(make(), make(made_at_ms=5, kfm_version="0.2.0")) == []


def test_drift_is_told_in_sentences() -> None:
    """Each thing that moved is named, with the time at which the plan was made."""
    newer = m.merge(OLD, DATASET, item(1, asset("a.csv", b"newest"), asset("c.csv", b"c")), "merge")
    sentences = p.compare(make(), make(newer, fingerprint="sha256:2"))
    assert sentences == ["plan made at 2023-11-14T22:13:20Z, 3 assets changed since: a.csv, b.csv, c.csv"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base": (promotion(OLD, 5), OLD)}, "the dataset is at version 5, not 4"),
        ({"base": None}, "the dataset is at version 0, not 4"),
        ({"source_id": "noaa"}, "the source is noaa, not usgs"),
        ({"partition": "north"}, "the partition is north, not None"),
        ({"window": Window(start_ms=0, end_ms=DAY_MS, spec="P1D")}, "the window is 1970-01-01 00:00 … "),
        ({"output_version": "v2"}, "the pipeline is v2, not v1"),
        ({"fingerprint": "sha256:2"}, "the upstream fingerprint changed"),
        ({"gates": (msgspec.structs.replace(GATE, allowed=False),)}, "the gates decide otherwise"),
    ],
)
def test_every_kind_of_drift_is_found(changes: dict[str, Any], words: str) -> None:
    """Whatever the plan was computed from is compared."""
    assert any(words in sentence for sentence in p.compare(make(), make(**changes)))


def test_the_preview_can_be_read() -> None:
    """Additions, changes and removals with sizes, the totals, and the digest to compare with."""
    plan = make()
    assert p.render_text(plan).splitlines() == [
        "ks-streamflow from usgs, 1970-01-02 00:00 … 1970-01-03 00:00 UTC, on version 4",
        "  shown by shelf (s3://shelf)",
        "  ~ a.csv  3 B → 5 B",
        "  + b.csv  2.0 KiB",
        "  - gone.csv  4 B",
        "1 added, 1 changed, 1 removed, 0 unchanged; 2.0 KiB new of 2.0 KiB",
        f"plan {plan.header.digest}",
    ]


def test_the_preview_of_nothing_says_unchanged() -> None:
    """No change is a good answer and is called unchanged; a closed gate is shown."""
    closed = GateResult(gate="freeze", allowed=False, reason="year's end")
    plan = make(OLD, gates=(closed,))
    text = p.render_text(plan)
    assert plan.unchanged
    assert "unchanged: 2 files, 7 B" in text
    assert "! freeze: year's end" in text


def test_the_preview_shows_rights_and_details() -> None:
    """A change of rights or of a media type is visible though no byte changed."""
    retyped = msgspec.structs.replace(asset("a.csv", b"old"), media_type="text/csv")
    dataset = msgspec.structs.replace(
        DATASET, rights=msgspec.structs.replace(DATASET.rights, license="CC-BY-4.0")
    )  # type: ignore[type-var]
    version = m.merge(OLD, dataset, item(1, retyped, asset("gone.csv", b"gone")), "merge")
    text = p.render_text(make(version))
    assert "~ rights.license: CC0-1.0 → CC-BY-4.0" in text
    assert "~ a.csv  same bytes; media_type text/plain → media_type text/csv" in text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1024**2 - 1, "1.0 MiB"), (5 * 1024**4, "5.0 TiB")],
)
def test_sizes(size: int, text: str) -> None:
    """Sizes are in powers of 1024 and say so."""
    assert p.readable_size(size) == text
