"""What happens now, beside what is on record: the same work on a young ledger and on an old one.

Old ledgers are made by SQLite from a young one's own rows (`tests.history`): the product's writers would need
hours for a million runs. Making one takes minutes, so these are not among those that run without being named.

`python -m bench.growth` prints what a promotion costs in datasets of 100 to 100,000 items, a line of JSON for
each: the points of a chart in the documentation.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import time
from collections import Counter
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import apsw
from msgspec.structs import replace

from bench.admission import _folder as scratch
from bench.harness import Benchmark
from kfm.db.connection import open_store
from kfm.db.ledger import Ledger
from kfm.model.records import Item
from kfm.model.requests import UpdateRequest
from kfm.model.versions import Version, edited, version_of
from kfm.system import SystemClock
from kfm.telemetry.ledger_metrics import keep_fold, take_up
from tests.conformance.db.ledgers import Desk
from tests.conformance.db.test_versions import hourly, of_hours
from tests.history import multiply

ON_REQUEST = True
YOUNG, OLD = 1000, 1_000_000
FEW_DUE, MANY_DUE = 100, 100_000
DATASETS = 10
NOOPS = 5  # runs a round
CLAIMS = 50  # claims a round, each given back
SIZES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)  # items
PROMOTIONS = 200  # of items all over a dataset, since pages differ in length

CONFIG = """\
version: 1
environment: test
datasets:
  - id: levels
    title: Levels
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: Public, level: public}}
sources:
  - {id: notes, dataset: levels, kind: files, folder: incoming, pattern: "*.csv"}
publish:
  - {kind: local, path: published}
