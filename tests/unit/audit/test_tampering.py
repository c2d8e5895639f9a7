"""Ten thousand ways to change what was recorded, and what is found of them."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.model import audit
from tests.unit.audit.tampering import (
    SCRIPT,
    TAMPERINGS,
    Row,
    Tampering,
    anchor,
    copies,
    lines,
    rows_of,
    some_entry,
    some_rows,
    stored,
    verifier,
)

pytestmark = pytest.mark.req("GOV-2")

CAMPAIGN = 10_000
SCRIPTED = verifier()


def drawn(rng: random.Random, chains: list[list[Row]]) -> tuple[Tampering, list[Row], list[Row], int]:
    """One tampering, the rows before and after, and the first that changed."""
    while True:
        before = rng.choice(chains)
        rows = msgspec.json.decode(msgspec.json.encode(before))
        way = rng.choice(TAMPERINGS)
        way.do(rng, rows)
        if rows != before:  # two equal rows may have changed places
            same = takewhile(lambda pair: pair[0] == pair[1], zip(before, rows, strict=False))
            return way, before, rows, len(list(same)) + 1


def judged(rows: list[Row], anchors: list[audit.Anchor]) -> list[dict[str, Any]]:
    """What each of the three ways to look at it says: a copy, a database, the script."""
    found: list[dict[str, Any]] = []
    for links in (copies(rows), stored(rows)):
        verdict = audit.verify(links, anchors)  # type: ignore[arg-type]
        row = verdict.finding.number if verdict.finding else None
        found.append({"row": row, "since": verdict.unanchored_since, "verdict": verdict})
    report = SCRIPTED.verify(lines(rows), [msgspec.to_builtins(one) for one in anchors])
    assert report["sound"] == ("row" not in report)
    found.append({"row": report.get("row"), "since": report["unanchored_since"]})
    return found


@pytest.fixture(scope="module")
def chains() -> list[list[Row]]:
    rng = random.Random(20260101)
    return [some_rows(rng, rng.randrange(3, 8)) for _ in range(60)]


def test_untouched_chains_are_sound(chains: list[list[Row]]) -> None:
    """Nothing is found where nothing was done, with and without anchors."""
    for rows in chains:
        for anchors in ([], [anchor(rows[-1])], [anchor(row) for row in rows]):
            for said in judged(rows, anchors):
                assert said["row"] is None
                assert said["since"] == (None if anchors else 1)


def test_every_change_to_an_anchored_chain_is_found(chains: list[list[Row]]) -> None:
    """Edits, deletions, swaps, insertions, truncations, full rewrites: all found, none missed."""
    rng, done = random.Random(1), Counter[str]()
    for _ in range(CAMPAIGN):
        way, before, rows, first = drawn(rng, chains)
        said = judged(rows, [anchor(before[-1])])
        for one in said:
            assert one["row"] is not None, (way.name, first, before, rows)
            if not way.leaves_a_chain:
                assert first <= one["row"] <= first + way.fits, (way.name, first, one)
        finding = said[0]["verdict"].finding
        assert finding.since <= first <= finding.number, (way.name, first, finding)
        done[way.name] += 1
    assert sum(done.values()) == CAMPAIGN
    assert min(done[way.name] for way in TAMPERINGS) > CAMPAIGN / len(TAMPERINGS) / 2


def test_without_an_anchor_what_cannot_be_found_is_declared(chains: list[list[Row]]) -> None:
    """A changed row is found; a cut end or a chain made anew is not, and all rows count as unanchored."""
    rng = random.Random(2)
    for _ in range(1000):
        way, _, rows, first = drawn(rng, chains)
        for one in judged(rows, []):
            if way.leaves_a_chain:
                assert one["row"] is None, way.name
                assert one["since"] == (1 if rows else None)
            else:
                assert first <= one["row"] <= first + way.fits, way.name


def test_an_anchor_in_the_middle_covers_what_is_before_it(chains: list[list[Row]]) -> None:
    """A rewrite up to the anchor is found; one beyond it is not, but is where the report says unanchored."""
    rng, missed = random.Random(3), 0
    for _ in range(1000):
        way, before, rows, first = drawn(rng, chains)
        kept = rng.choice(before)
        for one in judged(rows, [anchor(kept)]):
            if way.leaves_a_chain and first > kept["number"]:
                assert one["row"] is None, way.name
                assert one["since"] is None or first >= one["since"] == kept["number"] + 1
                missed += 1
            else:
                assert one["row"] is not None, (way.name, first, kept["number"])
    assert missed > 50


def test_any_byte_of_an_export_counts(chains: list[list[Row]]) -> None:
    """One byte of an exported chain that is changed, removed or added anywhere is found."""
    rng = random.Random(4)
    for _ in range(1000):
        rows = rng.choice(chains)
        data = bytearray(b"".join(lines(rows)))
        at = rng.randrange(len(data))
        way = rng.randrange(3)
        if way == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            del data[at]
        else:
            data.insert(at, rng.randrange(256))
        report = SCRIPTED.verify(
            bytes(data).splitlines(keepends=True) if way else _split(bytes(data)),
            [msgspec.to_builtins(anchor(rows[-1]))],
        )
        assert not report["sound"], (way, at)


def _split(data: bytes) -> list[bytes]:
    """As a file opened in binary mode is iterated: line feeds alone end a line."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + (
        [data.split(b"\n")[-1]] if data[-1:] != b"\n" else []
    )


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\n", b"\xff\n", b"null\n", b"[]\n", b"{}\n", b'"x"\n', b"[" * 100_000 + b"\n",
        b"9" * 5000 + b"\n", b'{"number":1.0}\n', b'{"number":NaN}\n', b'{"a":1,"a":1}\n',
        b'"\\ud800"\n', b"\xef\xbb\xbf{}\n",
    ],
)  # fmt: skip
def test_the_script_does_not_fall_over_nonsense(line: bytes) -> None:
    """Whatever stands in the file, the row is named."""
    report = SCRIPTED.verify([line])
    assert (report["sound"], report["row"]) == (False, 1)


