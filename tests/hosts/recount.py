"""The auditor's recount: what ledger, bucket and senders agree about once everything has come to rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from botocore.exceptions import ClientError

from kfm.app import open_app
from kfm.config.loader import load
from tests.crash import evidence, workers
from tests.crash.fleet import Book
from tests.crash.project import Project
from tests.crash.senders import Message
from tests.crash.served import CLAIM_MS
from tests.crash.serves_checks import Found, check
from tests.hosts.load import Announcements
from tests.hosts.machines import LEASE_S, PREFIX, PUBLISHED, UNIT_LEASE_S, Backend
from tests.published_bucket import BucketReader

SLACK_MS = 2_000
WAITING = {  # what still has to happen, and how to count it
    "requests": "SELECT COUNT(*) FROM requests WHERE state IN ('open', 'running', 'awaiting-approval')",
    "runs": "SELECT COUNT(*) FROM runs r LEFT JOIN retry_states s ON s.run_id = r.run_id "
    "WHERE r.status = 'running' OR (r.status = 'failed' AND s.fate = 'retry')",
    "units": "SELECT COUNT(*) FROM units WHERE status IN ('pending', 'in_progress')",
    "messages": "SELECT COUNT(*) FROM outbox WHERE delivered_at_ms IS NULL AND topic = 'openlineage'",
    "locks": "SELECT COUNT(*) FROM locks WHERE worker_id IS NOT NULL",
}
LEASES = {  # what a clock that is ahead would hold too long
    "a lock": ("locks", "worker_id IS NOT NULL", "lease_until_ms", LEASE_S * 1000),
    "a claim of a request": ("requests", "state = 'running'", "claim_until_ms", CLAIM_MS),
    "a lease of a unit": ("units", "status = 'in_progress'", "lease_until_ms", UNIT_LEASE_S * 1000),
}


class Auditor(Project):
    """A folder of its own, on a host that never failed."""

    def __init__(self, folder: Any, backend: Backend) -> None:
        super().__init__(folder)
        self.book = Book(self, backend.dsn)
        self._backend = backend

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        assert not parameters
        return self.book.rows(sql)

    def waiting(self) -> dict[str, int]:
        """What is not at rest; an attempt that waits for its time is due now, as if that had passed."""
        self.book.hasten()
        self.rows("UPDATE units SET not_before_ms = 0 WHERE status = 'pending' RETURNING wal_id")
        counted = {name: int(self.rows(sql)[0][0]) for name, sql in WAITING.items()}
        return {name: count for name, count in counted.items() if count}

    def overlong(self) -> Iterator[str]:
        """Leases that hold longer than they may, by the server's clock."""
        for what, (name, where, column, allowed_ms) in LEASES.items():
            ahead = f"{column} - (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
            for (left_ms,) in self.rows(
                f"SELECT {ahead} FROM {name} WHERE {where} AND {ahead} > {allowed_ms + SLACK_MS}"
            ):
                yield f"{what} holds for another {left_ms / 1000:.0f} s, and may for {allowed_ms / 1000:.0f}"

    def recount(self, messages: Sequence[Message], announced: Announcements, found: Found) -> list[str]:
        with open_app(load(str(self.folder / "kfm.yml"))) as app:
            units = workers.check_all(app, announced)
        return [
            *check(self, self.book, messages, found),
            *units,
            *evidence.records(self),
            *self._promotions(),
            *self._targets(),
            *self._rest(),
        ]

    def _promotions(self) -> Iterator[str]:
        """Sequences have no gaps, and no fence follows a newer one."""
        rows = self.rows("SELECT dataset_id, sequence, fence FROM promotions ORDER BY dataset_id, sequence")
        for dataset in sorted({row[0] for row in rows}):
            of_it = [row[1:] for row in rows if row[0] == dataset]
            if [sequence for sequence, _ in of_it] != list(range(1, len(of_it) + 1)):
                yield f"{dataset} has the sequences {[sequence for sequence, _ in of_it]}"
            for (before, fence), (after, newer) in pairwise(of_it):
                if newer < fence:
                    yield f"{dataset}: fence {newer} of {after} follows {fence} of {before}"

    def _targets(self) -> Iterator[str]:
        """The bucket shows the head of each dataset, every byte of it."""
        s3 = self._backend.client("s3")

        def get(key: str) -> bytes:
            try:
                return bytes(s3.get_object(Bucket=PUBLISHED, Key=key)["Body"].read())
            except ClientError as error:
                raise KeyError(key) from error

        for dataset, sequence, version_id in self.rows(
            "SELECT DISTINCT ON (dataset_id) dataset_id, sequence, version_id FROM promotions "
            "ORDER BY dataset_id, sequence DESC"
        ):
            reader = BucketReader(get, f"{PREFIX}/{dataset}/")
            try:
                shown, version = reader.shown(), reader.pointer()["version_id"]
            except (KeyError, AssertionError) as error:
                yield f"the bucket does not show all of {dataset}: {error!r}"
                continue
            if (shown, version) != (sequence, version_id):
                yield f"the bucket shows {dataset} {shown} {version}, the ledger has {sequence} {version_id}"

    def _rest(self) -> Iterator[str]:
        yield from (f"{count} {name} are not at rest" for name, count in self.waiting().items())
        # Schedules rest in the end, so windows that none of them asks for are late; that each of their times
        # has one fate is checked apart.
        for kind, name, code, subject, message in self.rows(
            "SELECT kind, name, error_code, subject, message FROM incidents "
            "WHERE state = 'open' AND kind <> 'overdue'"
        ):
            yield f"an incident is open: {kind} of {name} ({code}): {message[:200]} [{subject}]"
