"""`kfm webhook`: secrets, signed requests, and a real service that takes them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfm.model.times import parse_rfc3339
from kfm.model.webhook_signatures import standard_secret
from kfm.model.webhooks import WebhookEnvelope, read_webhook, receiver
from tests.acceptance.cli.conftest import CONFIG, Called
from tests.webhook_samples import SECRET, source

pytestmark = pytest.mark.req("UPD-12")
Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]


@pytest.fixture
def hooked(project: Path) -> Path:
    """The source `daily` may be asked for."""
    text = CONFIG.replace("folder: incoming}", "folder: incoming, webhook: {secrets: [file:hook.secret]}}", 1)
    (project / "kfm.yml").write_text(text)
    (project / "hook.secret").write_text(SECRET + "\n")
    (project / "incoming" / "a.csv").write_text("a,1\n")
    return project


def test_a_secret(kfm: Kfm, valid: Valid) -> None:
    """New each time, and good for every scheme."""
    one, two = kfm("webhook", "secret", "--json"), kfm("webhook", "secret")
    valid("webhook-secret", one.document)
    assert one.document["secret"] != two.out.strip()
    assert len(standard_secret(two.out.strip())) == 32


@pytest.mark.parametrize("scheme", ["kfm", "standard", "github"])
def test_what_is_signed_is_understood(hooked: Path, kfm: Kfm, valid: Valid, scheme: str) -> None:
    """The headers and the body that are printed pass the service's own check; the secret is not printed."""
    called = kfm("webhook", "sign", "daily", "--scheme", scheme, "--uuid", "u-7", "--dry-run", "--json")
    valid("webhook-sign", called.document)
    assert SECRET not in called.out + called.err
    body = called.document["body"].encode()
    headers = {name.lower(): value for name, value in called.document["headers"].items()}
    sent = json.loads(body).get("sent_at")
    now_ms = parse_rfc3339(sent) if sent else int(headers.get("webhook-timestamp", 1_790_000_000)) * 1000
    to = receiver(_daily(), (SECRET,))
    found = read_webhook(to, headers, body, now_ms)
    assert isinstance(found, WebhookEnvelope)
    assert found.dry_run
    assert found.request_uuid in ("u-7", "daily/id/u-7")
    assert called.document["curl"].startswith("curl -sS -X POST -H 'Content-Type: application/json'")


def _daily() -> Any:
    from msgspec.structs import replace

    return replace(source(), id="daily")


