"""Providers beside aws, azure and gcp: the configuration names them, and their objects are their own."""

from __future__ import annotations

import json

import pytest

from kfm.config.section_checks import ingest_problems
from kfm.model.errors import ConfigError
from kfm.model.settings import GenericBucketSettings, Ingest, IngestProvider, IngestQueue, Settings
from kfm.model.units import canonical_object_uri, is_plain, plain_wal_id, provider_of, scheme_of, wal_id
from kfm.nodd.dataset_registry import Generic, IntakePolicy, load_registry
from kfm.nodd.grammar import Place
from kfm.nodd.intake import IntakeBuilder, KeyCache, split
from kfm.nodd.messages.announcement import RefusedRecord
from kfm.nodd.messages.record_outcomes import Arrival, parse_message
from kfm.objects.upstream import CloudUpstream
from kfm.ports import QueueMessage

KEY = "hrrr.20260314/conus/hrrr.t12z.wrfsfcf03.grib2"
BUCKET = "noaa-hrrr-bdp-pds"
COPIES = IntakePolicy(
    copies=(("hrrr", Place(bucket=BUCKET, provider="ceph", home=False)),),
    generic=(Generic(dataset="gauges", bucket="rivers", provider="ceph"),),
)


def s3_event(bucket: str = BUCKET, key: str = KEY) -> bytes:
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventName": "ObjectCreated:Put",
        "eventTime": "2026-03-14T13:00:00.000Z",
        "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 7, "eTag": "0" * 32}},
    }
    return json.dumps({"Records": [record]}).encode()


@pytest.mark.req("WAL-19")
def test_an_address_says_whose_object_it_is() -> None:
    """Scheme and provider follow from each other, for those that are built in and for all others."""
    for provider in ("aws", "azure", "gcp", "ceph", "noaa-minio"):
        assert provider_of(scheme_of(provider)) == provider
    assert scheme_of("ceph") == "s3+ceph"
    assert [provider_of(scheme) for scheme in ("http", "s3+", "s3+-", "s3+Ceph")] == [None] * 4
    assert canonical_object_uri("s3+ceph://b/a%20b") == "s3+ceph://b/a b"
    assert split("s3+ceph://b/k/x") == ("ceph", "b", "k/x")
    plain = "s3+ceph://b/k"
    assert is_plain(plain)
    assert plain_wal_id("d", plain, 0) == wal_id("d", plain, 0)


@pytest.mark.req("WAL-19")
def test_item_ids_are_per_provider() -> None:
    """A copy of a known dataset at another provider is an object, a unit and an item of its own."""
    registry = load_registry(COPIES)
    home, copy = registry.read("aws", BUCKET, KEY), registry.read("ceph", BUCKET, KEY)
    assert home.dataset == copy.dataset == "hrrr"
    assert copy.object_uri == f"s3+ceph://{BUCKET}/{KEY}"
    assert home.wal_id != copy.wal_id
    assert home.stac_item_id != copy.stac_item_id
    other = load_registry(
        IntakePolicy(copies=(("hrrr", Place(bucket=BUCKET, provider="minio", home=False)),))
    ).read("minio", BUCKET, KEY)
    assert other.stac_item_id not in (home.stac_item_id, copy.stac_item_id)
    assert registry.providers_of(BUCKET) == ("aws", "ceph")


@pytest.mark.req("WAL-19")
def test_a_queue_says_whose_buckets_its_messages_mean() -> None:
    """S3's form of a message names a bucket and no provider: the queue's setting does."""
    registry = load_registry(COPIES)
    settings = Ingest(queues=(IngestQueue(name="q", kind="folder", path="q", provider="ceph"),))
    for bucket, dataset in ((BUCKET, "hrrr"), ("rivers", "gauges")):
        builder = IntakeBuilder(
            registry, settings.policy_of, KeyCache(registry), "q", 0, settings.provider_of("q")
        )
        builder.add(QueueMessage(body=s3_event(bucket), receipt="r", message_id="m"))
        (taken,) = builder.batch().arrivals
        assert (taken.unit.provider, taken.unit.dataset) == ("ceph", dataset)
        assert taken.unit.object_uri.startswith(f"s3+ceph://{bucket}/")
    (outcome,) = parse_message(s3_event(), registry, 0)
    assert isinstance(outcome, Arrival)
    assert outcome.reading.provider == "aws"


@pytest.mark.req("WAL-19", "WAL-20")
def test_messages_of_servers_that_speak_s3() -> None:
    """MinIO and Ceph name themselves as the source: taken where the queue is theirs, never for Amazon's."""
    registry = load_registry(COPIES)
    for source in (b"minio:s3", b"ceph:s3"):
        body = s3_event().replace(b"aws:s3", source)
        (outcome,) = parse_message(body, registry, 0, "ceph")
        assert isinstance(outcome, Arrival)
        assert outcome.reading.provider == "ceph"
        (refused,) = parse_message(body, registry, 0)
        assert isinstance(refused, RefusedRecord)
        assert refused.error_code == "BUCKET_UNKNOWN"


@pytest.mark.req("WAL-19", "CLI-2")
def test_what_is_said_of_providers_is_checked() -> None:
    """A provider that is not configured, or is called like a built-in one, is named with its place."""
    wrong = Ingest(
        providers=(IngestProvider(name="aws"), IngestProvider(name="Ceph", buckets={"s3://b": "X"})),
        generic=(GenericBucketSettings(bucket="b", dataset="d", provider="cehp"),),
    )
    places = [path for path, _ in ingest_problems(Settings(ingest=wrong))]
    assert places == [
        "ingest.providers[0].name",
        "ingest.providers[1].name",
        "ingest.providers[1].buckets.s3://b",
        "ingest.providers[1].buckets.s3://b",
        "ingest.generic[0].provider",
    ]
    right = Ingest(
        providers=(IngestProvider(name="ceph", buckets={BUCKET: "hrrr"}),),
        generic=(GenericBucketSettings(bucket="b", dataset="d", provider="ceph"),),
    )
    assert list(ingest_problems(Settings(ingest=right))) == []


@pytest.mark.req("WAL-19")
def test_objects_of_another_provider_are_read_at_its_endpoint() -> None:
    """Nothing is looked for at Amazon: without an endpoint the client refuses, and says what is missing."""
    silent = CloudUpstream()
    with pytest.raises(ConfigError, match="ceph"):
        silent.head(f"s3+ceph://{BUCKET}/{KEY}")
    CloudUpstream(options={"s3+ceph://*": {"endpoint": "https://ceph.example"}}).check()