"""


# --- a run that finds nothing new --------------------------------------------------------------------


class Projects(NamedTuple):
    young: Path
    old: Path


def _kfm(folder: Path, *arguments: str) -> None:
    from kfm.cli import main

    before, out = os.getcwd(), io.StringIO()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main(list(arguments))
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(out.getvalue()) from ended
    finally:
        os.chdir(before)


def _noop(folder: Path) -> float:
    """Seconds for a run, inside this process: its start-up is not what grows."""
    began_s = time.perf_counter()
    for _ in range(NOOPS):
        _kfm(folder, "run", "--source", "notes")
    return (time.perf_counter() - began_s) / NOOPS


def _projects(stack: ExitStack) -> Projects:
    place = Path(scratch(stack))
    found = Projects(place / "young", place / "old")
    for folder, rows in zip(found, (YOUNG, OLD), strict=True):
        (folder / "incoming").mkdir(parents=True)
        (folder / "incoming" / "a.csv").write_text("gauge,level\na,1\n")
        (folder / "kfm.yml").write_text(CONFIG)
        for _ in range(2):  # the second one is the first that finds nothing new
            _kfm(folder, "run", "--source", "notes")
        multiply(str(folder / ".kfm" / "kfm.db"), rows)
    return found


# --- a claim -----------------------------------------------------------------------------------------


class Queues(NamedTuple):
    few: Ledger
    many: Ledger


def _request(number: int) -> UpdateRequest:
    return UpdateRequest(
        request_id=f"{number:08x}-0000-8000-8000-000000000000",
        key=f"key {number}",
        kind="manual",
        source_id=f"source-{number % DATASETS}",
        dataset_id=f"dataset-{number % DATASETS}",
        window_start_ms=0,
        window_end_ms=0,
        actor="bench",
        accepted_at_ms=number,
    )


def _queues(stack: ExitStack) -> Queues:
    place = Path(scratch(stack))
    made = []
    for name, count in (("few", FEW_DUE), ("many", MANY_DUE)):
        store = open_store(None, str(place / name), SystemClock())
        stack.callback(store.close)
        wanted = [_request(number) for number in range(count)]
        for first in range(0, count, 1000):
            store.requests().accept(wanted[first : first + 1000])
        made.append(store)
    return Queues(*made)


def _claims(store: Ledger) -> float:
    """Seconds for a claim; what was claimed is given back."""
    requests = store.requests()
    began_s = time.perf_counter()
    for _ in range(CLAIMS):
        assert requests.claim("bench", 60_000, lambda _worker: False) is not None
        requests.give_back("bench")
    return (time.perf_counter() - began_s) / CLAIMS


# --- a promotion -------------------------------------------------------------------------------------


class Published:
    """A merged dataset with this many items on record, each of a thousand bytes."""

    def __init__(self, stack: ExitStack, items: int) -> None:
        self.store = open_store(None, str(Path(scratch(stack)) / "kfm.db"), SystemClock())
        stack.callback(self.store.close)
        self.desk = Desk(self.store)
        self.next = items
        self._promote(version_of(of_hours(self._item(number) for number in range(items))))

    def _item(self, number: int) -> Item:
        made = hourly(number)
        asset = replace(made.assets[0], source_uri=f"https://example.org/{'x' * 520}/{number}")
        return replace(made, assets=(asset,))

    def _promote(self, made: Version) -> None:
        run = self.desk.admitted(f"run {self.desk.calls}")
        assert self.desk.promote(run, version_id=made.version_id, version=made).answer == "promoted"

    def one_more(self) -> float:
        """Seconds for the promotion of one item more, from the head as it is read to the commit."""
        item = self._item(self.next)
        self.next += 1
        return self._put(item)

    def revise(self, number: int) -> float:
        """The same for one that is there, and has other bytes now."""
        item = self._item(number)
        asset = replace(item.assets[0], sha256=sha256(item.assets[0].sha256.encode()).hexdigest())
        return self._put(replace(item, assets=(asset,)))

    def _put(self, item: Item) -> float:
        began_s = time.perf_counter()
        head = self.store.head("ks-streamflow")
        assert head is not None
        self._promote(edited(head[1], head[1].header, {item.id: item}))
        return time.perf_counter() - began_s

    def bytes_of_one_more(self) -> float:
        """What it leaves in the tables behind versions."""
        before = self.bytes()
        self.one_more()
        return self.bytes() - before

    def bytes(self) -> float:
        texts = (("version_pages", "body"), ("version_items", "document"), ("versions", "manifest"))
        connection = self.store.database._connection  # type: ignore[attr-defined]
        found = [connection.execute(f"SELECT SUM(LENGTH({column})) FROM {table}") for table, column in texts]
        return float(sum(next(rows)[0] for rows in found))


def curve() -> None:
    """One item anew, in datasets of each size: this process's own time, and bytes in the ledger."""
    for items in SIZES:
        with ExitStack() as stack:
            published, took_s, left = Published(stack, items), [], []
            for number in range(min(PROMOTIONS, items)):
                before, began_s = published.bytes(), time.process_time()
                published.revise(number * items // min(PROMOTIONS, items))
                took_s.append(time.process_time() - began_s)
                left.append(published.bytes() - before)
        point = {"items": items, "bytes": round(statistics.mean(left))}
        print(json.dumps(point | {"ms": round(statistics.median(took_s) * 1000, 2)}), flush=True)


class Datasets(NamedTuple):
    small: Published
    large: Published


def _datasets(stack: ExitStack) -> Datasets:
    return Datasets(Published(stack, 100), Published(stack, 100_000))


# --- the first scrape of a process ---------------------------------------------------------------------


class Metrics(NamedTuple):
    ledger: Ledger
    raw: apsw.Connection


BARE = """\
SELECT r.dataset_id, r.trigger_type, a.ending, a.ended_at_ms - a.started_at_ms
FROM attempts a JOIN runs r ON r.run_id = a.run_id"""
BARE_CALLS = "SELECT dataset_id, outcome FROM invocations"


def _metrics(stack: ExitStack) -> Metrics:
    """A ledger with a million runs, and the fold that `kfm serve` keeps of it."""
    folder = Path(scratch(stack))
    (folder / "incoming").mkdir()
    (folder / "incoming" / "a.csv").write_text("gauge,level\na,1\n")
    (folder / "kfm.yml").write_text(CONFIG)
    _kfm(folder, "run", "--source", "notes")
    multiply(str(folder / ".kfm" / "kfm.db"), OLD)
    ledger = open_store(None, str(folder / ".kfm"), SystemClock())
    stack.callback(ledger.close)
    while keep_fold(ledger):
        pass
    raw = apsw.Connection(str(folder / ".kfm" / "kfm.db"))
    stack.callback(raw.close)
    return Metrics(ledger, raw)


def _start(metrics: Metrics) -> None:
    """What a new process does before it answers: the fold is taken up, and what is new is read."""
    take_up(metrics.ledger).read(metrics.ledger)


def _bare_fold(metrics: Metrics) -> None:
    """The same rows, counted by what metrics are labelled with, and nothing else."""
    counted: Counter[tuple[object, ...]] = Counter()
    seconds = 0
    for dataset, trigger, ending, took_ms in metrics.raw.execute(BARE):
        counted[dataset, trigger, ending] += 1
        seconds += took_ms or 0
    counted.update(metrics.raw.execute(BARE_CALLS))
    assert counted.total() >= OLD


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(
            name="promote_growth",
            kind="cost",
            goal=1.5,
            setup=_datasets,
            ours=lambda datasets: datasets.large.one_more(),
            reference=lambda datasets: datasets.small.one_more(),
            rounds=5,
        ),
        Benchmark(
            name="promote_bytes",
            kind="cost",
            goal=1.0,
            setup=lambda stack: Published(stack, 100_000),
            ours=lambda published: published.bytes_of_one_more(),
            reference=lambda _: 64 * 1024.0,
            unit="B",
            rounds=5,
        ),
        Benchmark(
            name="noop_run_1m",
            kind="cost",
            goal=1.2,
            setup=_projects,
            ours=lambda projects: _noop(projects.old),
            reference=lambda projects: _noop(projects.young),
            rounds=7,
        ),
        Benchmark(
            name="requests_claim_100k",
            kind="cost",
            goal=1.3,
            setup=_queues,
            ours=lambda queues: _claims(queues.many),
            reference=lambda queues: _claims(queues.few),
            rounds=21,
        ),
        Benchmark(
            name="metrics_start_1m",
            kind="cost",
            goal=2,
            setup=_metrics,
            ours=_start,
            reference=_bare_fold,
            rounds=5,
        ),
    ]


if __name__ == "__main__":
    curve()
