"""What the console's pages tell, and how they are asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser.filled import Filled
from tests.integration.web.console.reading import Reader


def test_the_first_page_has_one_line_for_each_cause_by_harm(reader: Reader) -> None:
    """What fails comes before a provider that can't be called, that before older holes, and those before
    what was put to rest on purpose; each with the command, and a sentence that counts them."""
    text = reader.page("").text
    listed = text[text.index("Needs action, by cause") : text.index("Next 24 h")]
    causes = ["KFM607", "host:example.org Its circuit", "Older holes", "Kill switch, paused by", "release of"]
    assert sorted(causes, key=listed.index) == causes
    assert "kfm breaker reset" in listed
    assert "kfm switch set running --domain hydrology --rationale TEXT" in listed
    assert f"{listed.count(' command kfm ')} things need someone" in text


def test_four_words_for_four_things(reader: Reader) -> None:
    """Unchanged, skipped, refused and failed are different words."""
    page = reader.page("schedules/river-daily")
    for word in ("unchanged", "skipped", "refused", "failed"):
        assert word in page.text
    overview = reader.page("").text
    assert "= unchanged" in overview


def test_a_refused_invocation_has_a_page(reader: Reader, filled: Filled) -> None:
    """An invocation that a gate refused has a page that names the gate and what would satisfy it."""
    text = reader.page(f"calls/{filled.call_id}").text
    assert "refused" in text
    assert "freeze" in text


@pytest.mark.req("RS-12")
def test_a_run_is_explained_from_its_records(reader: Reader, filled: Filled) -> None:
    """Each sentence of a run's explanation is there with the record that it was read from."""
    from kfm.reports.explain.subjects import explain_record

    with filled.context.reader() as ledger:
        explanation = explain_record(ledger, filled.failed_id, filled.context.now_ms())
    text = reader.page(f"runs/{filled.failed_id}").text.replace(" .", ".")
    for sentence in explanation.chain[:4]:
        assert sentence.text.replace("`", "")[:60] in text
    assert "kfm approvals approve" in text  # its release was requested, and needs a second person


def test_coverage_is_drawn_from_what_was_expected(reader: Reader) -> None:
    """A scheduled time without a record shows as unaccounted; upcoming ones are shown, too."""
    text = reader.page("schedules/river-daily").text
    assert "1 unaccounted" in text
    assert "upcoming" in text
    assert "not seen yet" in text  # before a service knew the schedule


def test_pages_of_many_things_are_paged_by_the_address(reader: Reader) -> None:
    """Older and newer entries are a link away, and nothing is shown twice."""
    for path, words in (("requests", ("Older →", "← Newest")), ("audit", ("Older →", "← Newest"))):
        first = reader.page(path)
        assert words[0] in first.text
        (older,) = [attrs["href"] for tag, attrs in first.tags if attrs.get("rel") == "next"]
        second = reader.page(f"http://127.0.0.1{older}")
        assert words[1] in second.text
        rows = [
            {href for href in page.links() if f"/{path}/" in href and "verify" not in href}
            for page in (first, second)
        ]
        assert not rows[0] & rows[1]
    numbers = reader.page("audit").text
    assert "entries" in numbers


@pytest.mark.parametrize(
    "path",
    [
        "runs?status=odd",
        "runs?page=0",
        "runs?page=1e3",
        "runs?page=9999",
        "runs?unheard=1",
        "runs?status=failed&status=failed",
        "runs?dataset=" + "x" * 300,
        "runs?refresh=1",
        "requests?before=abc",
        "requests?state=%3Cscript%3E",
        "audit?before=-1",
        "schedules/river-daily?from=yesterday",
        "schedules/river-daily?from=2026-02-31",
        "schedules/river-daily?days=1000",
    ],
)
def test_what_an_address_does_not_mean_is_refused_by_name(reader: Reader, path: str) -> None:
    """A filter that is not understood is an answer that says which are, not a page of something else."""
    page = reader.page(path, 400)
    assert "Bad request" in page.text


@pytest.mark.parametrize(
    "path",
    [
        *(f"{each}/none" for each in "runs calls pipelines schedules requests held units".split()),
        "runs/" + quote("../../etc/passwd", safe=""),
        "static/other.css",
        "a/b/c",
        "runs/<script>",
    ],
)
def test_what_is_not_there_is_said_so(reader: Reader, path: str) -> None:
    """A page that does not exist, and a thing that does not, are 404."""
    assert "Not found" in reader.page(path, 404).text


def test_filters_choose(reader: Reader, filled: Filled) -> None:
    """A filter in the address is the one that the page shows as chosen, and its rows keep to it."""
    page = reader.page("runs?dataset=wells&status=success")
    chosen = [attrs["value"] for tag, attrs in page.tags if tag == "option" and "selected" in attrs]
    assert chosen == ["success", "wells", ""]
    assert f"/console/runs/{filled.run_id}" not in page.links()
    assert "river" not in page.text[page.text.index("Runs, newest first") :]


def test_a_page_can_read_itself_again(reader: Reader) -> None:
    """By an address that says so; the page then offers to stop, and keeps its filters."""
    assert "Refresh" not in reader.ask("runs").headers
    answer = reader.ask("runs?status=failed&refresh=30")
    assert answer.headers["Refresh"] == "30"
    assert "every 30 s" in answer.text
    page = reader.page("runs?status=failed&refresh=30")
    assert "/console/runs?status=failed" in page.links()


