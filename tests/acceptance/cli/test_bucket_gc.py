"""`kfm gc` and `kfm du` where the objects are in a bucket of a real server."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.objects.bucket_client import ObstoreBucket
from kfm.system import SystemClock
from tests import services
from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
pytestmark = pytest.mark.req("GRO-2")
HOUR_MS = 3_600_000
APPLY = ("gc", "--apply", "--rationale", "The bucket is dear.")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets hours pass, for kfm; the server's clock goes on as it does."""
    now, monotonic = SystemClock.now_ms, SystemClock.monotonic_ms

    def pass_by(hours: int) -> None:
        monkeypatch.setattr(SystemClock, "now_ms", lambda self: now(self) + hours * HOUR_MS)
        monkeypatch.setattr(SystemClock, "monotonic_ms", lambda self: monotonic(self) + hours * HOUR_MS)

    return pass_by


@pytest.fixture
def bucket(project: Path, s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The objects of the project are there; only the newest version is kept. Key → size of what is there."""
    monkeypatch.setenv("S3_SECRET", services.S3_SECRET_KEY)
    lines = (project / "kfm.yml").read_text() + (
        f"objects: s3://{s3_bucket}/kfm\n"
        f"objects_options: {{endpoint: '{s3_endpoint}', region: {services.S3_REGION},\n"
        f"  access_key_id: {services.S3_ACCESS_KEY}, secret_access_key: env:S3_SECRET}}\n"
        "limits: {versions_kept: 1}\n"
    )
    (project / "kfm.yml").write_text(lines)
    client = services.s3_client(s3_endpoint)

    def objects() -> dict[str, int]:
        found = client.list_objects_v2(Bucket=s3_bucket).get("Contents", [])
        return {one["Key"]: one["Size"] for one in found}

    return objects


def level(number: int) -> bytes:
    return f"gauge,level\na,{number}\n".encode()


def key(number: int) -> str:
    sha256 = hashlib.sha256(level(number)).hexdigest()
    return f"kfm/sha256/{sha256[:2]}/{sha256[2:]}"


def run(kfm: Kfm, project: Path, number: int) -> Called:
    (project / "incoming" / "a.csv").write_bytes(level(number))
    return kfm("run", "--source", "daily")


def test_what_no_kept_version_needs_goes_from_the_bucket(
    kfm: Kfm, project: Path, bucket: Any, later: Callable[[int], None], valid: Valid
) -> None:
    """Fresh objects stay; old ones of old versions are listed with their size and go; the version that is
    shown is whole, and `kfm du` knows the bytes of the bucket."""
    for number in (1, 2, 3):
        assert run(kfm, project, number).code == 0
    assert kfm("gc", "--json").document["objects"] == []
    later(2)
    listed = kfm("gc", "--json").document
    valid("gc", listed)
    names = {one["sha256"] for one in listed["objects"]}
    assert {hashlib.sha256(level(number)).hexdigest() for number in (1, 2)} <= names
    before = bucket()
    used = kfm("du", "--json").document
    valid("du", used)
    assert next(one for one in used["places"] if one["what"] == "objects")["bytes"] == sum(before.values())
    assert used["collectable"]["objects"] == listed["size"]
    done = kfm(*APPLY, "--json")
    assert done.code == 0, done.err
    valid("gc", done.document)
    assert done.document["removed"]["objects"] == len(listed["objects"])
    left = bucket()
    assert key(3) in left
    assert not {key(1), key(2)} & left.keys()
    assert not [name for name in left if "/taken/" in name]
    assert kfm("doctor", "--deep").code == 0
    assert kfm("audit", "verify").code == 0
    assert run(kfm, project, 4).code == 0


def test_a_run_waits_for_a_collection(
    kfm: Kfm, project: Path, bucket: Any, later: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is asked for while objects are being removed is busy, and goes on afterwards; one that is in
    progress keeps a collection from beginning."""
    for number in (1, 2):
        assert run(kfm, project, number).code == 0
    later(2)
    beside: list[Called] = []
    copy = ObstoreBucket.copy

    def interrupted(self: ObstoreBucket, source: str, to: str) -> bool:
        if not beside:
            beside.append(Called(-1, "", ""))
            beside[0] = run(kfm, project, 1)
        return copy(self, source, to)

    monkeypatch.setattr(ObstoreBucket, "copy", interrupted)
    assert kfm(*APPLY).code == 0
    assert beside[0].code == 5, beside[0]
    assert key(1) not in bucket()
    assert run(kfm, project, 1).code == 0
    assert key(1) in bucket()
    collections: list[Called] = []
    put = ObstoreBucket.put

    def collected(self: ObstoreBucket, *args: Any, **options: Any) -> bool:
        if not collections:
            collections.append(Called(-1, "", ""))
            collections[0] = kfm(*APPLY, "--wait", "0")
        return put(self, *args, **options)

    monkeypatch.setattr(ObstoreBucket, "put", collected)
    later(4)
    assert run(kfm, project, 3).code == 0
    assert collections[0].code == 5, collections[0]
    assert kfm("doctor", "--deep").code == 0


def test_a_run_that_stages_while_the_collector_stalls_keeps_its_bytes(
    kfm: Kfm, project: Path, bucket: Any, later: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector stands still between its last look and its first deletion until its lease is over; a run
    takes over and publishes the very bytes that are about to go. They are there afterwards, and the collector
    says that nothing more was removed."""
    for number in (1, 2):
        assert run(kfm, project, number).code == 0
    later(2)
    beside: list[Called] = []
    delete = ObstoreBucket.delete

    def stalled(self: ObstoreBucket, name: str) -> None:
        if not beside and name == key(1).removeprefix("kfm/"):
            beside.append(Called(-1, "", ""))
            later(4)
            beside[0] = run(kfm, project, 1)
        delete(self, name)

    monkeypatch.setattr(ObstoreBucket, "delete", stalled)
    lost = kfm(*APPLY)
    assert beside[0].code == 0, beside[0]
    assert lost.code != 0
    assert "nothing more was removed" in lost.err
    assert key(1) in bucket()
    assert kfm("doctor", "--deep").code == 0


def test_bytes_that_are_staged_again_are_fresh(
    kfm: Kfm, project: Path, bucket: Any, s3_endpoint: str, s3_bucket: str
) -> None:
    """Staging puts an object again that is there already, so neither a rule of the bucket nor a collection
    that was listed before takes it for old."""
    client = services.s3_client(s3_endpoint)
    assert run(kfm, project, 1).code == 0
    first = client.head_object(Bucket=s3_bucket, Key=key(1))["LastModified"]
    while True:  # until the server's clock, which tells seconds, has moved
        client.put_object(Bucket=s3_bucket, Key="probe", Body=b"")
        if client.head_object(Bucket=s3_bucket, Key="probe")["LastModified"] > first:
            break
    for number in (2, 1):
        assert run(kfm, project, number).code == 0
    assert client.head_object(Bucket=s3_bucket, Key=key(1))["LastModified"] > first
