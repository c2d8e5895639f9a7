"""What starts, answers and passes cost, as counts: they do not depend on the machine, as times do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import admission
from kfm.db.ledger import Ledger
from kfm.db.queries import migrate, queries
from kfm.db.sqlite import SqliteDatabase
from kfm.model.units import ResultBatch
from kfm.pipelines.declaration import Pipeline
from kfm.system import SystemClock
from tests.conformance.requests.test_requests import made
from tests.conformance.units.scene import Scene, done, taken
from tests.workshop import Workshop

pytestmark = pytest.mark.req("GRO-6")

# Runs a command, and tells which modules it loaded, how many texts it compiled and how many patterns.
COUNTED = """
import json, re, sys
texts, patterns = [], []
sys.addaudithook(lambda event, arguments: event == "compile" and texts.append(arguments[1]))
compiled = re._compiler.compile
re._compiler.compile = lambda *given: patterns.append(given[0]) or compiled(*given)
from kfm.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(json.dumps([sorted(sys.modules), len(texts), len(patterns)]), file=sys.stderr)
"""


def counted(folder: Path, *arguments: str) -> tuple[set[str], int, int]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "PYTHON"))}
    environ = {**kept, "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-c", COUNTED, *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True)
    modules, texts, patterns = json.loads(done.stderr.splitlines()[-1])
    return set(modules), texts, patterns


def own(modules: set[str]) -> int:
    return sum(name.partition(".")[0] == "kfm" for name in modules)


def test_the_version_is_told_by_the_command_line_alone(tmp_path: Path) -> None:
    """Nothing is loaded that has to do with work."""
    modules, _, _ = counted(tmp_path, "--version")
    assert own(modules) <= 2
    assert not modules & {"msgspec", "click", "apsw", "typing"}


def test_a_status_reads_no_yaml_and_compiles_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    """What was made of schedules and contracts is remembered; types are types, patterns wait for a use."""
    counted(tmp_path, "init", "--no-input")
    counted(tmp_path, "run", "--no-input")
    counted(tmp_path, "status")
    modules, texts, patterns = counted(tmp_path, "status")
    assert not modules & {"ruamel.yaml", "click", "logging", "kfm.config.document", "kfm.publish.contract"}
    # What loads as much again, for documents and zones that a look has nothing to do with.
    assert not modules & {"orjson", "inspect", "typing_extensions", "whenever", "cronsim", "calendar"}
    assert not modules & {"kfm.db.requests", "kfm.db.catalogue", "kfm.model.units", "kfm.model.webhooks"}
    # What only those need who write, or look into a version: leases, audit, trees; and OpenSSL with hashlib.
    assert not modules & {"kfm.db.leases", "kfm.db.governance", "kfm.model.trees", "kfm.model.incidents"}
    assert not modules & {"hashlib", "kfm.model.keys"}
    assert own(modules) <= 62
    assert texts <= 40  # with one for each field of a record they were 450
    assert patterns <= 18


FLOW = """
import kfm

