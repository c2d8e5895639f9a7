"""Whom the hooks may hear named, and how a notifier that does not behave is waited for."""

from __future__ import annotations

import threading
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable, CollectorRefused, ConfigError, PluginConflict
from kfm.model.runs import OutboxMessage
from kfm.model.settings import Care, DatasetSettings, Rights, Settings, SourceSettings
from kfm.objects.http_client import HttpxClient
from kfm.service.incidents import _is_masked, _plugin
from kfm.sinks.incident_hooks import NotifierCollector, WebhookNotifier
from kfm.system import SystemClock

pytestmark = pytest.mark.req("TRG-7")


def dataset(name: str, level: Any) -> DatasetSettings:
    return DatasetSettings(id=name, rights=Rights(license="CC0-1.0", care=Care(label="L", level=level)))


def source(name: str, of: str, host: str) -> SourceSettings:
    return SourceSettings(id=name, dataset=of, kind="http", url=f"https://{host}/a.csv")


MIXED = Settings(
    datasets=(dataset("open", "public"), dataset("sacred", "restricted"), DatasetSettings(id="bare")),
    sources=(
        source("a", "open", "shared.example.org"),
        source("b", "sacred", "shared.example.org"),
        source("c", "open", "plain.example.org"),
    ),
)


@pytest.mark.req("RS-13")
@pytest.mark.parametrize(
    ("about", "name", "masked"),
    [
        ("dataset", "open", False),
        ("dataset", "sacred", True),
        ("dataset", "bare", True),  # its rights are not declared
        ("dataset", "gone", True),  # not configured any more: its rights are unknown
        ("provider", "plain.example.org", False),
        ("provider", "shared.example.org", True),  # it tells where a masked dataset comes from
        ("provider", "made-up", True),  # named in code only: it may stand for a masked one
    ],
)
def test_who_may_be_named(about: Any, name: str, masked: bool) -> None:
    """A provider is hidden with the datasets that it is called for."""
    assert _is_masked(MIXED, about, name) is masked


def test_where_nothing_is_masked_every_provider_may_be_named() -> None:
    """There is no masked dataset that a provider's name could give away."""
    settings = Settings(datasets=(dataset("open", "public"),))
    assert not _is_masked(settings, "provider", "made-up")


MESSAGE = OutboxMessage(
    number=1, event_id="id", topic="incident", subject="cause", body="{}", recorded_at_ms=0
)


class Notifying:
    def __init__(self, problem: Exception | None = None, wait: threading.Event | None = None) -> None:
        self.problem, self.wait, self.told = problem, wait, []  # type: ignore[var-annotated]

    def notify(self, change_id: str, body: bytes) -> None:
        if self.wait is not None:
            self.wait.wait(20)
        if self.problem is not None:
            raise self.problem
        self.told.append((change_id, body))

    def close(self) -> None:
        raise RuntimeError("never mind")


def test_one_change_is_told_at_a_time() -> None:
    """So that each is noted before the next; and a close that fails is ignored."""
    notifier = Notifying()
    collector = NotifierCollector(notifier, timeout_ms=5_000)
    assert collector.deliver([MESSAGE, MESSAGE]) == 1
    assert notifier.told == [("id", b"{}")]
    collector.close()


def test_a_notifier_that_never_returns_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notifier without a timeout of its own costs no more than ours."""
    monkeypatch.setattr("kfm.sinks.incident_hooks.GRACE_MS", 10)
    never = threading.Event()
    with pytest.raises(BackendUnavailable, match="in time"):
        NotifierCollector(Notifying(wait=never), timeout_ms=10).deliver([MESSAGE])
    never.set()


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (KeyError("x"), BackendUnavailable),
        (CollectorRefused("no"), CollectorRefused),
        (SystemExit(3), BackendUnavailable),
    ],
)
def test_whatever_a_notifier_raises_is_trouble_of_ours(problem: Any, kind: type[Exception]) -> None:
    """A refusal stays one; everything else means: try again later."""
    with pytest.raises(kind):
        NotifierCollector(Notifying(problem), timeout_ms=5_000).deliver([MESSAGE])


def test_a_webhook_needs_a_secret_that_can_be_read() -> None:
    """An empty one, or one that is no base64, is the configuration's fault and is not repeated."""
    with pytest.raises(ConfigError):
        WebhookNotifier("http://127.0.0.1:9", " ", SystemClock(), HttpxClient(), shown="x", timeout_ms=10)
    wrong = WebhookNotifier(
        "http://127.0.0.1:9", "whsec_!!", SystemClock(), HttpxClient(), shown="x", timeout_ms=10
    )
    with pytest.raises(ConfigError) as caught:
        wrong.notify("id", b"{}")
    assert "!!" not in str(caught.value)


def test_two_plugins_of_one_name_are_told_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who has to remove one of them needs to know both."""
    offered = [
        SimpleNamespace(name="pager", value="pager:make", dist=SimpleNamespace(name=package))
        for package in ("kfm-pager", "other-pager")
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: offered)
    with pytest.raises(PluginConflict, match=r"kfm-pager .* and other-pager"):
        _plugin("pager")
    with pytest.raises(ConfigError, match="pigeon"):
        _plugin("pigeon")
