"""Whose circuit a source's calls pass."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.model.breaker import is_provider_name, provider_of, providers_of
from kfm.model.settings import SourceSettings

pytestmark = pytest.mark.req("RET-7")


def source(**fields: Any) -> SourceSettings:
    return SourceSettings(**{"id": "s", "dataset": "d", "kind": "http", **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"url": "https://Api.Example.org/v1?key=1"}, "api.example.org"),
        ({"url": "https://user:secret@api.example.org:443/"}, "api.example.org"),
        ({"url": "http://127.0.0.1:8080/x"}, "127.0.0.1:8080"),
        ({"url": "https://api.example.org/", "provider": "usgs"}, "usgs"),
        ({"url": "https://{year}.example.org/"}, None),
        ({"url": "https://api.example.org:nonsense/"}, None),
        ({"kind": "bucket", "bucket": "s3://levels/"}, "s3://levels"),
        ({"kind": "bucket", "bucket": "file:///data"}, None),
        ({"kind": "files", "folder": "incoming"}, None),
        ({"kind": "own-plugin"}, None),
        ({"kind": "own-plugin", "provider": "usgs"}, "usgs"),
    ],
)
def test_the_name_follows_from_the_address(fields: dict[str, Any], expected: str | None) -> None:
    """What the configuration says, else the host or the bucket; never a credential."""
    assert provider_of(source(**fields)) == expected


def test_a_sync_calls_whomever_its_members_call() -> None:
    """Each provider once, in their order; members that call no provider add none."""
    members = {
        "a": source(url="https://one.example.org/a"),
        "b": source(kind="files", folder="x"),
        "c": source(url="https://two.example.org/"),
        "d": source(url="https://one.example.org/d"),
    }
    sync = source(kind="sync", members=tuple(members))
    assert providers_of(sync, members.__getitem__) == ("one.example.org", "two.example.org")
    assert providers_of(members["b"], members.__getitem__) == ()


@pytest.mark.parametrize(
    ("name", "fits"), [("usgs", True), ("s3://x", True), ("", False), ("a b", False), ("x" * 201, False)]
)
def test_names_can_be_typed(name: str, fits: bool) -> None:
    """One word of plain characters."""
    assert is_provider_name(name) is fits