pipeline = kfm.Pipeline("flow")
pipeline.node("only")(lambda: 1)
"""


def test_a_pass_that_finds_nothing_to_do_loads_nothing_that_makes_something(tmp_path: Path) -> None:
    """No child processes, no addresses, no versions; and the fields of its options are not compiled."""
    (tmp_path / "flow.py").write_text(FLOW)
    command = ("pipeline", "run", "flow.py", "--directory", ".")
    counted(tmp_path, *command)
    modules, texts, _ = counted(tmp_path, *command)
    assert not modules & {"subprocess", "selectors", "urllib.parse", "ipaddress"}
    assert not modules & {"kfm.db.promotion", "kfm.db.versions", "kfm.model.versions"}
    assert own(modules) <= 110
    assert texts <= 125  # two dozen are those of the command line's library


@contextmanager
def said(database: SqliteDatabase) -> Iterator[list[str]]:
    """Names of the statements that are made meanwhile, and what begins and ends transactions."""
    names = {sql: name for name, sql in queries("sqlite").items()}
    made: list[str] = []
    session: Any = database.session
    connection, executed = database._connection, session._execute

    class Told:
        def execute(self, sql: str, *rest: Any) -> Any:
            made.append(names.get(sql, sql))
            return connection.execute(sql, *rest)

        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

    def told(sql: str, parameters: Any = None) -> Any:
        made.append(names.get(sql, sql.split()[0]))
        return executed(sql, parameters)

    each = session._executemany

    def told_each(sql: str, rows: Any) -> Any:
        def row_by_row() -> Iterator[Any]:
            for row in rows:
                made.append(names[sql])
                yield row

        return each(sql, row_by_row())

    database._connection, session._execute = Told(), told  # type: ignore[assignment]
    session._executemany = told_each
    try:
        yield made
    finally:
        database._connection, session._execute, session._executemany = connection, executed, each


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    opened = SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock())
    migrate(opened, "sqlite", 1)
    yield opened
    opened.close()


def test_an_admission_is_one_commit_of_eight_statements(database: SqliteDatabase) -> None:
    """Two locks and the policy epoch are read; a run, its lock, its invocation, its documents and its first
    attempt are written."""
    store = Ledger(database)
    store.admit(admission._request(1, "dataset:1"), lambda _worker: False)
    with said(database) as made_now:
        store.admit(admission._request(2, "dataset:1"), lambda _worker: True)  # the lock's row is there
    begun, *statements, ended = made_now
    assert (begun, ended) == ("BEGIN IMMEDIATE", "COMMIT")
    written = ["runs.insert", "locks.take", "invocations.insert", "run_documents.insert", "attempts.open"]
    assert [name for name in statements if name in written] == written
    reads = [name for name in statements if name.endswith(("_for_share", "_for_update", "policy.epoch"))]
    assert len(reads) == 3


@pytest.mark.parametrize(("count", "inserts"), [(1, 1), (128, 1), (200, 4), (512, 4)])
def test_a_batch_of_requests_is_one_commit_of_few_statements(
    database: SqliteDatabase, count: int, inserts: int
) -> None:
    """A statement for each would hand the interpreter to the web between any two of them."""
    requests = Ledger(database).requests()
    batch = [made(f"{count}/{number}", request_uuid=f"u{number}") for number in range(count)]
    with said(database) as made_now:
        assert requests.accept(batch) == [None] * count
    statements = ["requests.formerly", *["INSERT"] * inserts]
    assert made_now == ["BEGIN IMMEDIATE", "schema_level.get", *statements, "COMMIT"]


@pytest.mark.parametrize("count", [32, 96])
def test_a_batch_of_units_ends_and_comes_in_with_few_statements(database: SqliteDatabase, count: int) -> None:
    """One for all that end alike, one for every 32 that are new and one for as many items; no other is for
    single units."""
    scene = Scene(Ledger(database))
    claim = scene.claim_request(limit=count)
    batches = [[taken(f"{part}{number:03}") for number in range(count)] for part in "abc"]
    claimed = scene.units.exchange(None, claim, batches[0]).claimed
    finish = ResultBatch(successes=tuple(map(done, claimed)))
    claimed = scene.units.exchange(finish, claim, batches[1]).claimed  # what it learns once is known then
    with said(database) as made_now:
        finish = ResultBatch(successes=tuple(map(done, claimed)))
        exchanged = scene.units.exchange(finish, claim, batches[2])
    assert (len(exchanged.results.succeeded), exchanged.created) == (count, count)
    assert made_now.count("units.succeed") == 1
    assert made_now.count("INSERT") == 2 * count // 32
    rest = [name for name in made_now if name not in ("INSERT", "unit_deltas.add")]
    assert len(rest) == 14  # whatever the count


def chain_of(size: int) -> Pipeline:
    pipeline = Pipeline("chain")
    for number in range(size):
        needs = {"before": f"n{number - 1:03}"} if number else {}
        pipeline.node(f"n{number:03}", needs=needs, params={"number": number})(
            lambda number, before=0: number
        )
    return pipeline


def test_a_pass_that_finds_nothing_to_do_asks_as_much_for_many_nodes_as_for_few() -> None:
    """As many statements whatever the number of nodes; one look at each object."""
    asked, looks = [], []
    for size in (5, 50):
        shop = Workshop()
        shop.run(chain_of(size))
        statements: list[str] = []
        seen: list[str] = []
        session: Any = shop.database.session
        executed = session._execute
        session._execute = lambda sql, *rest: statements.append(sql) or executed(sql, *rest)  # type: ignore[func-returns-value] # noqa: B023
        kernel = shop.kernel(object_size=lambda name: seen.append(name) or shop.objects.size_of(name))  # type: ignore[func-returns-value] # noqa: B023
        report = shop.run(chain_of(size), kernel=kernel)
        assert report.counts["skipped"] == size
        assert list(report.nodes) == [f"n{number:03}" for number in range(size)]
        asked.append(len(statements))
        looks.append(len(seen))
    assert asked[0] == asked[1]
    assert looks == [5, 50]
