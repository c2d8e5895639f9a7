"""What needs someone says what is there: the command of a line is about all that the line is about."""

from __future__ import annotations

from msgspec.structs import replace

from kfm.datasets.completeness import CompletenessReader
from kfm.model.completeness import DatasetHealth, HealthCause
from kfm.model.settings import DatasetSettings, Expect, Settings, SourceSettings
from kfm.reports.needs import needs
from tests.conformance.db.ledgers import START_MS, Desk, entry, memory_store, new_run, switch
from tests.stand_ins import FakeClock

DAY_MS = 86_400_000
NAMES = ("creek", "lake", "river")
SETTINGS = Settings(
    datasets=tuple(DatasetSettings(id=name) for name in NAMES),
    sources=tuple(
        SourceSettings(
            id=f"{name}-daily",
            dataset=name,
            kind="files",
            folder="in",
            expect=Expect(since="2026-01-03", within="P1D"),
        )
        for name in NAMES
    ),
)


def test_older_holes_of_several_datasets_have_a_command_that_names_none_of_them_alone() -> None:
    """Three datasets lack older windows: the one line about them gives what lists all of their holes; of one
    dataset it is what asks for them."""
    store = memory_store(FakeClock(START_MS + 8 * DAY_MS))
    desk, now_ms = Desk(store), store.now_ms()
    for name in NAMES:
        run = new_run(
            name,
            source_id=f"{name}-daily",
            dataset_id=name,
            window_start_ms=START_MS + 6 * DAY_MS,
            window_end_ms=START_MS + 7 * DAY_MS,
        )
        desk.promote(desk.admit(run, scope=f"dataset:{name}").run, name, scope=f"dataset:{name}")

    def holes(settings: Settings) -> tuple[tuple[str, ...], str]:
        reader = CompletenessReader(
            settings, store, now_ms, schedules=tuple, is_dead=lambda _: False, latency_ms=lambda _: None
        )
        healths = [reader.health(name) for name in reader.names()]
        (one,) = [one for one in needs(settings, store, reader, now_ms, healths) if one.kind == "incomplete"]
        return one.about, one.command

    assert holes(SETTINGS) == (NAMES, "kfm coverage")
    alone = replace(SETTINGS, datasets=SETTINGS.datasets[:1], sources=SETTINGS.sources[:1])
    assert holes(alone) == (("creek",), "kfm run --missing creek --state missing")
    store.close()


def test_windows_that_wait_for_a_switch_are_told_as_those_past_their_time() -> None:
    """Others may wait for it, too: a line that counts three says which three."""
    store = memory_store(FakeClock(START_MS))
    store.set_switch(replace(switch(), scope="dataset:creek"), entry("switch"))
    cause = HealthCause(health="late", state="waiting", code="switch", windows=3)
    health = DatasetHealth(
        dataset_id="creek",
        state="late",
        causes=(cause,),
        counts={"waiting": 5},
        expected=5,
        watermark_ms=None,
        newest_ms=None,
        lag_ms=0,
    )
    reader = CompletenessReader(
        SETTINGS, store, START_MS, schedules=tuple, is_dead=lambda _: False, latency_ms=lambda _: None
    )
    (one,) = needs(SETTINGS, store, reader, START_MS, [health])
    assert (one.about, one.count, one.unit) == (("creek",), 3, "late window")
    store.close()
