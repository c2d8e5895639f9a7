"""Objects of a bucket, several sources in one, and sources from plugins."""

from __future__ import annotations

import pytest

from kfm.model.errors import ChecksumMismatch, ConfigError, LimitExceeded, PluginConflict, UpstreamUnavailable
from kfm.model.records import Window
from kfm.model.settings import Limits, Settings, SourceSettings, Target
from kfm.objects.bucket_client import ObstoreBucket
from kfm.sources import source_kinds
from kfm.sources.source_kinds import Tools, make_source
from tests.stand_ins import START_MS, FakeClock

pytest.importorskip("obstore")

DAY = Window(start_ms=START_MS, end_ms=START_MS + 86_400_000, spec="P1D")


@pytest.fixture
def bucket():
    from obstore.store import MemoryStore

    bucket = ObstoreBucket(MemoryStore(), "memory")
    for key in ("2026/001/a.nc", "2026/001/b.nc", "2026/001/b.txt", "2026/002/a.nc", "2026/001x/a.nc"):
        bucket.put(key, f"content of {key}".encode())
    return bucket


def tools(bucket=None, limits=Limits(), seen=None):  # noqa: B008
    def open_bucket(url, options):
        if seen is not None:
            seen.append((url, dict(options)))
        return bucket

    return Tools(
        http=None,
        guard=lambda call: call(1000),
        clock=FakeClock(),
        open_bucket=open_bucket,
        resolve_secret=lambda value: value.replace("env:KEY", "s3cr3t"),
        resolve_path=lambda path: path,
        limits=limits,
    )


def bucket_source(bucket, limits=Limits(), seen=None, **more):  # noqa: B008
    more = {"prefix": "{window.start:%Y/%j}/", "pattern": "*.nc", **more}
    source = SourceSettings(
        id="src", dataset="ds", kind="bucket", bucket="s3://noaa", **{"mode": "replace", **more}
    )
    return make_source(source, Settings(sources=(source,)), tools(bucket, limits, seen))


def taken(source, found, offset=0):
    with source.open(found, offset) as download:
        return download.offset, b"".join(download.chunks())


@pytest.mark.req("RS-6")
def test_listing(bucket):
    """The window chooses the prefix; address, ETag and size identify each object."""
    found = bucket_source(bucket).discover(DAY)
    assert [one.uri for one in found] == ["s3://noaa/2026/001/a.nc", "s3://noaa/2026/001/b.nc"]
    assert [one.path for one in found] == ["2026/001/a.nc", "2026/001/b.nc"]
    assert all(one.etag and one.size == len("content of 2026/001/a.nc") and one.modified_ms for one in found)


def test_prefix_within_a_name(bucket):
    """A prefix may end in the middle of a name."""
    found = bucket_source(bucket, prefix="2026/001/b", pattern="*", path="{relpath}").discover(DAY)
    assert [one.path for one in found] == ["b.nc", "b.txt"]


def test_reading_and_change(bucket):
    """Objects are read from any offset; one that was replaced meanwhile is not taken for the old one."""
    source = bucket_source(bucket)
    found = source.discover(DAY)[0]
    assert taken(source, found, 8) == (8, b"of 2026/001/a.nc")
    bucket.put("2026/001/a.nc", b"content of 2026/001/A.nc")
    with pytest.raises(ChecksumMismatch) as caught:
        taken(source, found, 8)
    assert caught.value.facts == {"transient": False, "retryable": True}
    bucket.delete("2026/001/a.nc")
    with pytest.raises(UpstreamUnavailable):
        taken(source, found)


def test_bounds(bucket):
    """A listing longer than the limit stops."""
    with pytest.raises(LimitExceeded):
        bucket_source(bucket, limits=Limits(objects_per_run_max=1)).discover(DAY)


def test_secrets_are_resolved_at_use(bucket):
    """Credentials are read when the bucket is first used, not when it is configured."""
    seen = []
    source = bucket_source(bucket, seen=seen, bucket_options={"secret_access_key": "env:KEY", "region": "x"})
    assert seen == []
    source.discover(DAY)
    source.discover(DAY)
    assert seen == [("s3://noaa", {"secret_access_key": "s3cr3t", "region": "x"})]


@pytest.mark.req("UPD-16")
def test_sync_of_several_sources(bucket, tmp_path):
    """Members stand side by side in folders of their own, and each is read from its own source."""
    (tmp_path / "a.csv").write_text("files")
    files = SourceSettings(
        id="local", dataset="ds", kind="files", folder=str(tmp_path), pattern="*.csv", mode="replace"
    )
    cloud = SourceSettings(
        id="cloud", dataset="ds", kind="bucket", bucket="s3://noaa", prefix="2026/002/", mode="replace"
    )
    both = SourceSettings(id="both", dataset="ds", kind="sync", members=("local", "cloud"))
    source = make_source(both, Settings(sources=(files, cloud, both)), tools(bucket))
    found = source.discover(DAY)
    assert [one.path for one in found] == ["cloud/2026/002/a.nc", "local/a.csv"]
    assert taken(source, found[0]) == (0, b"content of 2026/002/a.nc")
    with source.open(found[1], 2) as download:
        assert (download.offset, download.found.path) == (2, "local/a.csv")
        assert b"".join(download.chunks()) == b"les"


def test_syncs_are_not_nested():
    """A sync among the members is refused, not followed."""
    inner = SourceSettings(id="c", dataset="ds", kind="sync", members=("c",))
    with pytest.raises(ConfigError, match="a sync among its members"):
        make_source(inner, Settings(sources=(inner,)), tools())


def test_links_to_our_own_output_are_found_out(tmp_path):
    """A folder that only links reveal to be the target or the state is refused; a neighbour is not."""
    (tmp_path / "out").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "out")
    source = SourceSettings(id="src", dataset="ds", kind="files", folder=str(tmp_path / "alias"))
    target = Target(kind="local", path=str(tmp_path / "out"))
    state = str(tmp_path / "state")
    with pytest.raises(ConfigError, match=r"alias.*local target.*out"):
        make_source(source, Settings(sources=(source,), publish=(target,), state=state), tools())
    with pytest.raises(ConfigError, match="state folder"):
        make_source(source, Settings(sources=(source,), state=str(tmp_path / "out" / "state")), tools())
    assert make_source(source, Settings(sources=(source,), state=state), tools())


class Point:
    """An entry point, as an installed package declares it."""

    def __init__(self, name, value, dist):
        self.name, self.value, self.dist = name, value, type("Dist", (), {"name": dist})()

    def load(self):
        return lambda source, tools: (self.value, source.id)


def test_plugins(monkeypatch):
    """A plugin's kind is found by name; two of one name are an error that names both."""
    points = [Point("ftp", "one:make", "kfm-ftp")]
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: points if group == source_kinds.GROUP else []
    )
    source = SourceSettings(id="src", dataset="ds", kind="ftp")
    assert make_source(source, Settings(), tools()) == ("one:make", "src")
    points.append(Point("ftp", "two:make", "other-ftp"))
    with pytest.raises(PluginConflict, match=r"kfm-ftp.*other-ftp"):
        make_source(source, Settings(), tools())
    with pytest.raises(ConfigError, match="bucket"):
        make_source(SourceSettings(id="src", dataset="ds", kind="buckt"), Settings(), tools())