def test_a_copy_must_name_the_row_before(chains: list[list[Row]]) -> None:
    """An edited `previous` is found, though the hashes could be checked without it."""
    rows = msgspec.json.decode(msgspec.json.encode(chains[0]))
    rows[2]["previous"] = "f" * 64
    finding = audit.verify(copies(rows)).finding
    assert finding is not None
    assert (finding.number, finding.problem) == (3, "previous")
    assert SCRIPTED.verify(lines(rows))["row"] == 3


def test_withheld_entries_leave_a_chain_that_verifies() -> None:
    """Any entries may be left out: places and hashes still prove themselves, and the count is told."""
    rng = random.Random(5)
    links = list(audit.chained(some_entry(rng) for _ in range(9)))
    rows = rows_of(links)
    for number in (2, 5, 9):
        del rows[number - 1]["entry"]
    verdict = audit.verify(copies(rows), [anchor(rows[-1])])
    assert (verdict.sound, verdict.withheld) == (True, 3)
    report = SCRIPTED.verify(lines(rows), [msgspec.to_builtins(anchor(rows[-1]))])
    assert (report["sound"], report["withheld"]) == (True, 3)
    rows[4]["content"] = "0" * 64
    assert SCRIPTED.verify(lines(rows))["row"] == 5
    finding = audit.verify(copies(rows)).finding
    assert finding is not None
    assert finding.number == 5


def test_the_script_alone(tmp_path: Path, chains: list[list[Row]]) -> None:
    """As a stranger runs it: no kfm to import, exit status 0, 1 or 2, and the first bad row on stdout."""
    rng = random.Random(6)

    def run(rows: list[Row], anchors: list[audit.Anchor], *more: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "audit-chain.jsonl").write_bytes(b"".join(lines(rows)))
        (tmp_path / "anchors.jsonl").write_bytes(
            b"".join(msgspec.json.encode(one) + b"\n" for one in anchors)
        )
        return subprocess.run(
            [sys.executable, "-I", "-S", str(SCRIPT), str(tmp_path), *more],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    sound = run(chains[0], [anchor(chains[0][-1])])
    assert (sound.returncode, sound.stderr) == (0, "")
    assert sound.stdout.startswith(f"sound: {len(chains[0])} rows, last hash {chains[0][-1]['hash']}\n")
    assert "unanchored" not in sound.stdout
    assert "unanchored since row 1" in run(chains[0], []).stdout
    for _ in range(8):
        way, before, rows, first = drawn(rng, chains)
        broken = run(rows, [anchor(before[-1])])
        assert broken.returncode == 1
        assert broken.stdout.startswith("BROKEN at row ")
        if not way.leaves_a_chain and not way.fits:
            assert broken.stdout.startswith(f"BROKEN at row {first}: ")
    elsewhere = tmp_path / "kept.jsonl"
    elsewhere.write_bytes(msgspec.json.encode(anchor(chains[1][-1])))
    assert run(chains[0], [], "--anchors", str(elsewhere)).returncode == 1
    assert run(chains[1], [], "--anchors", str(elsewhere)).returncode == 0
    assert run(chains[1], [], "--anchors", str(tmp_path / "nowhere")).returncode == 2
    elsewhere.write_text("nonsense\n")
    assert run(chains[1], [], "--anchors", str(elsewhere)).returncode == 2
