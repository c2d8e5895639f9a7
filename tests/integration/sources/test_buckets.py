"""The bucket client and remote objects: in memory, in a folder, and against an S3 server."""

from __future__ import annotations

import hashlib

import pytest

from kfm.model.errors import BackendUnavailable, ChecksumMismatch, ConfigError, ExtraMissing, StoreCorrupt
from kfm.objects.bucket_client import ObstoreBucket, open_bucket
from kfm.objects.remote import RemoteObjects
from tests import services

pytest.importorskip("obstore")


@pytest.fixture(params=["memory", "s3"])
def bucket(request):
    if request.param == "memory":
        from obstore.store import MemoryStore

        return ObstoreBucket(MemoryStore(), "memory")
    options = {
        "endpoint": request.getfixturevalue("s3_endpoint"),
        "access_key_id": services.S3_ACCESS_KEY,
        "secret_access_key": services.S3_SECRET_KEY,
        "region": services.S3_REGION,
    }
    return open_bucket(f"s3://{request.getfixturevalue('s3_bucket')}", options, timeout_ms=10_000)


def test_conditional_writes(bucket):
    """Only one of two who create wins, and only the one who saw the newest replaces."""
    assert bucket.get("pointer") is None
    assert bucket.put("pointer", b"1", if_none_match=True)
    assert not bucket.put("pointer", b"2", if_none_match=True)
    data, etag = bucket.get("pointer")
    assert data == b"1"
    assert bucket.put("pointer", b"3", if_match=etag)
    assert not bucket.put("pointer", b"4", if_match=etag)
    assert bucket.get("pointer")[0] == b"3"
    assert not bucket.put("absent", b"5", if_match=etag)
    assert bucket.get("absent") is None


@pytest.mark.req("GRO-1")
def test_many_objects_at_once(bucket):
    """All are there when it returns, none over one that was to stay."""
    bucket.put("many/3", b"first")
    bucket.put_many([(f"many/{number}", b"%d" % number, None) for number in range(40)], if_none_match=True)
    assert len(list(bucket.list("many/"))) == 40
    assert (bucket.get("many/3")[0], bucket.get("many/39")[0]) == (b"first", b"39")
    bucket.put_many([("many/3", b"second", None)])
    assert bucket.get("many/3")[0] == b"second"


def test_many_objects_for_a_server_that_is_away():
    """The first failure ends it, as that of a single object would."""
    options = {
        "endpoint": "http://127.0.0.1:1",
        "region": "x",
        "access_key_id": "a",
        "secret_access_key": "b",
    }
    with pytest.raises(BackendUnavailable):
        open_bucket("s3://b", options).put_many([(str(number), b"", None) for number in range(100)])


def test_large_objects_and_listing(bucket):
    """Large objects are streamed both ways; a listing knows prefixes within names; deleting twice is fine."""
    chunks = [bytes([number]) * 1_000_000 for number in range(20)]
    bucket.put_stream("a/big", iter(chunks))
    bucket.put("a/bigger", b"")
    bucket.put("b/other", b"x")
    assert bucket.head("a/big").size == 20_000_000
    assert bucket.head("a/none") is None
    assert [stat.key for stat in bucket.list("a/b")] == ["a/big", "a/bigger"]
    assert len(list(bucket.list(""))) == 3
    with bucket.read("a/big", offset=19_999_990) as (stat, stream):
        assert (stat.size, b"".join(stream)) == (20_000_000, b"\x13" * 10)
    with pytest.raises(ChecksumMismatch), bucket.read("a/big", if_match='"other"'):
        pass
    with pytest.raises(BackendUnavailable) as caught, bucket.read("a/none"):
        pass
    assert caught.value.facts["status"] == 404
    bucket.delete("a/big")
    bucket.delete("a/big")
    assert bucket.head("a/big") is None


def test_remote_objects(bucket):
    """Objects of a fleet are found under their hash; equal bytes are one object; rot is noticed."""
    objects = RemoteObjects(bucket, "kfm")
    for body in (b"small", b"large" * 3_000_000, b"small"):
        staging, offset = objects.stage("key")
        assert offset == 0
        staging.write(body)
        sha256, size = staging.commit()
        assert (sha256, size) == (hashlib.sha256(body).hexdigest(), len(body))
        reader = objects.open(sha256)
        assert b"".join(iter(lambda reader=reader: reader.read(1 << 20), b"")) == body
        reader.close()
    assert sorted(objects.all()) == sorted(
        hashlib.sha256(b).hexdigest() for b in (b"small", b"large" * 3_000_000)
    )
    small = hashlib.sha256(b"small").hexdigest()
    bucket.put(f"kfm/sha256/{small[:2]}/{small[2:]}", b"SMALL")
    reader = objects.open(small)
    reader.read(100)
    with pytest.raises(StoreCorrupt):
        reader.read(100)
    reader.close()
    staging, _ = objects.stage()
    staging.write(b"small")
    assert staging.commit()[0] == small
    assert objects.open(small).read(100) == b"small"  # the same bytes replace what was damaged
    objects.delete(small)
    assert not objects.has(small)
    with pytest.raises(StoreCorrupt):
        objects.open(small)


def test_folder_as_bucket(tmp_path):
    """A folder stands in for a bucket when reading."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.nc").write_bytes(b"abc")
    bucket = open_bucket(f"file://{tmp_path}")
    assert [stat.key for stat in bucket.list("x/")] == ["x/a.nc"]
    with bucket.read("x/a.nc", offset=1) as (_, stream):
        assert b"".join(stream) == b"bc"
    with pytest.raises(BackendUnavailable, match="conditional"):
        bucket.put("x/a.nc", b"", if_match='"1"')


def test_a_server_that_is_away():
    """A server that is away is an error that may pass, and shows no credentials."""
    options = {
        "endpoint": "http://127.0.0.1:1",
        "access_key_id": "AKIDAKID",
        "secret_access_key": "s3cr3t-key",
    }
    with pytest.raises(BackendUnavailable) as caught:
        open_bucket("s3://b", {**options, "region": "x"}).head("k")
    assert caught.value.facts == {"transient": True}
    assert "s3cr3t" not in str(caught.value)


def test_configuration_errors(monkeypatch):
    """A wrong option and a missing extra are named."""
    with pytest.raises(ConfigError, match="bogus"):
        open_bucket("s3://b", {"bogus": "1"})
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(ExtraMissing, match=r"kfm-kernel\[objects\]"):
        open_bucket("s3://b")
