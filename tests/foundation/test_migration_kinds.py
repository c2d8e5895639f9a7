"""Migrations say of themselves whether others can go on beside them, and it is looked at."""

from __future__ import annotations

import pytest

from kfm.db.queries import migration_files
from kfm.model.upgrades import declaration
from tools.check_migrations import RULES, findings, main

# Each is one way in which an expansion would break the kfm before.
BREAKS = (
    "DROP TABLE runs;",
    "ALTER TABLE runs DROP COLUMN status;",
    "ALTER TABLE runs RENAME COLUMN status TO state;",
    "ALTER TABLE runs RENAME TO works;",
    "ALTER TABLE runs ADD COLUMN more TEXT NOT NULL;",
    "ALTER TABLE runs\n  ADD COLUMN more BIGINT\n  NOT NULL; -- DEFAULT 1",
    "@postgresql ALTER TABLE runs ALTER COLUMN status SET NOT NULL;",
    "@postgresql ALTER TABLE runs ALTER COLUMN status DROP DEFAULT;",
    "@postgresql ALTER TABLE runs ALTER COLUMN status TYPE BIGINT;",
    "@postgresql ALTER TABLE runs ADD CONSTRAINT some CHECK (attempts > 0);",
    "ALTER TABLE runs ADD COLUMN more TEXT CHECK (more <> '');",
    "CREATE UNIQUE INDEX runs_once ON runs (status);",
    "@sqlite CREATE TRIGGER some BEFORE INSERT ON runs BEGIN\n@sqlite SELECT RAISE(ABORT, '');\n@sqlite END;",
    "DROP INDEX runs_by_status;",
    "@postgresql DROP FUNCTION some;",
    "UPDATE runs SET status = 'done';",
    "DELETE FROM runs;",
    "@postgresql TRUNCATE runs;",
    "@postgresql DO $$ BEGIN\n@postgresql   DROP TABLE runs;\n@postgresql END $$;",
)
FINE = """-- expand: Adds what no statement of before names.
CREATE TABLE more (id SERIAL_KEY, a TEXT NOT NULL, b BIGINT CHECK (b > 0));
CREATE UNIQUE INDEX more_once ON more (a);
INSERT INTO more (a) SELECT run_id FROM runs;
UPDATE more SET b = 1;
ALTER TABLE runs ADD COLUMN more TEXT;
ALTER TABLE runs ADD COLUMN times BIGINT NOT NULL DEFAULT 0;
CREATE INDEX runs_by_more ON runs (more);
@postgresql ALTER TABLE runs SET (fillfactor = 50);
"""


def test_every_migration_says_what_it_is() -> None:
    """From 47 on: in its first line, in a sentence that a plan can show; nothing of it contradicts that."""
    assert [line for one in migration_files() for line in findings(one)] == []
    assert main() == 0


def test_what_the_kfm_before_does_not_meet_is_fine() -> None:
    """Tables of its own, columns that may be left out, and indexes."""
    assert list(findings((99, "more", FINE))) == []


@pytest.mark.parametrize("breaking", BREAKS)
def test_an_expansion_that_would_break_its_neighbour_is_found(breaking: str) -> None:
    """Whatever an older process could stumble over; a contraction may do it."""
    found = list(findings((99, "more", f"{FINE}{breaking}\n")))
    assert len(found) in (1, 2), found  # the same for both databases, or one of them
    assert list(findings((99, "more", f"-- contract: Takes it away.\n{breaking}\n"))) == []


def test_each_rule_is_broken_by_one_of_the_samples() -> None:
    """No rule is there that finds nothing."""
    found = "\n".join(line for each in BREAKS for line in findings((99, "more", f"{FINE}{each}\n")))
    assert [rule.why for rule in RULES if rule.why not in found] == []


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ("CREATE TABLE more (a TEXT);", "its first line is neither"),
        ("-- Adds a table.", "its first line is neither"),
        ("-- expand from 48: Adds a table.", "its first line is neither"),
        ("-- expand: adds a table", "one sentence"),
        (f"-- expand: {'A' * 120}.", "one sentence"),
        ("-- contract from 100: Takes it away.", "which comes later"),
    ],
)
def test_a_first_line_that_says_nothing_is_found(first: str, found: str) -> None:
    """A plan shows it, and every start believes it."""
    assert found in "\n".join(findings((99, "more", f"{first}\n")))


def test_what_is_said_is_understood() -> None:
    """An expansion keeps no process out; a contraction those that do not know it, or the one it names."""
    assert declaration((99, "more", "-- expand: Adds it.\n")) == ("expand", 0, "Adds it.")
    assert declaration((99, "more", "-- contract: Takes it.\n")) == ("contract", 99, "Takes it.")
    assert declaration((99, "more", "-- contract from 98: Takes it.\n")) == ("contract", 98, "Takes it.")
    assert declaration((9, "more_of_it", "")) == ("undeclared", 9, "More of it.")
