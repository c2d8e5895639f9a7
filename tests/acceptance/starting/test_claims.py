"""On PostgreSQL, too, one request of a dataset is claimed at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from kfm.db.ledger import Ledger
from kfm.model.keys import request_id
from kfm.model.requests import UpdateRequest
from tests.conformance.db.ledgers import alive, postgres_store

pytestmark = pytest.mark.req("TRG-2")
ROUNDS = 100
CLAIMERS = 3
CLAIM_MS = 60_000


def request(number: int, dataset: str) -> UpdateRequest:
    key = f"sha256:{dataset}/{number}"
    return UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="webhook",
        source_id="river",
        dataset_id=dataset,
        window_start_ms=0,
        window_end_ms=86_400_000,
        actor="webhook:river",
        accepted_at_ms=1_000 + number,
    )


class Claimers:
    """Several that claim at the same instant, each with a connection of its own."""

    def __init__(self, dsn: str) -> None:
        self.stores = [postgres_store(dsn) for _ in range(CLAIMERS)]
        self._admin = psycopg.connect(dsn, autocommit=True)
        self._begin = threading.Barrier(CLAIMERS)
        self._end = threading.Barrier(CLAIMERS, action=self._settle)
        self._claimed: list[list[str]] = []
        self._failures: list[BaseException] = []

    def close(self) -> None:
        self._admin.close()
        for store in self.stores:
            store.close()

    def rounds(self, count: int) -> list[list[str]]:
        """The datasets of the requests that were claimed in each round; they have ended before the next."""
        threads = [
            threading.Thread(target=self._claim, args=(f"worker-{number}", store, count))
            for number, store in enumerate(self.stores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not self._failures, self._failures
        return self._claimed

    def _claim(self, name: str, store: Ledger, count: int) -> None:
        requests = store.requests()
        try:
            for _ in range(count):
                self._begin.wait(60)
                requests.claim(name, CLAIM_MS, alive)
                self._end.wait(60)
        except BaseException as error:
            self._failures.append(error)
            self._begin.abort()
            self._end.abort()

    def _settle(self) -> None:
        settle = "UPDATE requests SET state = 'done', claimed_by = NULL WHERE state = 'running'"
        ended = self._admin.execute(f"{settle} RETURNING dataset_id")
        self._claimed.append([row[0] for row in ended.fetchall()])


@pytest.fixture
def claimers(postgres_database: str) -> Iterator[Claimers]:
    made = Claimers(postgres_database)
    yield made
    made.close()


def test_two_claimers_never_get_two_requests_of_one_dataset(claimers: Claimers) -> None:
    """However often they ask at the same instant: in each round one of them gets one, and the others none."""
    wanted = [request(number, "rivers") for number in range(ROUNDS + CLAIMERS)]
    claimers.stores[0].requests().accept(wanted)
    got = claimers.rounds(ROUNDS)
    together = sum(len(one) > 1 for one in got)
    assert together == 0, f"two of one dataset in {together} of {ROUNDS} rounds"
    assert sum(map(len, got)) == ROUNDS


def test_claimers_of_several_datasets_each_get_one(claimers: Claimers) -> None:
    """Requests of other datasets are claimed at the same time, one of each."""
    wanted = [request(number, name) for name in ("rivers", "lakes") for number in range(ROUNDS + CLAIMERS)]
    claimers.stores[0].requests().accept(wanted)
    got = claimers.rounds(ROUNDS)
    assert all(len(set(claimed)) == len(claimed) for claimed in got)
    assert sum(map(len, got)) > ROUNDS
