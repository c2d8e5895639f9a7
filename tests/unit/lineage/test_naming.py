"""Datasets are called what other tools call them, and nothing secret is in a name."""

from __future__ import annotations

import pytest

from kfm.lineage.facets import NAME_CHARS_MAX, below, dataset_name, source_uri

NAMES = {
    "s3://noaa-goes16/ABI/2026/001/x.nc": ("s3://noaa-goes16", "ABI/2026/001/x.nc"),
    "s3a://bucket/a%20b.csv": ("s3://bucket", "a b.csv"),
    "s3://key:secret@bucket/x": ("s3://bucket", "x"),
    "s3://bucket": ("s3://bucket", "/"),
    "gs://Bucket/x/y": ("gs://Bucket", "x/y"),
    "gcs://bucket/x": ("gs://bucket", "x"),
    "az://container/x": ("az://container", "x"),
    "https://water.example/dv?format=json&token=hunter22#top": ("https://water.example", "/dv"),
    "https://me:hunter22@Water.Example:443/dv": ("https://water.example", "/dv"),
    "http://water.example:8080": ("http://water.example:8080", "/"),
    "http://[::1]:8080/x": ("http://[::1]:8080", "/x"),
    "http://[::1]/x": ("http://[::1]", "/x"),
    "file:///srv/data/a%20b.csv": ("file", "/srv/data/a b.csv"),
    "/srv/data/a.csv": ("file", "/srv/data/a.csv"),
    "postgres://me:hunter22@db.example:5433/water/public/daily": (
        "postgres://db.example:5433",
        "water.public.daily",
    ),
    "postgresql://db.example/water.public.daily?password=hunter22": (
        "postgres://db.example:5432",
        "water.public.daily",
    ),
    "ftp://ftp.example/pub/x": ("ftp://ftp.example", "/pub/x"),
    "urn:isbn:123": ("urn", "isbn:123"),
    "plain words": ("kfm", "plain words"),
    "http://[broken/x": ("kfm", "***"),
    "": ("kfm", "/"),
}


@pytest.mark.req("UPD-15")
@pytest.mark.parametrize(("uri", "name"), NAMES.items())
def test_names_follow_the_convention(uri: str, name: tuple[str, str]) -> None:
    """A URI has the namespace and the name that OpenLineage's readers expect, without query or password."""
    assert dataset_name(uri) == name
    assert "hunter22" not in "".join(dataset_name(uri))


def test_long_names_are_cut_and_stay_apart() -> None:
    """A name beyond the limit is cut, and differs from its neighbours'."""
    one, other = (dataset_name(f"https://h/{'x' * 5000}{end}")[1] for end in "ab")
    assert len(one) == len(other) == NAME_CHARS_MAX
    assert one != other


@pytest.mark.parametrize(
    ("namespace", "uri"),
    [
        ("file", "file:///"),
        ("s3://b", "s3://b"),
        ("masked", "urn:kfm:namespace:masked"),
        ("kfm.dev é", "urn:kfm:namespace:kfm.dev%20%C3%A9"),
    ],
)
def test_a_namespace_has_an_address(namespace: str, uri: str) -> None:
    """Each namespace can be written as a URI."""
    assert source_uri(namespace) == uri


def test_a_file_is_named_below_its_dataset() -> None:
    """The name of a file begins with its dataset's."""
    assert below(("s3://b", ""), "x") == ("s3://b", "x")
    assert below(("file", "/srv/d/"), "a/b.csv") == ("file", "/srv/d/a/b.csv")
