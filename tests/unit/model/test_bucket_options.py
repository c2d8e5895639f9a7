"""The options of buckets: which there are, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.model.bucket_options import PREFIXES, long_form, option_problems, options_of

pytestmark = pytest.mark.req("CLI-2", "UPD-6")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "bucket-options.md"


@pytest.mark.parametrize("scheme", sorted(PREFIXES))
def test_every_option_is_one_that_the_client_knows(scheme: str) -> None:
    """Its short form and its long one: neither is refused as unknown, whatever is said of the value."""
    stores = pytest.importorskip("obstore.store")
    from obstore.exceptions import UnknownConfigurationKeyError

    for name in options_of(scheme):
        for form in {name, long_form(scheme, name)} - {"allow_http"}:
            try:
                stores.from_url(f"{scheme}://name", config={form: "true"})
            except UnknownConfigurationKeyError:
                pytest.fail(form)
            except Exception:  # the value, or one that is missing beside it
                continue


@pytest.mark.parametrize("scheme", sorted(PREFIXES))
def test_every_option_is_documented(scheme: str) -> None:
    """The reference names each."""
    section = PAGE.read_text().partition(f"## `{scheme}://`")[2].partition("## ")[0]
    assert {name for name in options_of(scheme) if f"`{name}`" not in section} == {"allow_http"}
    assert "`allow_http`" in PAGE.read_text()


@pytest.mark.parametrize(
    ("address", "option", "value", "sentence"),
    [
        ("s3://b", "aws_regoin", "x", "no option `aws_regoin`; did you mean `aws_region`?"),
        ("s3://b", "aws_allow_http", "true", "no option `aws_allow_http`; did you mean `allow_http`?"),
        ("s3://b", "timeout", "5", "no option `timeout`"),
        ("gs://b", "region", "x", "a bucket of `gs://` has no option `region`"),
        ("az://b", "acount_name", "x", "did you mean `account_name`?"),
        ("s3://b", "skip_signature", "maybe", "`skip_signature` must be `true` or `false`"),
        ("s3://b", "aws_endpoint", "127.0.0.1:9000", "must begin with `http://` or `https://`"),
        ("file:///b", "region", "x", "does not apply to a place that begins with `file://`"),
    ],
)
def test_what_the_client_would_not_understand(address: str, option: str, value: str, sentence: str) -> None:
    """Each is told with the nearest right word."""
    ((name, told),) = option_problems(address, {option: value})
    assert name == option
    assert sentence in told


def test_what_is_right_is_right() -> None:
    """In either form, in any case, and where a value is a reference."""
    given = {
        "AWS_REGION": "us-east-1",
        "aws_access_key_id": "env:KEY",
        "secret_access_key": "file:secret",
        "allow_http": "true",
        "skip_signature": "env:SKIP",
        "endpoint_url": "http://127.0.0.1:9000",
    }
    assert list(option_problems("s3://b", given)) == []
