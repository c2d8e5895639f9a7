"""The documented modules of the updater, under their documented names."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import click
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.config.loader import load
from kfm.model.contracts import require_valid
from kfm.model.records import GovernanceEntry
from kfm.model.times import parse_rfc3339
from kfm.model.webhook_signatures import sign_kfm, sign_standard
from tests.acceptance.cli.conftest import Called
from updater.idempotency import keygen, ledger
from updater.publisher import base, github_actions, noop
from updater.runner import runner
from updater.scheduler.webhook_validator import BODY_BYTES_MAX, validate

UPDATER = files("updater")
SAMPLE = json.loads(UPDATER.joinpath("fixtures/webhook_sample.json").read_text())
NOW_MS = parse_rfc3339(SAMPLE["now"])
BODY = SAMPLE["body"].encode()


@pytest.mark.req("UPD-17")
def test_the_modules_are_there() -> None:
    """Each documented module offers what it is named for."""
    assert issubclass(noop.NoopPublisher, base.Publisher)
    assert github_actions.GithubActions
    assert keygen.trigger_key
    assert ledger.open_ledger
    assert runner.list_commands(click.Context(runner)) == ["run"]


@pytest.mark.req("UPD-1", "UPD-17")
def test_the_runner_is_the_same_command(process: Callable[..., Called]) -> None:
    """`python -m updater.runner run …` takes the same flags and gives the same answer as `kfm run`."""
    arguments = ("run", "--config", "kfm.yml", "--window", "P1D", "--dry-run", "--source", "daily", "--json")
    mine, theirs = process(*arguments, module="updater.runner"), process(*arguments)
    assert mine.code == theirs.code
    results = [{**called.document["results"][0], "duration_ms": 0} for called in (mine, theirs)]
    for result in results:
        if result["plan"]:
            result["plan"]["made_at"] = ""
    assert results[0] == results[1]
    assert process("run", "--config", "none.yml", module="updater.runner").code == 2


@pytest.mark.req("UPD-17")
@pytest.mark.parametrize("name", ["config.example.yml", "sources.example.json"])
def test_the_example_configurations_load(name: str) -> None:
    """Both are whole configurations, and right."""
    loaded = load(str(UPDATER.joinpath("config_templates", name)), environ={})
    assert loaded.settings.sources


@pytest.mark.req("UPD-17")
@pytest.mark.parametrize("name", ["updater/scheduler/cron.yml", "kfm/templates/cron.yml"])
def test_the_example_schedules_are_schedules(name: str) -> None:
    """Each entry names a source, and its pattern, zone and window can be read."""
    from zoneinfo import ZoneInfo

    from cronsim import CronSim
    from ruamel.yaml import YAML

    from kfm.model.windows import resolve_window

    package, _, path = name.partition("/")
    document = YAML(typ="safe").load(files(package).joinpath(path).read_text())
    assert document["version"] == 1
    for schedule in document["schedules"]:
        assert set(schedule) == {"id", "source", "cron", "time_zone", "window"}
        assert next(CronSim(schedule["cron"], _moment().astimezone(ZoneInfo(schedule["time_zone"]))))
        assert resolve_window(schedule["window"], schedule["time_zone"], NOW_MS)


def _moment() -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(NOW_MS / 1000, UTC)


@pytest.mark.req("UPD-17")
def test_the_sample_record_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample of a ledger record matches its schema, and its keys are made of what it says."""
    record = json.loads(UPDATER.joinpath("fixtures/idempotency_sample.json").read_text())
    require_valid("idempotency", record)
    assert keygen.key_of(record["key_documents"]["trigger"]) == record["idempotency_key"]
    assert keygen.key_of(record["key_documents"]["work"]) == record["work_key"]
    assert keygen.run_id("example", record["work_key"]) == record["run_id"]


@pytest.mark.req("UPD-17")
def test_the_sample_webhook_verifies() -> None:
    """With its documented secret, at its moment, over its exact bytes."""
    answer = validate(SAMPLE["headers"], BODY, [SAMPLE["secret"]], NOW_MS)
    assert (answer.ok, answer.status, answer.secret_index) == (True, 202, 0)
    assert answer.payload is not None
    assert answer.payload.source_id == "usgs-daily"


WHSEC = "whsec_" + base64.b64encode(b"sample-secret-not-for-use").decode()


