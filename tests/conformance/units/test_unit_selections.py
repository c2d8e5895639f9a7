"""Which units a replay is about: the ledger selects what was said, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kfm.model.replays import Selection
from tests.conformance.units.scene import START_MS, Scene, id_of, taken


def _fits(row: tuple[Any, ...], said: Selection) -> bool:
    """Written once more, so that the statements do not check themselves."""
    wal_id, dataset, status, code, event_ms, created_ms, attempts = row
    start, end = said.event_time_start_ms, said.event_time_end_ms
    in_time = (start is None and end is None) or (
        event_ms is not None and (start is None or start <= event_ms) and (end is None or event_ms < end)
    )
    return (
        (not said.wal_ids or wal_id in said.wal_ids)
        and (not said.datasets or dataset in said.datasets)
        and (not said.statuses or status in said.statuses)
        and (not said.error_codes or code in said.error_codes)
        and in_time
        and (said.created_after_ms is None or created_ms >= said.created_after_ms)
        and (said.created_before_ms is None or created_ms < said.created_before_ms)
        and (said.attempts_max is None or attempts <= said.attempts_max)
    )


@pytest.mark.req("WAL-13")
def test_a_selection_means_what_it_says(scene: Scene) -> None:
    """Whatever is combined: exactly the units that fit, in order, on every database."""
    rng = random.Random(13)
    datasets, statuses = (
        ("hrrr", "gfs", "mrms"),
        ("pending", "in_progress", "succeeded", "failed", "quarantined"),
    )
    codes = ("HTTP_503", "GZIP_BOMB", 'it\'s "odd"', None)
    for number in range(60):
        name, dataset = f"n{number}", rng.choice(datasets)
        event_ms = rng.choice([None, START_MS + rng.randrange(5)])
        scene.take(taken(name, dataset=dataset, event_time_ms=event_ms))
        code = rng.choice(codes)
        quoted = "NULL" if code is None else "'" + code.replace("'", "''") + "'"
        scene.sql(
            f"UPDATE units SET status = '{rng.choice(statuses)}', last_error_code = {quoted}, "
            f"attempts = {rng.randrange(4)}, created_at_ms = {START_MS + rng.randrange(5)} "
            f"WHERE wal_id = '{id_of(name, dataset)}'"
        )
    rows = scene.sql(
        "SELECT wal_id, dataset, status, last_error_code, event_time_ms, created_at_ms, attempts FROM units"
    )
    reader = scene.store.replay_reader()

    def some(values: Any, chance: float = 0.4) -> tuple[Any, ...]:
        return tuple(value for value in values if rng.random() < 0.5) if rng.random() < chance else ()

    def moment() -> int | None:
        return START_MS + rng.randrange(6) if rng.random() < 0.3 else None

    for _ in range(150):
        said = Selection(
            datasets=some(datasets),
            statuses=some(statuses),
            error_codes=some([code for code in codes if code]),
            event_time_start_ms=moment(),
            event_time_end_ms=moment(),
            created_after_ms=moment(),
            created_before_ms=moment(),
            attempts_max=rng.choice([None, None, 0, 2]),
            wal_ids=some([row[0] for row in rows], 0.2),
        )
        wanted = sorted(row[0] for row in rows if _fits(row, said))
        assert [one.wal_id for one in reader.select(said, 100)] == wanted, said
        assert [one.wal_id for one in reader.select(said, 3)] == wanted[:3], said
