"""`kfm migrate`: what a ledger lacks, who is at work in it, and bringing it up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import migrate, migration_files
from kfm.model.errors import OlderAtWork
from kfm.model.records import Justification
from kfm.storage import upgrade
from tests import upgrading
from tests.acceptance.cli.conftest import Called

pytestmark = pytest.mark.req("FLT-2")

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
KNOWN = migration_files()
LEVEL = KNOWN[-1][0]
MORE = (LEVEL + 1, "more", "-- expand: Adds a column.\nALTER TABLE runs ADD COLUMN more TEXT;")
LESS = (LEVEL + 2, "less", "-- contract: Takes it away.\nALTER TABLE runs DROP COLUMN more;")
BY = Justification(actor="ada", rationale="all are gone")


def test_a_ledger_of_before_is_planned_and_brought_up(kfm: Kfm, project: Path, valid: Valid) -> None:
    """The plan changes nothing, and names each migration and the rows that it touches; its digest binds the
    upgrade to it; the audit log has who did it."""
    path = project / ".kfm" / "kfm.db"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with closing(upgrading.opened(str(path))) as database:
        migrate(database, "sqlite", 1, KNOWN[: upgrading.EARLIER])
    planned = kfm("migrate", "--plan", "--json")
    assert planned.code == 0, planned.err
    valid("migrate", planned.document)
    missing = [version for version, _, _ in KNOWN[upgrading.EARLIER :]]
    assert [one["version"] for one in planned.document["migrations"]] == missing
    assert planned.document["level"] == upgrading.EARLIER
    assert {"table": "locks", "rows": 1, "bytes": None} in [
        table for one in planned.document["migrations"] for table in one["tables"]
    ]
    assert kfm("migrate", "--plan", "--json").document == planned.document
    text = kfm("migrate", "--plan")
    assert "47 contract: Keeps in the ledger which kfm may write to it" in text.out
    refused = kfm("migrate", "--digest", "sha256:" + "0" * 64)
    assert refused.code == 3
    done = kfm("migrate", "--digest", planned.document["digest"], "--json")
    assert done.code == 0, done.err
    valid("migrate", done.document)
    assert done.document["applied"] == missing
    again = kfm("migrate", "--json")
    assert again.document["applied"] == []
    entries = kfm("audit", "list", "--json").document["entries"]
    assert [(one["kind"], one["details"]["to"]) for one in entries if one["kind"] == "migrate"] == [
        ("migrate", LEVEL)
    ]


def test_who_stops_others_says_why(kfm: Kfm, project: Path) -> None:
    """And a plan stops no process."""
    assert "--rationale" in kfm("migrate", "--stop-older").err
    assert kfm("migrate", "--plan", "--stop-older", "--rationale", "x").code == 2
    assert kfm("migrate", "--plan").code == 2  # there is no ledger, and none is made
    assert not (project / ".kfm" / "kfm.db").exists()


def _planned(database: PostgresDatabase, *more: upgrade.Migration) -> upgrade.UpgradePlan:
    return upgrade.plan("here", database, (*KNOWN, *more))


def test_older_processes_are_seen_and_kept(postgres_database: str) -> None:
    """Each connection says what its kfm knows. Beside what expands it may go on; what would stop it is
    refused, unless that is asked for; one that could not notice is never overrun."""
    with closing(PostgresDatabase(postgres_database)) as ours, closing(PostgresDatabase(postgres_database)):
        migrate(ours, "postgresql", 1)
        assert upgrade.plan("here", ours).migrations == ()
        expanding, contracting = _planned(ours, MORE), _planned(ours, MORE, LESS)
        assert [one.level for one in expanding.processes or ()] == [LEVEL]
        assert [table.table for one in contracting.migrations for table in one.tables] == ["runs", "runs"]
        assert expanding.older == []
        upgrade.require_free(expanding, stop_older=False)
        assert [one.connections for one in contracting.older] == [1]
        with pytest.raises(OlderAtWork, match="1 connection of an older kfm"):
            upgrade.require_free(contracting, stop_older=False)
        upgrade.require_free(contracting, stop_older=True)
        with psycopg.connect(postgres_database, application_name="kfm"):
            with pytest.raises(OlderAtWork, match="go on writing") as refused:
                upgrade.require_free(_planned(ours, MORE, LESS), stop_older=True)
            upgrade.require_free(_planned(ours, MORE), stop_older=False)
        assert "End them" in refused.value.way_out
