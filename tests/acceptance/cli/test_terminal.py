"""Lists on a terminal: no wider than it is, states in colour; pipes get everything."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.cli import main
from kfm.cli.output import table
from kfm.cli.tables import fitted
from kfm.model.quantities import short_id
from tests.world.keeping import copied_world, looking_at

STYLE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
WIDE_ROWS = [
    ["STARTED (UTC)", "STATUS", "DATASET", "WINDOW (UTC)", "WHY", "RUN ID"],
    [
        *("2026-11-16 13:01:07", "unchanged", "ks-water-summary", "2026-11-09 00:00 … 2026-11-16 00:00"),
        *("x" * 90, "d7803107-d52b-8428-ae94-0014d4fe65df"),
    ],
]
LISTS = (
    ("runs",),
    ("requests", "list"),
    ("schedule", "list"),
    ("schedule", "next"),
    ("schedule", "history", "streamflow"),
    ("approvals", "list"),
    ("incident", "list", "--all"),
    ("quarantine", "list"),
    ("nodd", "units"),
    ("nodd", "watermarks"),
    ("nodd", "datasets"),
    ("nodd", "dead", "list"),
    ("audit", "list"),
    ("catalogue", "search"),
    ("catalogue", "show"),
    ("coverage",),
    ("coverage", "ks-wells"),
    ("dataset", "list"),
    ("dataset", "show", "ks-rainfall"),
    ("breaker", "list"),
    ("switch", "list"),
    ("replay", "inspect"),
    ("replay", "select", "--dataset", "hrrr", "--status", "failed"),
    ("run-state", "list"),
    ("retry", "--list"),
    ("branch", "list"),
    ("metrics", "catalogue"),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Show = Callable[..., str]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied_world(tmp_path_factory.mktemp("world") / "world")


@pytest.fixture
def show(world: Path, monkeypatch: pytest.MonkeyPatch) -> Show:
    """What a command prints, on a terminal of so many columns; None: into a pipe."""
    for name in ("NO_COLOR", "FORCE_COLOR", "KFM_SERVER", "PAGER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def call(*words: str, columns: int | None = 80) -> str:
        out: io.StringIO = io.StringIO() if columns is None else Terminal()
        monkeypatch.setenv("COLUMNS", str(columns or 80))
        with monkeypatch.context() as patched, looking_at(world):
            patched.setattr("sys.stdout", out)
            patched.setattr("sys.stderr", io.StringIO())
            with pytest.raises(SystemExit) as ended:
                main(list(words))
        assert not ended.value.code, words
        return out.getvalue()

    return call


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_no_line_is_wider_than_the_terminal(show: Show, words: tuple[str, ...]) -> None:
    """On 80 columns no line of a list is longer than 80 characters, and none is left out."""
    piped = show(*words, columns=None).splitlines()
    shown = STYLE.sub("", show(*words)).splitlines()
    commands = [line for line in shown if "kfm " in line]  # to be pasted whole
    assert [line for line in shown if len(line) > 80 and line not in commands] == []
    assert len(shown) == len(piped)


def test_a_pipe_gets_every_column_whole(show: Show) -> None:
    """A pipe, and a terminal that is wide enough, get the same table; only the terminal has colours."""
    piped = show("runs", columns=None)
    assert "\x1b" not in piped
    assert piped.splitlines()[0].split("  ")[0] == "STARTED (UTC)"
    assert {"TOOK", "ERROR"} <= set(piped.split())
    wide = show("runs", columns=300)
    assert "\x1b[" in wide
    assert STYLE.sub("", wide) == piped


def test_published_and_unchanged_differ(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state has its colour, that of its word in the console; NO_COLOR and --color take it away."""
    shown = show("runs", "--limit", "500") + show("coverage") + show("requests", "list", "--limit", "500")
    found = {word: colour for colour, word in re.findall(r"\x1b\[(\d+)m([a-z ]+)\x1b\[0m", shown)}
    expected = {"published": "32", "unchanged": "2", "failed": "31", "running": "36", "failing": "31"}
    assert expected.items() <= found.items()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in show("runs")
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b" not in show("runs", "--color", "never")
    assert "\x1b[32mpublished" in show("runs", "--color", "always", columns=None)


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100, 140, 200])
def test_columns_give_way_in_their_order(columns: int) -> None:
    """However narrow: nothing is wider; the state, and the id that other commands take, stay whole."""
    rows = fitted(WIDE_ROWS, columns, ("WHY",))
    assert all(len("  ".join(row)) <= columns for row in zip(*_padded(rows), strict=True))
    if columns >= 40:
        assert rows[1][-1].startswith("d7803107-d52b")
    if columns >= 60:
        assert "unchanged" in rows[1]
    assert ("WHY" in rows[0]) is (columns >= 200)


