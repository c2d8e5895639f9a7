"""Which values a process knows to be secrets."""

from __future__ import annotations

import json

import pytest

from kfm.config.loader import load

pytestmark = pytest.mark.req("RS-13")


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("from-a-file\n")
    for name, value in {
        "A_HEADER": "Bearer abcdefghij",
        "A_REGION": "us-east-1",
        "A_KEY": "bucket-key-1",
    }.items():
        monkeypatch.setenv(name, value)
    source = {
        "id": "s",
        "dataset": "d",
        "kind": "http",
        "url": "https://example.org/x",
        "headers": {"Authorization": "env:A_HEADER", "Accept": "text/csv"},
        "params": {"appid": "file:token", "gone": "env:NOT_SET"},
    }
    bucket = {"id": "b", "dataset": "d", "kind": "bucket", "bucket": "s3://x"}
    options = {"region": "env:A_REGION", "secret_access_key": "env:A_KEY"}
    (tmp_path / "kfm.json").write_text(
        json.dumps(
            {
                "version": 1,
                "datasets": [{"id": "d"}],
                "sources": [source, {**bucket, "bucket_options": options}],
                "store": "sqlite:state.db",
            }
        )
    )
    return load(str(tmp_path / "kfm.json"))


def test_what_references_stand_for(loaded):
    """Headers and parameters; of a bucket's options those with a secret's name; none that is not set."""
    assert sorted(loaded.referenced_secrets()) == ["Bearer abcdefghij", "bucket-key-1", "from-a-file"]


def test_what_the_names_of_variables_tell(loaded, monkeypatch, tmp_path):
    """A password by its name; not a short one, not the path of a file, not any other variable."""
    monkeypatch.setenv("DB_PASSWORD", "open-sesame-1")
    monkeypatch.setenv("SHORT_TOKEN", "abc")
    monkeypatch.setenv("SOME_CREDENTIALS", str(tmp_path))
    monkeypatch.setenv("A_COLOUR", "ultramarine")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=otlp-secret-2,y=z")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__AUTH", '{"type": "api_key", "apiKey": "lineage-key-3"}')
    text = f"open-sesame-1 abc {tmp_path} ultramarine otlp-secret-2 lineage-key-3 us-east-1 from-a-file"
    assert loaded.discretion.hide(text) == f"*** abc {tmp_path} ultramarine *** *** us-east-1 ***"


def test_they_are_read_when_first_needed(tmp_path, monkeypatch):
    """Reading a configuration reads no secret."""
    (tmp_path / "kfm.json").write_text('{"version": 1, "lineage": {"token": "env:LATER"}}')
    loaded = load(str(tmp_path / "kfm.json"))
    monkeypatch.setenv("LATER", "set-afterwards")
    assert loaded.discretion.hide("set-afterwards") == "***"
