"""Pages of the console on a ledger of 20,000 runs and 100,000 units, beside the bare work behind each.

Ours is a request to the console in this process: session, masking, words, links, the whole page. The
reference opens the same ledger, reads the rows that the page shows and renders their cells as a table in the
same template environment. What counts is the 95th percentile of some requests; `milliseconds` are those of
this machine, the ratio says more.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import io
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from bench.admission import _folder as scratch
from bench.harness import Benchmark
from bench.unit_rows import fill_sqlite
from kfm.config.loader import load
from kfm.web.console import page_templates
from kfm.web.console.pages import console_app
from kfm.web.request_context import WebContext
from tests.history import MADE

ON_REQUEST = True
DATASETS = 50
RUNS, UNITS = 20_000, 100_000
DAYS = 91
DAY_MS = 86_400_000
REQUESTS = 20  # of which the 95th percentile is taken
GOAL = 3.0
ROWS = 50

TABLE = """\
<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title></head><body><main>
<h1>{{ title }}</h1><table><tbody>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></main></body></html>
"""


class Page(NamedTuple):
    """What the console shows at an address, and the statement for the same rows."""

    name: str
    address: str
    sql: str
    rounds: int = 7


PAGES = (
    Page("console_runs", "runs", f"SELECT * FROM runs ORDER BY start_time_ms DESC, run_id DESC LIMIT {ROWS}"),
    Page(
        "console_activity",
        "activity?last=all",
        "SELECT i.*, r.window_start_ms, r.window_end_ms, r.start_time_ms, r.end_time_ms FROM invocations i "
        f"LEFT JOIN runs r ON r.run_id = i.run_id ORDER BY i.number DESC LIMIT {ROWS}",
    ),
    Page("console_units", "units", f"SELECT * FROM units ORDER BY wal_id DESC LIMIT {ROWS}"),
    Page("console_audit", "audit", f"SELECT * FROM governance ORDER BY number DESC LIMIT {ROWS}"),
    Page(
        "console_home",
        "",
        "SELECT dataset_id, source_id, window_start_ms, window_end_ms, status, error_code, run_id FROM runs "
        f"WHERE window_start_ms >= {{now}} - 30 * {DAY_MS}",
    ),
)


class Filled(NamedTuple):
    folder: Path
    app: Any
    ledger: str
    now_ms: int


def _config() -> str:
    names = [f"level-{number:02}" for number in range(DATASETS)]
    datasets = "".join(
        f"  - {{id: {name}, rights: {{license: CC0-1.0, care: {{label: Public, level: public}}}}}}\n"
        for name in names
    )
    sources = "".join(
        f"  - {{id: {name}, dataset: {name}, kind: files, folder: incoming, window: P1D, "
        "expect: {within: P2D}}\n"
        for name in names
    )
    return f"version: 1\nenvironment: bench\ndatasets:\n{datasets}sources:\n{sources}"


def _kfm(folder: Path, *words: str) -> None:
    from kfm.cli import main

    out, before = io.StringIO(), os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main(list(words))
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(out.getvalue()) from ended
    finally:
        os.chdir(before)


def _filled(stack: ExitStack) -> Filled:
    """One run of each dataset by the product; by SQLite the days before it, and the units."""
    folder = Path(scratch(stack))
    (folder / "incoming").mkdir()
    (folder / "incoming" / "a.csv").write_text("gauge,level\na,1\n")
    (folder / "kfm.yml").write_text(_config())
    for number in range(DATASETS):
        _kfm(folder, "run", "--source", f"level-{number:02}")
    ledger = str(folder / ".kfm" / "kfm.db")
    connection = apsw.Connection(ledger)
    _more_days(connection, RUNS // DATASETS - 1)
    fill_sqlite(connection.execute, UNITS)
    connection.execute(
        "INSERT INTO unit_totals (dataset, name, amount, high_ms) "
        "SELECT dataset, status, COUNT(*), MAX(time_range_end_ms) FROM units GROUP BY dataset, status"
    )
    connection.execute("ANALYZE")
    now_ms = int(next(connection.execute("SELECT MAX(window_end_ms) FROM runs"))[0])
    connection.close()
    return Filled(folder, console_app(WebContext(load(str(folder / "kfm.yml")))), ledger, now_ms)


def _more_days(connection: apsw.Connection, days: int) -> None:
    """Each run once more for so many days before it, with its attempts, invocation and promotion."""
    fresh = "printf('%08x', i) || substr(o.run_id, 9)"
    moved = {
        "run_id": fresh,
        "idempotency_key": "'sha256:' || printf('%032x', i) || substr(o.idempotency_key, -32)",
        "work_key": "'sha256:' || printf('%032x', i) || substr(o.work_key, -32)",
        "work_base": "'sha256:' || printf('%032x', i) || substr(o.work_base, -32)",
        "revision": "o.revision",
        "invocation_id": "printf('%08x', i) || substr(o.invocation_id, 9)",
        "sequence": "-i",
        **{
            name: f"o.{name} - i * {DAY_MS}"
            for name in (
                "window_start_ms", "window_end_ms", "start_time_ms", "end_time_ms", "requested_at_ms",
                "started_at_ms", "ended_at_ms", "promoted_at_ms",
            )
        },
    }  # fmt: skip
    connection.execute("PRAGMA synchronous = OFF; BEGIN")
    for table in ("runs", "attempts", "invocations", "promotions"):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        made = {**MADE[table], **{name: text for name, text in moved.items() if name in columns}}
        values = ", ".join(made.get(column, f"o.{column}") for column in columns)
        connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) "
            f"WITH RECURSIVE many (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many WHERE i < {days}) "
            f"SELECT {values} FROM many, (SELECT * FROM {table}) AS o"
        )
    connection.execute("COMMIT")


def _ask(app: Any, address: str) -> int:
    """One GET, as a server calls an application; the bytes of the answer."""
    path, _, query = address.partition("?")
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "root_path": "",
        "path": f"/console/{path}", "raw_path": f"/console/{path}".encode(), "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    size, status = 0, 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal size, status
        status = message.get("status", status)
        size += len(message.get("body", b""))

    asyncio.run(app(scope, receive, send))
    assert status == 200, (address, status)
    return size


def _bare(filled: Filled, template: Any, sql: str) -> int:
    connection = apsw.Connection(filled.ledger, flags=apsw.SQLITE_OPEN_READONLY)
    rows = list(connection.execute(sql.format(now=filled.now_ms)))
    connection.close()
    return len(template.render(title="bare", rows=rows).encode())


def _p95(work: Callable[[], Any], requests: int = REQUESTS) -> float:
    took = []
    for _ in range(requests):
        began_s = time.perf_counter()
        work()
        took.append(time.perf_counter() - began_s)
    return statistics.quantiles(took, n=20)[-1] * 1000


def _template() -> Any:
    return page_templates.environment().from_string(TABLE)


def _all_of(filled: Filled) -> None:
    for number in range(DATASETS):
        _ask(filled.app, f"datasets/level-{number:02}?days={DAYS}")


def _all_bare(filled: Filled, template: Any) -> None:
    for number in range(DATASETS):
        _bare(
            filled,
            template,
            "SELECT window_start_ms, window_end_ms, status, error_code, run_id, source_id, start_time_ms "
            f"FROM runs WHERE source_id = 'level-{number:02}' "
            f"AND window_start_ms >= {{now}} - {DAYS * DAY_MS}",
        )


def benchmarks() -> Sequence[Benchmark]:
    template = _template()
    kept: list[Filled] = []

    def filled(stack: ExitStack) -> Filled:
        """Made once for all of them, and removed when the process ends."""
        if not kept:
            atexit.register(_KEPT.close)
            kept.append(_filled(_KEPT))
        return kept[0]

    made = [
        Benchmark(
            name=page.name,
            goal=GOAL,
            kind="cost",
            unit="milliseconds",
            setup=filled,
            ours=partial(_ours, page),
            reference=partial(_reference, page, template),
            rounds=page.rounds,
        )
        for page in PAGES
    ]
    return [
        *made,
        Benchmark(
            name="console_91_days_of_50_datasets",
            goal=GOAL,
            kind="cost",
            unit="milliseconds",
            setup=filled,
            ours=lambda found: _p95(partial(_all_of, found), 2),
            reference=lambda found: _p95(partial(_all_bare, found, template), 2),
            rounds=3,
        ),
    ]


_KEPT = ExitStack()


def _ours(page: Page, filled: Filled) -> float:
    return _p95(partial(_ask, filled.app, page.address))


def _reference(page: Page, template: Any, filled: Filled) -> float:
    return _p95(partial(_bare, filled, template, page.sql))
