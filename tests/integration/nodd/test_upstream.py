"""Announced objects where they lie: on an S3 server without credentials, and in folders that stand in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.model.errors import (
    ChecksumMismatch,
    ConfigError,
    LimitExceeded,
    ObjectMissing,
    UpstreamUnavailable,
    UsageError,
)
from kfm.model.retry import classify_exception
from kfm.model.units import Content
from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.inspect.inspection import inspect
from kfm.nodd.inspect.verdicts import Levels
from kfm.nodd.messages.record_outcomes import Arrival, parse_key
from kfm.objects import upstream as module
from kfm.objects.upstream import CloudUpstream, split_uri
from tests import services
from tests.nodd_objects import GOES_ATTRIBUTES, GOES_KEY, hdf5

ODD_KEY = "a b/x=y?z%20+é#1.bin"


class Place:
    """One bucket, behind the server or in a folder, that tests put objects into."""

    def __init__(self, upstream: CloudUpstream, bucket: str, put) -> None:
        self.upstream = upstream
        self.bucket = bucket
        self.put = put

    def uri(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"


@pytest.fixture(params=["mirror", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "mirror":

        def write(key: str, data: bytes) -> None:
            path = tmp_path / "bucket" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        (tmp_path / "bucket").mkdir()
        yield Place(CloudUpstream(mirrors={"noaa-goes19": str(tmp_path / "bucket")}), "noaa-goes19", write)
        return
    pytest.importorskip("obstore")
    endpoint, bucket = request.getfixturevalue("s3_endpoint"), request.getfixturevalue("s3_bucket")
    client = services.s3_client(endpoint)
    client.put_bucket_acl(Bucket=bucket, ACL="public-read")

    def put(key: str, data: bytes) -> None:
        client.put_object(Bucket=bucket, Key=key, Body=data, ACL="public-read")

    yield Place(CloudUpstream(options={"s3://*": {"endpoint": endpoint}}, timeout_ms=10_000), bucket, put)


def test_head_read_stream_list(place: Place) -> None:
    """Both tell the same of an object: size, an ETag that is its MD5, any range, all bytes, its key."""
    data = bytes(range(256)) * 100
    place.put(ODD_KEY, data)
    place.put("a b/empty", b"")
    uri = place.uri(ODD_KEY)
    stat = place.upstream.head(uri)
    assert stat is not None
    assert (stat.key, stat.size, stat.etag) == (ODD_KEY, len(data), f'"{hashlib.md5(data).hexdigest()}"')
    assert stat.modified_ms is not None
    assert place.upstream.read(uri, 256, 5) == bytes(range(5))
    assert place.upstream.read(uri, len(data) - 3, 100) == data[-3:]
    assert place.upstream.read(uri, len(data), 10) == place.upstream.read(uri, 10**9, 10) == b""
    assert place.upstream.read(place.uri("a b/empty"), 0, 10) == place.upstream.read(uri, 0, 0) == b""
    assert b"".join(place.upstream.stream(uri)) == data
    assert list(place.upstream.stream(place.uri("a b/empty"))) == []
    listed = {each.key: each for each in place.upstream.list("aws", place.bucket, "a b/")}
    assert listed.keys() == {ODD_KEY, "a b/empty"}
    assert listed[ODD_KEY].etag == stat.etag
    assert [each.key for each in place.upstream.list("aws", place.bucket, "a b/x")] == [ODD_KEY]
    assert list(place.upstream.list("aws", place.bucket, "none/")) == []


def test_missing_objects(place: Place) -> None:
    """HEAD says None; reading is an error of its own, which is worth another try."""
    uri = place.uri("not/there")
    assert place.upstream.head(uri) is None
    for call in (lambda: place.upstream.read(uri, 0, 5), lambda: list(place.upstream.stream(uri))):
        with pytest.raises(ObjectMissing) as caught:
            call()
        assert classify_exception(caught.value).retryable
        assert caught.value.code == "KFM410"


def test_large_objects_come_in_pieces(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream never holds more than a piece, whatever the object's size."""
    monkeypatch.setattr(module, "PIECE_BYTES", 1000)
    data = os.urandom(4500)
    place.put("large", data)
    pieces = list(place.upstream.stream(place.uri("large")))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 1000
    with pytest.raises(LimitExceeded):
        place.upstream.read(place.uri("large"), 0, module.READ_BYTES_MAX + 1)


