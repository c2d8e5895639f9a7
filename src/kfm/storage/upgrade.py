"""Upgrades of a ledger: the plan that a person reads first, who is at work meanwhile, and carrying it out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm.db import governance
from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import (
    applied,
    check,
    checksum,
    floor_of,
    in_dialect,
    migrate,
    migration_files,
    statements,
)
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import OlderAtWork, PlanDrifted
from kfm.model.quantities import counted
from kfm.model.records import Justification, Record, governance_entry
from kfm.model.upgrades import LEVELS, Migration, declaration

if TYPE_CHECKING:
    from kfm.db.queries import Dialect
    from kfm.db.sqlite import SqliteDatabase
    from kfm.ports import Progress

    AnyDatabase = PostgresDatabase | SqliteDatabase

KIND = "migrate"
_TOUCHED = re.compile(
    r"\b(?:ALTER TABLE|UPDATE|INSERT INTO|DELETE FROM|DROP TABLE|ON)\s+(?:IF EXISTS\s+|ONLY\s+)?([a-z_]+)\b"
)
_NAMED = re.compile(r"kfm \S+ \(level (\d+)\)")


class TouchedTable(Record, frozen=True):
    """A table that a migration changes, or reads for an index; on a server the rows are its own estimate."""

    table: str
    rows: int
    bytes: int | None = None


class PlannedMigration(Record, frozen=True):
    """One migration that the ledger lacks."""

    version: int
    name: str
    kind: str  # expand | contract
    does: str
    floor: int  # the newest migration that a process must know from then on; 0: as before
    tables: tuple[TouchedTable, ...] = ()


class SeenProcess(Record, frozen=True):
    """Connections of one version of kfm from one address."""

    name: str
    address: str | None
    connections: int
    since_ms: int
    level: int | None  # the newest migration that it knows; None: from before it said so


class UpgradePlan(Record, frozen=True):
    """What would be done, and beside whom. The digest is of what would be done."""

    place: str
    level: int
    floor: int | None
    newest: int
    migrations: tuple[PlannedMigration, ...]
    processes: tuple[SeenProcess, ...] | None  # None: this database does not tell
    digest: str

    @property
    def floor_after(self) -> int:
        return max((one.floor for one in self.migrations), default=self.floor or 0)

    @property
    def older(self) -> list[SeenProcess]:
        """Those that could not go on. One that says no level is older than any."""
        return [one for one in self.processes or () if (one.level or 0) < self.floor_after]


def plan(place: str, database: AnyDatabase, known: Sequence[Migration] | None = None) -> UpgradePlan:
    """What `carry_out` would do now. Refuses a ledger that this kfm does not understand."""
    known = migration_files() if known is None else known
    dialect = _dialect(database)
    done = applied(database.session)
    check(done, known, floor := floor_of(database.session, done))
    missing = [one for one in known if one[0] not in done]
    names = sorted({name for one in missing for name in _touched(one, dialect)}) if done else []
    sizes = {one.table: one for one in _sizes(database, names)}
    planned = tuple(
        PlannedMigration(
            version=one[0],
            name=one[1],
            kind="expand" if (said := declaration(one)).kind == "expand" else "contract",
            does=said.does,
            floor=max(said.floor, LEVELS) if said.floor else 0,
            tables=tuple(sizes[name] for name in _touched(one, dialect) if name in sizes),
        )
        for one in missing
    )
    lacks = {str(version): checksum(text) for version, _, text in missing}
    return UpgradePlan(
        place=place,
        level=max(done, default=0),
        floor=floor,
        newest=known[-1][0],
        migrations=planned,
        processes=_processes(database) if isinstance(database, PostgresDatabase) else None,
        digest=checksum(canonical_bytes({"has": sorted(done), "lacks": lacks}).decode()),
    )


def carry_out(
    database: AnyDatabase,
    seen: UpgradePlan,
    *,
    now_ms: int,
    by: Justification,
    progress: Progress,
    stop_older: bool = False,
) -> list[int]:
    """Apply everything that is missing, with an entry in the audit log; the versions that were applied."""
    require_free(seen, stop_older=stop_older)
    dialect = _dialect(database)
    made = migrate(database, dialect, now_ms, upgrading=lambda: progress)
    if made and seen.level:
        details = {"from": seen.level, "to": made[-1], "stopped": sum(one.connections for one in seen.older)}
        entry = governance_entry(KIND, seen.place, now_ms, by, **details)
        database.write(lambda session: governance.append(session, [entry]))
    return made


def require_same(seen: UpgradePlan, digest: str) -> None:
    """Refuse a plan that is not the one that a person has read."""
    if seen.digest != digest:
        raise PlanDrifted(
            f"What would be applied is not what was planned: the plan is {seen.digest} now.",
            remedy="`kfm migrate --plan` shows the plan and its digest.",
        )


def require_free(seen: UpgradePlan, *, stop_older: bool) -> None:
    """Refuse to take away what processes at work need. Those that would notice may be stopped by it; those
    from before the level would write on."""
    older = seen.older
    blind = [one for one in older if one.level is None]
    if blind:
        raise OlderAtWork(
            f"{_told(blind)}: from before kfm could notice an upgrade, so they would go on writing.",
            remedy="End them; `kfm migrate --plan` shows where they are.",
        )
    if older and not stop_older:
        raise OlderAtWork(f"{_told(older)} could not go on after it.")


def _dialect(database: AnyDatabase) -> Dialect:
    return "postgresql" if isinstance(database, PostgresDatabase) else "sqlite"


def _told(processes: Sequence[SeenProcess]) -> str:
    return counted(sum(one.connections for one in processes), "connection") + " of an older kfm"


def _touched(migration: Migration, dialect: Dialect) -> list[str]:
    texts = statements(in_dialect(migration[2], dialect))
    return list(dict.fromkeys(name for text in texts for name in _TOUCHED.findall(text)))


def _sizes(database: AnyDatabase, names: Sequence[str]) -> list[TouchedTable]:
    if isinstance(database, PostgresDatabase):
        return [TouchedTable(table=name, rows=rows, bytes=size) for name, rows, size in database.sizes(names)]
    there = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [
        TouchedTable(table=name, rows=database.execute(f"SELECT count(*) FROM {name}")[0][0])
        for name in names
        if name in there
    ]


def _processes(database: PostgresDatabase) -> tuple[SeenProcess, ...]:
    return tuple(
        SeenProcess(
            name=name,
            address=address,
            connections=count,
            since_ms=since_ms,
            level=int(found[1]) if (found := _NAMED.fullmatch(name)) else None,
        )
        for name, address, count, since_ms in database.peers()
    )
