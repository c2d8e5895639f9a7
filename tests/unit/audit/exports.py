"""A ledger to export: public and restricted datasets, promotions, halts, retries."""

from __future__ import annotations

from pathlib import Path

from kfm.audit import anchors, chain
from kfm.audit.chain_export import export
from kfm.db.ledger import Ledger
from kfm.model.records import Unit
from kfm.model.runs import CallRetry
from kfm.model.settings import Care, DatasetSettings, Rights, Settings, SourceSettings, Sovereignty
from kfm.system import PosixFiles, SystemClock
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import START_MS, Desk, entry

KEY = "the environment's own key"
SECRET = "kaw-sites"
SETTINGS = Settings(
    environment="test",
    datasets=(
        DatasetSettings(
            id="ks-streamflow", rights=Rights(license="CC0-1.0", care=Care(label="Public · Low-Risk"))
        ),
        DatasetSettings(
            id=SECRET,
            title="Gathering places",
            rights=Rights(license="proprietary", care=Care(label="Kaw Nation", level="restricted")),
        ),
        DatasetSettings(
            id="open-but-pending",
            rights=Rights(
                license="CC0-1.0",
                care=Care(label="Public"),
                sovereignty=Sovereignty(authority="Kaw Nation", consent="pending"),
            ),
        ),
    ),
    sources=(
        SourceSettings(id="usgs-daily", dataset="ks-streamflow", kind="files"),
        SourceSettings(id="kaw-survey", dataset=SECRET, kind="files"),
    ),
)


def retry(run_id: str, number: int) -> CallRetry:
    return CallRetry(
        run_id=run_id,
        attempt=1,
        node="fetch",
        call=1,
        number=number,
        delay_ms=500 * number,
        error_class="timeout",
        retryable=True,
        outcome="retried",
        circuit_open=False,
        at_ms=START_MS + number,
    )


def some_store() -> Ledger:
    """A run that published, one that was tried again, a halt; a restricted dataset with the same."""
    made = ledgers.memory_store(SystemClock())
    made.ensure_mark("mask_key", KEY)
    desk = Desk(made)
    for dataset_id, source_id in (("ks-streamflow", "usgs-daily"), (SECRET, "kaw-survey")):
        facts = {"dataset_id": dataset_id, "source_id": source_id, "pipeline_id": source_id}
        run = desk.admit(ledgers.new_run(f"a {dataset_id}", **facts)).run
        assert run is not None
        version = ledgers.digest(f"version first {dataset_id}")
        promoted = entry("promotion", run.run_id, details={"dataset_id": dataset_id, "version_id": version})
        desk.promote(run, "first", entries=(promoted,), retries=(retry(run.run_id, 1), retry(run.run_id, 2)))
        calm = desk.admit(ledgers.new_run(f"b {dataset_id}", **facts)).run
        assert calm is not None
        desk.promote(calm, None)
        run = desk.admit(ledgers.new_run(f"c {dataset_id}", **facts)).run
        assert run is not None
        halted = {
            "attempt": 1,
            "dataset_id": dataset_id,
            "code": "KFM302",
            "reason": f"{dataset_id} must not be shown",
        }
        entries = [entry(kind, run.run_id, details=halted) for kind in ("halt", "review", "postmortem")]
        desk.fail(run, error_code="KFM302", entries=tuple(entries))
        desk.again(made.run(run.run_id))  # type: ignore[arg-type]
        desk.fail(made.run(run.run_id))  # type: ignore[arg-type]
    made.set_switch(ledgers.switch(), entry("switch", f"dataset:{SECRET}"))
    made.append_governance(
        [
            entry("switch", "all", rationale="A person wrote about the Gathering Places here."),
            entry("switch", "all", rationale="Use https://ada:hunter2hunter2@example.org/"),
            entry("gc", "test", rationale="kaw-site is no match", details={"removed": 3}),
        ]
    )
    return made


def unit(number: int, dataset: str = "hrrr") -> Unit:
    return Unit(
        wal_id=f"{number:013x}-{number:020x}",
        dataset=dataset,
        object_uri=f"s3://noaa-hrrr-bdp-pds/{number}",
        provider="aws",
        queue="imported",
        event_time_ms=None,
        time_range_start_ms=None,
        time_range_end_ms=None,
        status="pending",
        attempts=0,
        created_at_ms=START_MS,
        updated_at_ms=START_MS,
        version=1,
    )


def exported_with_units(place: Path) -> tuple[Path, Path]:
    """An export of a longer history, with pages of units of which the last are not sealed; and its anchor."""
    store = some_store()
    desk = Desk(store)
    for name in ("d", "e"):
        for dataset_id, source_id in (("ks-streamflow", "usgs-daily"), (SECRET, "kaw-survey")):
            facts = {"dataset_id": dataset_id, "source_id": source_id, "pipeline_id": source_id}
            run = desk.admit(ledgers.new_run(f"{name} {dataset_id}", **facts)).run
            assert run is not None
            details = {"dataset_id": dataset_id, "version_id": ledgers.digest(f"version {name} {dataset_id}")}
            desk.promote(run, name, entries=(entry("promotion", run.run_id, details=details),))
    store.append_governance([entry("halt-review", "a run that no details name", rationale="Looked at.")])
    for number in range(1, 6):
        store.units().bring_in([unit(number)], "ada", f"moved {number}")
    chain.seal_all(store, "ada", stream="units")
    store.units().bring_in([unit(9)], "ada", "moved")
    anchor = anchors.made(chain.verify(store), "test", START_MS)
    kept = place / "kept.jsonl"
    anchors.append(str(kept), anchor)
    export(store, SETTINGS, PosixFiles(), str(place / "export"), [anchor], units=True)
    return place / "export", kept
