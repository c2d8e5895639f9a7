"""The pages on calls say what the code does."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import kfm
from kfm.calls.attempts import _WHY
from kfm.calls.call_plan import CallOptions
from kfm.testing.driven_time import DrivenTime

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_guides_examples_run(kfm_time: DrivenTime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of the guide runs, in order, against a server that fails as often as it is told to."""
    import httpx

    class Server:
        errors: list[type[Exception]] = []

        def fail_next(self, times: int, error: type[Exception]) -> None:
            self.errors = [error] * times

        def ask(self, url: str, timeout: float = 99) -> str:
            assert 0 < timeout <= 60
            if self.errors:
                raise self.errors.pop()
            return "12.5"

        async def ask_later(self, url: str) -> str:
            return self.ask(url, 1)

    class GaugeAsleep(Exception):
        pass

    server = Server()
    request = httpx.Request("GET", "http://127.0.0.1")
    monkeypatch.setattr(httpx, "get", lambda url, timeout: httpx.Response(200, text="x", request=request))
    names: dict[str, Any] = {
        "ask": server.ask,
        "ask_later": server.ask_later,
        "server": server,
        "GaugeAsleep": GaugeAsleep,
        "gauge": iter([GaugeAsleep, 7]).__next__,
        "print": lambda *said: names.setdefault("said", said),
    }
    page = (DOCS / "how-to" / "retry-a-call.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    for block in blocks:
        if "except ConnectionError" in block:
            server.fail_next(9, ConnectionError)
        exec(compile(block, "retry-a-call.md", "exec"), names)
        server.errors = []
    assert len(blocks) == 10
    assert names["text"] == "12.5"
    assert names["said"] == ("circuit-open", 3, kfm_time.now_ms() + 300_000)
    kfm_time.advance(300)
    assert asyncio.run(names["fetch_later"]("1")) == "12.5"
    assert names["update"]() == "12.5"
    waited = len(kfm_time.delays)
    kfm_time._delays_ms.clear()
    names["test_fetch_survives_a_hiccup"](kfm_time)
    assert waited == 2


def test_the_reference_lists_every_option_and_reason() -> None:
    """What can be said to a call, and what it can say, is on the page, and nothing else."""
    page = (DOCS / "reference" / "calls.md").read_text()

    def listed(heading: str) -> set[str]:
        section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        return set(re.findall(r"^\| `([\w-]+)` \|", section, flags=re.MULTILINE))

    assert listed("Options") == set(CallOptions.__annotations__)
    assert listed("Why there is no further try") == {*_WHY, "non-retryable"}


def test_what_the_page_names_is_there() -> None:
    """The public names are on the module, and a wrong one is an ordinary error."""
    for name in ("call", "deadline", "within", "handed_up", "CircuitOpen", "CallTimedOut"):
        assert getattr(kfm, name).__name__ == name
        assert name in dir(kfm)
    with pytest.raises(AttributeError, match="no attribute 'recall'"):
        _ = kfm.recall  # type: ignore[attr-defined]
