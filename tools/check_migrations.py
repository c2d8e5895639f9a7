"""Refuses a migration that says of itself what is not so: `make lint`.

From number 47 on the first line of a migration says whether processes of the kfm before can go on beside it
(docs/decisions/0047). One that says `-- expand: …` is looked through for what they could stumble over, as far
as SQL shows it: they go on with their own statements, on tables that they know. A table that the migration
itself makes is its own matter. Prints one line per place; exit status 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kfm.db.queries import Dialect, in_dialect, migration_files, statements
from kfm.model.upgrades import LEVELS, Migration, declaration

SENTENCE_MAX = 100
_NAME = r"(?:IF (?:NOT )?EXISTS )?(?:ONLY )?([a-z_]+)"
_MADE = re.compile(rf"CREATE (?:TEMPORARY )?TABLE {_NAME}")


class Rule(NamedTuple):
    """What an expansion does not contain; the first group is the table that it is about."""

    pattern: re.Pattern[str]
    why: str


def _rule(pattern: str, why: str) -> Rule:
    return Rule(re.compile(pattern), why)


RULES = (
    _rule(rf"DROP TABLE {_NAME}", "the kfm before reads and writes it"),
    _rule(rf"ALTER TABLE {_NAME}.* DROP COLUMN", "the kfm before names its columns"),
    _rule(rf"ALTER TABLE {_NAME}.* RENAME", "the kfm before knows the old name"),
    _rule(
        rf"ALTER TABLE {_NAME}.* ADD COLUMN (?!.*\bDEFAULT\b).*NOT NULL",
        "the kfm before inserts rows without it",
    ),
    _rule(rf"ALTER TABLE {_NAME}.* ALTER COLUMN \S+ SET NOT NULL", "the kfm before may insert NULL"),
    _rule(rf"ALTER TABLE {_NAME}.* ALTER COLUMN \S+ DROP DEFAULT", "the kfm before relies on it"),
    _rule(rf"ALTER TABLE {_NAME}.* TYPE ", "the kfm before writes the old type"),
    _rule(
        rf"ALTER TABLE {_NAME}.* ADD (?:CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN)",
        "the kfm before may write what it refuses",
    ),
    _rule(
        rf"ALTER TABLE {_NAME}.* ADD COLUMN .*\b(?:CHECK|UNIQUE|REFERENCES)\b",
        "the kfm before may write what it refuses",
    ),
    _rule(rf"CREATE UNIQUE INDEX .* ON {_NAME}", "the kfm before may write what it refuses"),
    _rule(rf"CREATE (?:CONSTRAINT )?TRIGGER .* ON {_NAME}", "the kfm before does not reckon with it"),
    _rule(r"DROP INDEX .*()", "the kfm before may need it to be fast, or name it as a conflict"),
    _rule(r"DROP (?:VIEW|TRIGGER|FUNCTION|SEQUENCE) .*()", "the kfm before may need it"),
    _rule(rf"UPDATE {_NAME} SET", "the kfm before may have read the rows, or write the old form again"),
    _rule(rf"DELETE FROM {_NAME}", "the kfm before may need the rows"),
    _rule(rf"TRUNCATE (?:TABLE )?{_NAME}", "the kfm before may need the rows"),
    _rule(r"DO \$\$.*()", "what it does can't be seen"),
)  # fmt: skip


def findings(migration: Migration) -> Iterator[str]:
    """What is wrong with one migration."""
    version, name, text = migration
    if version < LEVELS:
        return
    said = declaration(migration)
    where = f"{version:04}_{name}.sql"
    if said.kind == "undeclared":
        yield f"{where}: its first line is neither `-- expand: …` nor `-- contract: …`"
        return
    if not said.does.endswith(".") or len(said.does) > SENTENCE_MAX:
        yield f"{where}: its first line has to be one sentence of at most {SENTENCE_MAX} characters"
    if said.floor > version:
        yield f"{where}: it asks for migration {said.floor}, which comes later"
    if said.kind == "expand":
        for dialect in ("sqlite", "postgresql"):
            yield from (f"{where}: {one}" for one in _stumbles(text, dialect))


def _stumbles(text: str, dialect: Dialect) -> Iterator[str]:
    own: set[str] = set()
    for statement in statements(in_dialect(text, dialect)):
        line = " ".join(re.sub(r"--[^\n]*", " ", statement).split())
        if made := _MADE.match(line):
            own.add(made[1])
        for rule in RULES:
            found = rule.pattern.match(line)
            if found and found[1] not in own:
                yield f"`{line[:60]}` ({dialect}): {rule.why}"


def main() -> int:
    found = [line for migration in migration_files() for line in findings(migration)]
    sys.stdout.writelines(f"{Path('src/kfm/contracts/sql/migrations') / line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
