"""What a configuration may say about webhooks and the service, and what becomes of their secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kfm.config.loader import Loaded, load
from kfm.config.origins import leaves, public, public_document
from kfm.config.section_checks import webhook_secrets, webhook_warnings
from kfm.model.errors import ConfigError, SecretNotFound
from kfm.model.redaction import MASK
from kfm.runs.transform import output_version
from tests.webhook_samples import source

pytestmark = pytest.mark.req("UPD-12")

RIGHT = """\
version: 1
datasets: [{id: rivers}]
sources:
  - id: gauges
    dataset: rivers
    kind: files
    folder: in
    webhook:
      secrets: [env:HOOK_NEW, file:hook.secret]
      signature: hmac
      tolerance_seconds: 120
      approval: required
serve:
  port: 8400
"""


def loaded(folder: Path, text: str = RIGHT) -> Loaded:
    (folder / "kfm.yml").write_text(text)
    return load(str(folder / "kfm.yml"), {}, {})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[env:HOOK_NEW, file:hook.secret]", "[]", "name at least one"),
        ("env:HOOK_NEW", "s3cr3t-s3cr3t-s3cr3t", "`secrets` holds a secret"),
        ("env:HOOK_NEW, ", "env:A, env:B, env:C, env:D, env:E, env:F, env:G, env:H, ", "at most 8"),
        ("env:HOOK_NEW", "file:hook.secret", "names this one twice"),
        ("tolerance_seconds: 120", "tolerance_seconds: 0", "`tolerance_seconds` must be from 1"),
        ("tolerance_seconds: 120", "tolerance_seconds: 100000", "`tolerance_seconds` must be from 1"),
        ("signature: hmac", "signature: md5", "signature"),
        ("approval: required", "approval: perhaps", "approval"),
        ("port: 8400", "port: 70000", "`port` must be"),
        ("port: 8400", "runners: 0", "`runners` must be"),
        ("port: 8400", "body_bytes_max: 10", "`body_bytes_max` must be"),
        ("port: 8400", "late_seconds: 0.5", "`late_seconds` must be"),
    ],
)
def test_a_wrong_one_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    """By the field, and without any secret."""
    assert old in RIGHT
    with pytest.raises(ConfigError, match=said) as caught:
        loaded(tmp_path, RIGHT.replace(old, new))
    assert "s3cr3t" not in str(caught.value)


def test_secrets_are_known_as_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the references stand for is masked wherever kfm says something."""
    monkeypatch.setenv("HOOK_NEW", "one-secret-of-the-hook")
    (tmp_path / "hook.secret").write_text("another-secret-of-the-hook\n")
    found = loaded(tmp_path)
    assert webhook_secrets(found.settings.sources[0], found.secret) == (
        "one-secret-of-the-hook",
        "another-secret-of-the-hook",
    )
    said = found.discretion("with one-secret-of-the-hook and another-secret-of-the-hook")
    assert said == f"with {MASK} and {MASK}"


def test_a_secret_that_is_missing_or_short_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service whose secrets can be guessed, or are not there, does not begin; it says which."""
    (tmp_path / "hook.secret").write_text("another-secret-of-the-hook\n")
    found = loaded(tmp_path)
    one = found.settings.sources[0]
    monkeypatch.delenv("HOOK_NEW", raising=False)
    with pytest.raises(SecretNotFound, match="HOOK_NEW"):
        webhook_secrets(one, found.secret)
    monkeypatch.setenv("HOOK_NEW", "short")
    with pytest.raises(ConfigError, match=r"env:HOOK_NEW.*fewer than 16"):
        webhook_secrets(one, found.secret)
    monkeypatch.setenv("HOOK_NEW", "another-secret-of-the-hook")
    with pytest.raises(ConfigError, match="the same secret"):
        webhook_secrets(one, found.secret)


def test_what_is_shown(tmp_path: Path) -> None:
    """`kfm config show` prints the references and how it is signed; never what would be a secret itself."""
    found = loaded(tmp_path)
    shown = dict(leaves(found.settings))
    assert shown["sources[0].webhook.secrets"] == ["env:HOOK_NEW", "file:hook.secret"]
    assert shown["sources[0].webhook.signature"] == "hmac"
    assert public_document(found.settings)["sources"][0]["webhook"]["signature"] == "hmac"
    assert public("sources[0].webhook.secrets", ("plain text",)) == [MASK]
    assert public("sources[0].params.signature", "plain text") == MASK


def test_the_older_form_is_warned_of(tmp_path: Path) -> None:
    """A person who starts a service that takes sha256(secret + body) is told by which source."""
    assert webhook_warnings(loaded(tmp_path).settings) == []
    old = loaded(tmp_path, RIGHT.replace("signature: hmac", "signature: legacy-concat"))
    (warning,) = webhook_warnings(old.settings)
    assert "gauges" in warning


def test_who_may_ask_does_not_change_what_comes_out() -> None:
    """Another secret, or a webhook at all, re-runs nothing."""
    with_webhook = source()
    without = replace(with_webhook, webhook=None)
    assert output_version(with_webhook, (), lambda _: b"") == output_version(without, (), lambda _: b"")
