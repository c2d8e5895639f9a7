"""A Delta table in a bucket: the same promises, also if two write at once."""

from __future__ import annotations

import threading

import pytest

from kfm.branches_remote.delta import DeltaRunState
from tests import services
from tests.integration.branches_remote.delta.records import node, put

pytest.importorskip("deltalake")


def backend(endpoint: str, bucket: str) -> DeltaRunState:
    options = {
        "aws_endpoint_url": endpoint,
        "aws_access_key_id": services.S3_ACCESS_KEY,
        "aws_secret_access_key": services.S3_SECRET_KEY,
        "aws_region": services.S3_REGION,
        "aws_allow_http": "true",
    }
    return DeltaRunState(f"s3://{bucket}/run-state", options, compact_every=5)


@pytest.mark.req("RS-5")
def test_a_table_in_a_bucket(s3_endpoint: str, s3_bucket: str) -> None:
    """Records go to a bucket and come back; of two who write at once neither loses a row."""
    first = backend(s3_endpoint, s3_bucket)
    assert list(first.rows()) == []
    put(first, node("tiles", "run-0"))
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            own = backend(s3_endpoint, s3_bucket)
            for number in range(3):
                put(own, node(f"n{number}", f"run-{name}"))
            put(own, node("n0", f"run-{name}", attempt=2))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for each in workers:
        each.start()
    for each in workers:
        each.join(60)
    assert failures == []
    found = {(each.run_id, each.dataset_id): each.attempt for each in first.rows()}
    assert len(found) == 7
    assert found["run-a", "n0"] == found["run-b", "n0"] == 2