def test_empty_pages_say_how_to_start(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An empty project has pages, each of which says how what it lacks comes about."""
    from kfm.config.loader import load
    from kfm.web.request_context import WebContext

    folder = tmp_path_factory.mktemp("empty")
    (folder / "kfm.yml").write_text("version: 1\n")
    loaded = load(str(folder / "kfm.yml"))
    reader = Reader(WebContext(loaded))  # there is not even a ledger
    assert "Nothing has run yet" in reader.page("").text
    for path, hint in (
        ("", "kfm init"),
        ("runs", "kfm run"),
        ("pipelines", "kfm pipeline run"),
        ("schedules", "cron.yml"),
        ("requests", "kfm serve"),
        ("held", "kfm quarantine resume"),
        ("units", "kfm worker"),
        ("audit", "never changed or removed"),
    ):
        assert hint in reader.page(path).text, path


def test_a_schedule_that_fires_too_often_is_cut_and_says_so(filled: Filled) -> None:
    """Of what fires each minute only as many days are shown as have room, and the page says so."""
    from kfm.model.schedules import Schedule
    from kfm.web.request_context import WebContext

    often = Schedule(id="minutely", source="river", every_ms=60_000)
    live: Any = SimpleNamespace(schedules=(often,), people=())
    reader = Reader(WebContext(filled.loaded, live))
    text = reader.page("schedules/minutely?days=28").text
    assert "It fires too often for 28 days: 6 are shown." in text
    assert "8640 scheduled times" in text


@pytest.mark.req("RS-12")
def test_what_fires_often_is_shown_around_now(reader: Reader) -> None:
    """Some hundreds of scheduled times up to now and a few upcoming ones, not the first ones of a day."""
    page = reader.page("schedules/well-each-second")
    assert "360 scheduled times" in page.text
    assert ", 60 upcoming." in page.text
    assert "A cell is one second (UTC)" in page.text


def test_scheduled_times_with_one_outcome_share_a_row(reader: Reader) -> None:
    """Many in a row that became the same without a request are one row, with how many there are."""
    text = reader.page("schedules/well-each-second").text
    table = text[text.index("Scheduled times and their outcomes") :]
    assert "60 scheduled times · upcoming" in table
    assert "∅ not seen yet" in table
    assert table.count("–") < 10
    assert "redefined" not in text


def test_from_takes_a_day_or_a_time(reader: Reader) -> None:
    """The links to earlier and later scheduled times have a time for a frequent schedule; else a day."""
    page = reader.page("schedules/well-each-second")
    earlier, later = [href for href in page.links() if "from=" in href][:2]
    for href in (earlier, later):
        assert "360 scheduled times" in reader.page(f"http://127.0.0.1{href}").text
    assert "T" in earlier.partition("from=")[2]
    assert "28 scheduled times" in reader.page("schedules/river-daily?from=2026-03-01").text
    assert "28 scheduled times" in reader.page("schedules/river-daily?from=2026-03-01T07:15Z").text


def test_a_request_shows_its_outcome_first(reader: Reader, filled: Filled) -> None:
    """Not why its run was begun, which stands below."""
    text = reader.page(f"requests/{filled.request_id}").text
    assert f"Published: run {filled.run_id[:13]} is version 1 of rivers." in text
    assert text.index("Published: run") < text.index("It ran because:")


@pytest.mark.req("UPD-12")
def test_the_checks_of_a_webhook_are_shown(filled: Filled) -> None:
    """The verdict on its signature and what else was noted stand under their names, unmasked."""
    from kfm.model.redaction import redact

    text = Reader(filled.context, hide=redact).page(f"requests/{filled.request_id}").text
    for told in (
        "Signature Standard Webhooks signature, valid",
        "Signed with secret 2 of the source",
        "Checked signature, freshness",
        "Identified by its webhook-id",
        "Event type river.corrected",
        "Sent (UTC) 2026-11-16 10:04:28",
    ):
        assert told in text
    assert "secret_index" not in text


@pytest.mark.req("RS-12")
def test_a_refused_invocation_is_a_blocker(reader: Reader) -> None:
    """It is a cause with its way out, once: windows that it holds up are not a second one."""
    text = reader.page("").text
    listed = text[text.index("Needs action, by cause") : text.index("Next 24 h")]
    assert "and no approval of this attempt is" in listed
    assert "kfm approvals request --source mound --window" in listed
    assert listed.count("burials") == 2  # this, and a freeze
    assert "burials ! failing" in text[text.index("Freshness and coverage") :]


def test_runs_are_paged_from_the_last_one_that_was_shown(reader: Reader, filled: Filled) -> None:
    """Older runs begin behind the run that the address names, however many have come since."""
    with filled.context.reader() as ledger:
        first, *rest = ledger.runs(limit=50)
    page = reader.page(f"runs?before={first.start_time_ms}.{first.run_id}")
    shown = [href for href in page.links() if href.startswith("/console/runs/")]
    assert shown == [f"/console/runs/{each.run_id}" for each in rest]
    assert "← Newest" in page.text