def _standard(body: bytes = BODY) -> dict[str, str]:
    seconds = NOW_MS // 1000
    return {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(seconds),
        "Webhook-Signature": sign_standard(WHSEC, "msg_1", seconds, body),
    }


def test_other_ways_of_signing() -> None:
    """Standard Webhooks and GitHub's header are understood; a rotated secret still counts."""
    assert validate(_standard(), BODY, ["older", WHSEC], NOW_MS).ok
    assert (
        validate({"X-Hub-Signature-256": sign_kfm(b"s", BODY)}, BODY, ["other", "s"], NOW_MS).secret_index
        == 1
    )


@pytest.mark.parametrize(
    ("headers", "body", "secrets", "later_ms", "status", "reason"),
    [
        ({}, BODY, ["s"], 0, 403, "missing"),
        ({"X-KFM-Signature": sign_kfm(b"s", BODY)}, BODY, [], 0, 403, "no-secret"),
        ({"X-KFM-Signature": sign_kfm(b"t", BODY)}, BODY, ["s"], 0, 403, "mismatch"),
        ({"X-KFM-Signature": sign_kfm(b"s", BODY)}, BODY + b" ", ["s"], 0, 403, "mismatch"),
        ({"X-KFM-Signature": "sha256=zz"}, BODY, ["s"], 0, 403, "malformed"),
        ({"X-KFM-Signature": sign_kfm(b"s", BODY)}, BODY, ["s"], 3_600_000, 403, "stale"),
        ({"X-KFM-Signature": sign_kfm(b"s", BODY)}, BODY, ["s"], -3_600_000, 403, "future"),
        ({"X-KFM-Signature": sign_kfm(b"s", b"{}")}, b"{}", ["s"], 0, 400, "malformed payload"),
        ({"X-KFM-Signature": sign_kfm(b"s", b"\xff")}, b"\xff", ["s"], 0, 400, "malformed payload"),
        (_standard(), BODY, ["whsec_b3RoZXI="], 0, 403, "mismatch"),
        (_standard(), BODY, ["plain"], 0, 403, "no-secret"),
        ({**_standard(), "X-KFM-Signature": sign_kfm(b"s", BODY)}, BODY, ["s"], 0, 403, "no-secret"),
    ],
)
def test_webhooks_that_are_refused(
    headers: dict[str, str], body: bytes, secrets: list[str], later_ms: int, status: int, reason: str
) -> None:
    """A wrong signature is 403 whatever the body says; nothing of the payload is handed over."""
    answer = validate(headers, body, secrets, NOW_MS + later_ms)
    assert (answer.ok, answer.status, answer.reason, answer.payload) == (False, status, reason, None)


def test_too_large_a_body_is_not_looked_at() -> None:
    """Size is checked before anything is computed over it."""
    assert validate({}, b"x" * (BODY_BYTES_MAX + 1), ["s"], NOW_MS).status == 413


def test_the_older_form_only_on_request() -> None:
    """sha256(secret + body) passes only where a source asks for it by name."""
    from hashlib import sha256

    headers = {"X-KFM-Signature": "sha256=" + sha256(b"s" + BODY).hexdigest()}
    assert not validate(headers, BODY, ["s"], NOW_MS).ok
    assert validate(headers, BODY, ["s"], NOW_MS, legacy_concat=True).ok


@given(
    st.dictionaries(st.sampled_from([*_standard(), "X-KFM-Signature"]), st.text(max_size=80)),
    st.binary(max_size=50),
)
def test_strangers_never_get_a_traceback(headers: dict[str, str], body: bytes) -> None:
    """Whatever arrives is answered with a status."""
    assert validate(headers, body, ["s", WHSEC], NOW_MS).status in (202, 400, 403, 413)


@given(
    st.recursive(st.none() | st.booleans() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3))
)
def test_signed_nonsense_is_malformed(payload: Any) -> None:
    """A genuine sender may still send nonsense: that is 400."""
    body = msgspec.json.encode(payload)
    assert validate({"X-KFM-Signature": sign_kfm(b"s", body)}, body, ["s"], NOW_MS).status == 400


def test_the_ledger_can_be_read(process: Callable[..., Called], project: Any) -> None:
    """`updater.idempotency.ledger` opens the ledger of a configuration, also where nothing has run."""
    with ledger.open_ledger(str(project / "kfm.yml")) as opened:
        assert opened.runs() == []
        entries: list[GovernanceEntry] = opened.governance()
        assert entries == []
