"""An old and a new version of kfm on one ledger: real processes, a real server, under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.db.queries import newest
from tests.crash.processes import WAIT_S, next_version, processes

EXPAND, CONTRACT = newest() + 1, newest() + 2
# Whoever writes units or requests afterwards is noted, by what its connection says of it.
MIGRATIONS = {
    f"{EXPAND:04}_more.sql": """\
-- expand: Adds a table, and a column that may be left out.
CREATE TABLE later_writers (name TEXT NOT NULL PRIMARY KEY);
ALTER TABLE units ADD COLUMN later TEXT;
""",
    f"{CONTRACT:04}_less.sql": """\
-- contract: Takes the column away, and notes who writes.
@sqlite ALTER TABLE units DROP COLUMN later;
@postgresql ALTER TABLE units DROP COLUMN later;
@postgresql CREATE FUNCTION note_writer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
@postgresql   INSERT INTO later_writers VALUES (current_setting('application_name')) ON CONFLICT DO NOTHING;
@postgresql   RETURN NULL;
@postgresql END $$;
@postgresql CREATE TRIGGER units_noted AFTER INSERT OR UPDATE ON units EXECUTE FUNCTION note_writer();
@postgresql CREATE TRIGGER requests_noted AFTER INSERT OR UPDATE ON requests EXECUTE FUNCTION note_writer();
""",
}


@pytest.mark.slow
@pytest.mark.req("FLT-5")
def test_the_old_goes_on_beside_what_expands_and_ends_at_what_contracts(
    tmp_path: Path, postgres_database: str
) -> None:
    """Beside a new version that has expanded the ledger, services and workers of the old one go on. What
    would stop them is planned, with who is at work, and done when asked for: then each ends by itself,
    no write of theirs lands any more, and nothing that was accepted or announced is lost or done twice."""
    later = next_version(tmp_path, MIGRATIONS)
    with processes(tmp_path / "project", postgres_database) as fleet:
        old = [fleet.service(), fleet.worker()]
        fleet.load()
        fleet.go_on(units=1, requests=1)
        new = [fleet.service(later), fleet.worker(later)]
        fleet.until(lambda: new[0].is_up, "the new service answers")
        assert fleet.book.rows("SELECT level, floor FROM schema_level") == [(EXPAND, newest())]
        fleet.go_on()
        fleet.until(lambda: all(one.said("goes on beside it") for one in old), "the old ones say so")
        assert [one.wait(0) for one in (*old, *new)] == [None] * 4

        other = fleet.of(later)
        plan = other.kfm("migrate", "--plan", "--json").document
        assert [(one["version"], one["kind"]) for one in plan["migrations"]] == [(CONTRACT, "contract")]
        assert {(one["level"], one["can_go_on"]) for one in plan["processes"]} == {
            (newest(), False),
            (CONTRACT, True),
        }
        done = other.kfm("migrate", "--digest", plan["digest"], "--stop-older", "--rationale", "it is time")
        assert done.code == 0, done.err
        assert [one.wait(WAIT_S) for one in old] == [4, 4], [list(one.lines)[-5:] for one in old]
        assert all(one.said("KFM401") for one in old)
        fleet.go_on()
        fleet.finish()
        writers = {name for (name,) in fleet.book.rows("SELECT name FROM later_writers")}
        assert writers
        assert all(f"(level {CONTRACT})" in name for name in writers - {""}), writers
        # The auditors are of the old version, and write nothing.
        fleet.book.rows(f"UPDATE schema_level SET floor = {newest()} RETURNING 1")
        assert fleet.problems() == []