def test_operators_over_upstream(place: Place) -> None:
    """Integrity and metadata of a real object, at every level, over a real protocol."""
    data = hdf5(GOES_ATTRIBUTES)
    place.put(GOES_KEY, data)
    outcome = parse_key("noaa-goes19", GOES_KEY, load_registry(), 1_798_761_600_000)
    assert isinstance(outcome, Arrival)
    import msgspec

    reading = msgspec.structs.replace(outcome.reading, object_uri=place.uri(GOES_KEY))
    announced = Content(etag=hashlib.md5(data).hexdigest(), size=len(data))
    for level in ("head", "magic", "full"):
        levels = Levels(integrity=level, metadata="header")  # type: ignore[arg-type]
        looked = inspect(reading, announced, levels, place.upstream, media_type="application/netcdf")
        assert (looked.integrity_status, looked.metadata_status, looked.content) == ("ok", "ok", None)
    assert looked.checksum == f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_replaced_during_a_stream(s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two halves of two objects never become one stream."""
    pytest.importorskip("obstore")
    monkeypatch.setattr(module, "PIECE_BYTES", 10)
    client = services.s3_client(s3_endpoint)
    client.put_object(Bucket=s3_bucket, Key="k", Body=b"a" * 25, ACL="public-read")
    stream = CloudUpstream(options={"s3://*": {"endpoint": s3_endpoint}}).stream(f"s3://{s3_bucket}/k")
    assert next(stream) == b"a" * 10
    client.put_object(Bucket=s3_bucket, Key="k", Body=b"b" * 25, ACL="public-read")
    with pytest.raises(ChecksumMismatch):
        next(stream)


def test_credentials_where_options_bring_them(s3_endpoint: str, s3_bucket: str) -> None:
    """Without credentials a private object is refused; with those of its bucket it is read."""
    pytest.importorskip("obstore")
    client = services.s3_client(s3_endpoint)
    client.put_object(Bucket=s3_bucket, Key="k", Body=b"mine")
    uri = f"s3://{s3_bucket}/k"
    with pytest.raises(UpstreamUnavailable) as caught:
        CloudUpstream(options={"s3://*": {"endpoint": s3_endpoint}}).head(uri)
    assert caught.value.facts["status"] == 403
    keys = {"access_key_id": services.S3_ACCESS_KEY, "secret_access_key": services.S3_SECRET_KEY}
    options = {f"s3://{s3_bucket}": {"endpoint": s3_endpoint, **keys}}
    assert CloudUpstream(options=options).read(uri, 0, 10) == b"mine"


def test_a_server_that_does_not_answer() -> None:
    """A server that is not there is an outage of upstream, which may pass."""
    pytest.importorskip("obstore")
    port = services.free_port()
    upstream = CloudUpstream(options={"s3://*": {"endpoint": f"http://127.0.0.1:{port}"}})
    with pytest.raises(UpstreamUnavailable) as caught:
        upstream.head("s3://bucket/key")
    assert not isinstance(caught.value, ObjectMissing)
    assert caught.value.facts.get("transient") is True


def test_a_mirror_has_no_way_out(tmp_path: Path) -> None:
    """Neither keys nor links lead out of a mirror's folder; folders and special files are no objects."""
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "bucket"
    (folder / "sub").mkdir(parents=True)
    (folder / "file").write_bytes(b"data")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "outside").symlink_to(tmp_path)
    (folder / "in").symlink_to(folder / "file")
    os.mkfifo(folder / "pipe")
    upstream = CloudUpstream(mirrors={"s3://b": str(folder)})
    for key in (
        "../secret", "sub/../../secret", "out", "outside/secret", "./file", "sub//x", "sub", "sub/", "pipe",
        "/etc/passwd", "file\0", "file/x",
    ):  # fmt: skip
        assert upstream.head(f"s3://b/{key}") is None
        with pytest.raises(ObjectMissing):
            upstream.read(f"s3://b/{key}", 0, 10)
    assert upstream.read("s3://b/in", 0, 10) == b"data"
    assert {each.key for each in upstream.list("aws", "b", "")} == {"file", "in"}
    assert list(upstream.list("aws", "b", "../")) == list(upstream.list("aws", "b", "outside/")) == []
    changed = upstream.head("s3://b/file")
    (folder / "file").write_bytes(b"more data")
    assert upstream.head("s3://b/file") != changed


def test_mirrors_of_many_buckets(tmp_path: Path) -> None:
    """One folder may stand in for all buckets, also those of two providers; a name leads nowhere else."""
    for where in ("one", "account/container"):
        (tmp_path / where).mkdir(parents=True)
        (tmp_path / where / "k").write_bytes(where.encode())
    upstream = CloudUpstream(mirrors={"*": str(tmp_path)})
    assert upstream.read("s3://one/k", 0, 99) == upstream.read("gs://one/k", 0, 99) == b"one"
    assert upstream.read("az://account/container/k", 0, 99) == b"account/container"
    with pytest.raises(UsageError):
        upstream.head("s3://../k")


def test_addresses() -> None:
    """Three schemes; whatever else is refused. A key is taken as it is."""
    assert split_uri("s3://b/k?x=%20#y") == ("s3", "b", "k?x=%20#y")
    assert split_uri("az://account/container/a/b") == ("az", "account/container", "a/b")
    for wrong in (
        "",
        "s3://",
        "s3://b",
        "s3://b/",
        "az://account/container",
        "http://b/k",
        "file:///etc/passwd",
    ):
        with pytest.raises(UsageError):
            split_uri(wrong)
    with pytest.raises(ConfigError):
        next(CloudUpstream().list("dropbox", "b", ""))
