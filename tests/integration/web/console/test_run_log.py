"""A run's page has tabs, of which one is the log of its attempts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.reports import run_logs
from tests.browser.filled import Filled
from tests.conformance.db import ledgers
from tests.integration.web.console.reading import Reader

TABS = ("Explanation", "Log", "Timeline", "Graph", "Changes", "Evidence")


def test_every_tab_of_a_run_is_an_address(reader: Reader, filled: Filled) -> None:
    """Each tab is a page of its own, and the first is why the run is as it is."""
    first = reader.page(f"runs/{filled.failed_id}")
    for name in TABS:
        page = reader.page(f"runs/{filled.failed_id}?tab={name.lower()}")
        assert all(each in page.text for each in TABS)
    assert "Each sentence is read from the record" in first.text
    assert "Failed calls" not in first.text
    reader.page(f"runs/{filled.failed_id}?tab=none", 400)


def test_the_log_of_an_attempt_has_the_exception_with_file_and_line(reader: Reader, filled: Filled) -> None:
    """It is filtered by level and step, and can be kept as text."""
    path = f"runs/{filled.failed_id}?tab=log"
    page = reader.page(path)
    assert "broken.py" in page.text
    assert "line 2, in publish" in page.text
    assert "1 objects" in page.text
    assert "1 objects" not in reader.page(f"{path}&level=error").text
    fetched = reader.page(f"{path}&node=fetch").text
    assert "1 objects" in fetched
    assert "line 2, in publish" not in fetched
    kept = reader.ask(f"runs/{filled.failed_id}/log.txt?attempt=1")
    assert kept.headers["content-type"] == "text/plain; charset=utf-8"
    assert "error   pipeline: Traceback" in kept.text
    assert "<script>document" in kept.text  # as text, which no browser takes for markup
    assert kept.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("query", ["attempt=0", "attempt=99", "attempt=x", "offset=-1", "level=odd"])
def test_a_log_that_is_not_there_is_said_so(reader: Reader, filled: Filled, query: str) -> None:
    """No nonsense in the address is more than an answer that says so."""
    assert reader.ask(f"runs/{filled.failed_id}?tab=log&{query}").status_code in (200, 400, 404)


def test_a_page_of_the_log_goes_on_where_the_one_before_ended(reader: Reader, filled: Filled) -> None:
    """An offset beyond the end shows no line, and no error."""
    assert (
        "No lines match these filters" in reader.page(f"runs/{filled.failed_id}?tab=log&offset=999999").text
    )


def test_the_last_lines_of_a_long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is followed from its end, filtered like the rest; a line that is cut or being written waits."""
    monkeypatch.setattr(run_logs, "READ_BYTES_MAX", 800)
    folder = tmp_path / "runs" / "r" / "attempt-1"
    folder.mkdir(parents=True)
    lines = [
        json.dumps({"at": "x", "level": level, "phase": "fetch", "message": f"{number}", "facts": {}})
        for number, level in enumerate(("info", "error") * 50)
    ]
    (folder / "event_log.jsonl").write_text("\n".join(lines) + "\n" + lines[0][:20])
    run = replace(ledgers.new_run("one"), run_id="r", attempts=1)

    def said(**more: Any) -> list[str]:
        found = run_logs.read_log(str(tmp_path), run, limit=3, **more)
        assert found is not None
        return [line["message"] for line in found.lines]

    assert said() == ["0", "1", "2"]
    assert said(tail=True) == ["97", "98", "99"]
    assert said(tail=True, level="error") == ["95", "97", "99"]


def test_a_step_leads_to_its_lines(reader: Reader, filled: Filled) -> None:
    """Each box of the graph is a link to the log, at the lines of that step."""
    links = reader.page(f"runs/{filled.failed_id}?tab=graph").links()
    (lines,) = {link for link in links if "node=pipeline" in link}
    page = reader.page(lines.removeprefix("/console/"))
    assert "line 2, in publish" in page.text
    assert "1 objects" not in page.text


def test_a_node_of_a_pipeline_is_explained(reader: Reader, filled: Filled) -> None:
    """Its box and its row lead to why it is as it is."""
    page = reader.page(f"pipelines/{filled.pass_id}")
    (href, *_) = [link for link in page.links() if "node=flow.broken" in link]
    assert "Node flow.broken" in reader.page(href.removeprefix("/console/").partition("#")[0]).text