def _padded(rows: list[list[str]]) -> list[list[str]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]


def test_a_table_into_a_pipe_is_as_wide_as_it_is() -> None:
    """Without a terminal nothing is cut."""
    assert "x" * 90 in table(WIDE_ROWS[0], WIDE_ROWS[1:], spare=("WHY",))[1]


def test_short_ids_are_unique(show: Show) -> None:
    """What lists print of an id is of one record only, also of units of one second."""
    rows = STYLE.sub("", show("nodd", "units", "--limit", "500")).splitlines()[1:]
    units = [re.search(r"[0-9a-f]{13}-[0-9a-f]{8}\b", row) for row in rows]
    found = [one[0] for one in units if one]
    assert len(found) == len(set(found)) == len(rows) == 500
    assert "[unit:" in show("explain", found[0])
    assert found[0] in show("nodd", "show", found[0])
    assert found[0] in show("show", found[0])
    runs = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}\b", show("runs", "--limit", "1000"))
    assert len(runs) == len(set(runs)) > 700


def test_a_beginning_of_several_units_names_them(
    show: Show, capsys: pytest.CaptureFixture[str], world: Path
) -> None:
    """The time that an id begins with is of many units: they are named, and nothing is guessed."""
    rows = show("nodd", "units", "--limit", "500", columns=None)
    starts = re.findall(r"([0-9a-f]{13})-[0-9a-f]{20}", rows)
    several = next(one for one in starts if starts.count(one) > 1)
    with looking_at(world), pytest.raises(SystemExit) as ended:
        main(["explain", several])
    assert ended.value.code == 2
    assert f"Several units begin with `{several}`" in capsys.readouterr().err


def test_ids_that_begin_with_a_time_are_told_apart() -> None:
    """Two ids that were made in one millisecond have different short forms; ids of content stay short."""
    first, second = "019a1e45-8a52-7498-b05b-000000000001", "019a1e45-8a52-7498-a1c3-000000000001"
    assert short_id(first) != short_id(second)
    assert short_id("d7803107-d52b-8428-ae94-0014d4fe65df") == "d7803107-d52b"
    assert short_id("03a24f779fa80-1b1e0eb02305622e2eec") == "03a24f779fa80-1b1e0eb0"


def test_an_entry_in_quarantine_is_explained(show: Show) -> None:
    """The id that `quarantine list` prints is explained as the run or the unit that is quarantined."""
    rows = show("quarantine", "list", "--limit", "500", columns=None)
    entries = dict(re.findall(r"(run|unit) [0-9a-f-]+ +([0-9a-f]{8}-[0-9a-f]{4})\b", rows))
    assert set(entries) == {"run", "unit"}
    assert show("explain", entries["run"], columns=None).startswith("Run ")
    assert show("explain", entries["unit"], columns=None).startswith("Unit ")


def test_units_are_not_counted_as_runs(show: Show) -> None:
    """An incident of announced objects counts units."""
    told = show("status", "--all", columns=None)
    assert "57 units dead-lettered" in told
    assert "57 runs" not in told
