"""The tree in a real S3 emulator: does its conditional put hold what ours is built on?"""

from __future__ import annotations

import json
import threading

import pytest

from kfm.objects.bucket_client import open_bucket
from kfm.ports import Bucket
from kfm.publish.targets.s3 import BucketTree
from tests import services
from tests.unit.publish.stand_ins import DATASET, Database, MemoryObjects

pytestmark = pytest.mark.req("TRG-4")


def bucket(endpoint: str, name: str) -> Bucket:
    return open_bucket(
        f"s3://{name}",
        {
            "endpoint": endpoint,
            "region": services.S3_REGION,
            "access_key_id": services.S3_ACCESS_KEY,
            "secret_access_key": services.S3_SECRET_KEY,
        },
    )


def test_two_projectors_only_move_the_pointer_forward(s3_endpoint: str, s3_bucket: str) -> None:
    """Two projectors and a reader on one bucket: the pointer only grows and ends at the head."""
    objects = MemoryObjects()
    database = Database(objects)
    guard = threading.Lock()
    failures: list[BaseException] = []
    done = threading.Event()
    seen = [0]

    def projector() -> None:
        try:
            tree = BucketTree("s3", bucket(s3_endpoint, s3_bucket), objects, "pub")
            for _ in range(6):
                with guard:
                    promoted = database.promote()
                assert (tree.project(DATASET.id, database.head) or 0) >= promoted
        except BaseException as error:
            failures.append(error)

    def read() -> None:
        try:
            mine = bucket(s3_endpoint, s3_bucket)
            while not done.is_set():
                if found := mine.get(f"pub/{DATASET.id}/current.json"):
                    pointer = json.loads(found[0])
                    seen.append(pointer["sequence"])
                    assert mine.get(f"pub/{DATASET.id}/{pointer['manifest']}") is not None
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    threads = [threading.Thread(target=projector) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert failures == []
    assert seen == sorted(seen)
    shown = bucket(s3_endpoint, s3_bucket).get(f"pub/{DATASET.id}/current.json")
    assert shown is not None
    assert json.loads(shown[0])["sequence"] == 12