def test_a_body_of_ones_own(hooked: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file or standard input, byte by byte; options that would have to stand in it are refused."""
    (hooked / "push.json").write_bytes(b'{"ref":  "main"}\n')
    called = kfm("webhook", "sign", "daily", "push.json", "--scheme", "github", "--json")
    assert called.document["body"] == '{"ref":  "main"}\n'
    assert "@push.json" in called.document["curl"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"{}"), isatty=lambda: False))
    assert kfm("webhook", "sign", "daily", "-", "--scheme", "github", "--json").document["body"] == "{}"
    refused = kfm("webhook", "sign", "daily", "push.json", "--dry-run")
    assert refused.code == 2
    assert "--dry-run can't be given beside FILE" in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "Those that have one: daily"),
        (("hourly",), "Those that have one: daily"),
        (("daily", "--secret", "a-plain-secret-text"), "takes a reference"),
        (("daily", "--url", "http://example.org/hooks/daily"), "plain http"),
        (("daily", "--url", "ftp://127.0.0.1/"), "must begin with http"),
        (("daily", "gone.json"), "can't be read"),
        (("daily", "--scheme", "github", "--window", "P1D"), "--scheme kfm only"),
    ],
)
def test_what_can_not_be_sent(hooked: Path, kfm: Kfm, arguments: tuple[str, ...], said: str) -> None:
    """Usage errors name the way out; nothing is sent anywhere."""
    called = kfm("webhook", "send", *arguments)
    assert called.code == 2
    assert said in called.err
    assert "a-plain-secret-text" not in called.out


def test_without_a_configuration(project: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender elsewhere needs only a secret and an address."""
    (project / "kfm.yml").unlink()
    monkeypatch.setenv("HOOK", SECRET)
    address = ("--secret", "env:HOOK", "--url", "https://example.org/hooks/x")
    called = kfm("webhook", "sign", "x", *address, "--json")
    assert called.document["url"] == "https://example.org/hooks/x"
    assert SECRET not in called.out
    assert kfm("webhook", "sign", "x").code == 2


@contextmanager
def serving() -> Iterator[str]:
    """The address of a real `kfm serve`."""
    command = [sys.executable, "-m", "kfm", "serve", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("serving "):
                yield line.split()[1].rstrip("/;")
                break
        else:
            pytest.fail("the service did not start")
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture
def service(hooked: Path) -> Iterator[str]:
    with serving() as address:
        yield address


def until(kfm: Kfm, request_id: str, *states: str) -> dict[str, Any]:
    """The request, once it is in one of these states."""
    for _ in range(2_000):
        shown: dict[str, Any] = kfm("requests", "show", request_id, "--json").document["request"]
        if shown["state"] in states:
            return shown
    pytest.fail(f"it stays {shown['state']}: {shown['reason']}")


@pytest.mark.req("TRG-4", "TRG-9")
def test_a_real_service_takes_it(hooked: Path, service: str, kfm: Kfm, valid: Valid) -> None:
    """A preview changes nothing, the request publishes, its second use is refused and names the first."""
    address = ("daily", "--url", f"{service}/hooks/daily", "--json")
    preview = kfm("webhook", "send", *address, "--uuid", "u-1", "--dry-run")
    valid("webhook-send", preview.document)
    assert (preview.code, preview.document["status"]) == (0, 200)
    assert preview.document["answer"]["plan"]["tally"]["added"] == 1
    assert not (hooked / "published").exists()
    accepted = kfm("webhook", "send", *address, "--uuid", "u-1", "--rationale", "of the gauge")
    assert (accepted.code, accepted.document["status"]) == (0, 202)
    again = kfm("webhook", "send", *address, "--uuid", "u-1")
    valid("webhook-send", again.document)
    assert (again.code, again.document["status"]) == (3, 409)
    first = accepted.document["answer"]["request_id"]
    assert again.document["answer"]["request_id"] == first
    (hooked / "other.secret").write_text("whsec_" + "QUJD" * 12)
    stranger = kfm("webhook", "send", *address, "--secret", "file:other.secret")
    assert (stranger.code, stranger.document["status"]) == (3, 403)
    logged = (hooked / ".kfm" / "webhook_failures.jsonl").read_text()
    assert [json.loads(line)["reason"] for line in logged.splitlines()] == ["reused", "mismatch"]
    assert "of the gauge" not in logged
    shown = until(kfm, first, "done")
    assert (shown["outcome"], shown["actor"]) == ("success", "webhook:daily")
    assert shown["plan_digest"] == preview.document["answer"]["plan"]["digest"]


@pytest.mark.req("TRG-5")
def test_lineage_tells_of_the_envelope(hooked: Path, service: str, kfm: Kfm) -> None:
    """Its hash, who asked, why, and the verdict on its signature; nothing of what it said."""
    url = f"{service}/hooks/daily"
    sent = kfm("webhook", "send", "daily", "--url", url, "--rationale", "of the gauge", "--json").document
    shown = until(kfm, sent["answer"]["request_id"], "done")
    events = kfm("lineage", "show", shown["run_id"], "--events", "--json").out
    assert "of the gauge" not in events
    facets = json.loads(events)[0]["run"]["facets"]
    told = {name: facets["kfmTrigger"][name] for name in ("type", "actor", "reason", "signature")}
    assert told == {"type": "webhook", "actor": "webhook:daily", "reason": "kfm.test", "signature": "kfm ok"}
    assert facets["kfmTrigger"]["envelope_sha256"] == shown["envelope_hash"]
    digest = hashlib.sha256(sent["request"]["body"].encode()).hexdigest()
    assert shown["envelope_hash"] == f"sha256:{digest}"
    assert all(gate["allowed"] for gate in facets["kfmGates"]["gates"])


@pytest.mark.slow
@pytest.mark.req("TRG-4", "GOV-3")
def test_another_person_approves_first(hooked: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `approval: required` the preview waits for an approver; who runs the service can not be it."""
    token = "a token of ann that is long enough"
    people = [
        {"subject": "service", "roles": ["operate"], "accounts": [pwd.getpwuid(os.getuid()).pw_name]},
        {
            "subject": "ann",
            "roles": ["approve"],
            "tokens": [f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"],
        },
    ]
    text = (hooked / "kfm.yml").read_text().replace("hook.secret]", "hook.secret], approval: required")
    (hooked / "kfm.yml").write_text(f"{text}people: {json.dumps(people)}\n")
    with serving() as address:
        sent = kfm("webhook", "send", "daily", "--url", f"{address}/hooks/daily", "--json").document
        request_id = sent["answer"]["request_id"]
        shown = until(kfm, request_id, "awaiting-approval", "done")
        assert shown["state"] == "awaiting-approval"
        assert not (hooked / "published").exists()
        approval = shown["reason"].split()[-3]  # before --rationale TEXT
        assert kfm("approve", approval, "--rationale", "of my own").code == 3
        monkeypatch.setenv("KFM_TOKEN", token)
        assert kfm("approve", approval, "--rationale", "it is what was announced").code == 0
        monkeypatch.delenv("KFM_TOKEN")
        done = until(kfm, request_id, "done")
    assert (done["outcome"], done["plan_digest"]) == ("success", shown["plan_digest"])
    assert (hooked / "published").exists()


def test_doctor_looks_at_the_secrets(hooked: Path, kfm: Kfm) -> None:
    """One that is missing or too short is told before the service is started; so is the older form."""

    def told() -> list[tuple[str, str]]:
        findings = kfm("doctor", "--offline", "--json").document["checks"]
        return [(one["state"], one["message"]) for one in findings if one["name"] == "webhook"]

    assert told() == []
    text = (hooked / "kfm.yml").read_text()
    (hooked / "kfm.yml").write_text(text.replace("hook.secret]", "hook.secret], signature: legacy-concat"))
    assert [state for state, _ in told()] == ["warn"]
    (hooked / "hook.secret").write_text("short")
    ((state, message),) = told()
    assert state == "fail"
    assert "file:hook.secret" in message
