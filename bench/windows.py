"""What a year of an hourly feed leaves behind: files, folders and links, objects, bytes of the ledger.

One window after the other is published into a merged dataset, by the product itself, to a folder and to a
bucket; now and then `kfm gc` removes old versions, as a service would. What matters is the slope: a thousand
windows more must cost in the end what they cost in the beginning. `python -m bench.windows 5000` prints the
figures and draws them (`--chart FILE`); as a benchmark it is among those that run only if they are named.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bench.harness import Benchmark
from tests import services

ON_REQUEST = True
WINDOWS = 5000
PART = 1000  # windows whose cost is compared
COLLECT_EVERY = 250  # windows between two collections
BEGUN = 100  # windows after which everything is there that is made once
FIRST = datetime(2025, 1, 1, tzinfo=UTC)

CONFIG = """\
version: 1
environment: bench
limits: {versions_kept: 3}
datasets:
  - id: levels
    title: Levels
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: Public, level: public}}
sources:
  - id: gauges
    dataset: levels
    kind: files
    folder: incoming
    pattern: "{window.start:%Y%m%dT%H}.csv"
    mode: merge
    window: PT1H
    time_zone: UTC
    path: "{window.start:%Y/%m/%d}/{name}"
publish:
  - {kind: local, path: published}
  - {kind: s3, url: "s3://BUCKET/open", options: OPTIONS}
"""


class Left(NamedTuple):
    """What is there after so many windows."""

    windows: int
    files: int  # in the published folder, links and folders counted, too
    objects: int  # in the bucket
    ledger: int  # bytes of the database that are in use


class Feed:
    """A project of its own, with a folder and a bucket."""

    def __init__(self, folder: Path, endpoint: str, bucket: str) -> None:
        self.folder = folder
        self._client, self._bucket = services.s3_client(endpoint), bucket
        options = {"endpoint": endpoint, "allow_http": "true", "region": "us-east-1"}
        options |= dict.fromkeys(("access_key_id", "secret_access_key"), "file:secret.txt")
        (folder / "incoming").mkdir(parents=True)
        (folder / "secret.txt").write_text("test")
        (folder / "secret.txt").chmod(0o600)
        text = CONFIG.replace("BUCKET", bucket).replace("OPTIONS", json.dumps(options))
        (folder / "kfm.yml").write_text(text)
        self.windows = 0

    def publish(self) -> None:
        """One window more, by `kfm run`."""
        start = FIRST + timedelta(hours=self.windows)
        (self.folder / "incoming" / f"{start:%Y%m%dT%H}.csv").write_text(f"gauge,level\na,{self.windows}\n")
        end = start + timedelta(hours=1)
        self._kfm(
            "run", "--source", "gauges", "--window", f"{start:%Y-%m-%dT%H:%M:%SZ}/{end:%Y-%m-%dT%H:%M:%SZ}"
        )
        self.windows += 1

    def collect(self) -> None:
        self._kfm("gc", "--apply", "--grace", "0", "--rationale", "old versions")

    def _kfm(self, *arguments: str) -> None:
        from kfm.cli import main

        before, out = os.getcwd(), io.StringIO()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                main(list(arguments))
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(out.getvalue()) from ended
        finally:
            os.chdir(before)

    def left(self) -> Left:
        tree = sum(len(folders) + len(files) for _, folders, files in os.walk(self.folder / "published"))
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket)
        objects = sum(len(page.get("Contents", ())) for page in pages)
        return Left(self.windows, tree, objects, self._ledger_bytes())

    def _ledger_bytes(self) -> int:
        import apsw

        connection = apsw.Connection(str(self.folder / ".kfm" / "kfm.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            names = ("page_count", "freelist_count", "page_size")
            pages, free, size = (next(connection.execute(f"PRAGMA {name}"))[0] for name in names)
        finally:
            connection.close()
        return int((pages - free) * size)


@contextlib.contextmanager
def feed() -> Iterator[Feed]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        endpoint = stack.enter_context(services.s3())
        yield Feed(folder, endpoint, stack.enter_context(services.s3_bucket(endpoint)))


@cache
def grown(windows: int, part: int) -> tuple[Left, ...]:
    """What is left when it has begun, and after each part, old versions collected."""
    found = []
    with feed() as one:
        for number in range(1, windows + 1):
            one.publish()
            if number == BEGUN or number % COLLECT_EVERY == 0 or number % part == 0:
                one.collect()
            if number == BEGUN or number % part == 0:
                found.append(one.left())
                print(found[-1], file=sys.stderr, flush=True)
    return tuple(found)


def slopes(found: Sequence[Left]) -> dict[str, tuple[float, float]]:
    """For each figure what a window costs in the first part, and in the last."""

    def slope(name: str, before: Left, after: Left) -> float:
        return float(getattr(after, name) - getattr(before, name)) / (after.windows - before.windows)

    return {name: (slope(name, *found[:2]), slope(name, *found[-2:])) for name in NAMES}


# --- a picture ------------------------------------------------------------------------------------------

WIDTH, HEIGHT, EDGE = 640, 260, 56
NAMES = {"files": "files, folders, links", "objects": "objects in the bucket", "ledger": "ledger, MB"}
COLOURS = {"files": "#1f5f8b", "objects": "#8b4a1f", "ledger": "#3f7d3f"}


def chart(found: Sequence[Left]) -> str:
    """Each figure against the number of windows, as SVG: a small picture for each, since scales differ."""
    parts = [_panel(name, found, number * (HEIGHT + 12)) for number, name in enumerate(NAMES)]
    height = len(NAMES) * (HEIGHT + 12)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">\n'
        '<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(name: str, found: Sequence[Left], top: int) -> str:
    scale = 1_000_000 if name == "ledger" else 1
    points = [(0.0, 0.0), *((one.windows, getattr(one, name) / scale) for one in found)]
    right, high = max(x for x, _ in points), max(y for _, y in points)
    plot_w, plot_h = WIDTH - 2 * EDGE - 40, HEIGHT - 80

    def at(x: float, y: float) -> tuple[float, float]:
        return EDGE + 30 + plot_w * x / right, top + 40 + plot_h * (1 - y / high)

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
    base, left = at(0, 0)[1], at(0, 0)[0]
    lines = [
        f'<text x="{left}" y="{top + 24}" fill="#222">{NAMES[name]}</text>',
        f'<line x1="{left}" y1="{base}" x2="{at(right, 0)[0]}" y2="{base}" stroke="#999"/>',
        f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>',
    ]
    for x, y in points[1:]:
        px, py = at(x, y)
        lines.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{COLOURS[name]}"/>')
        lines.append(f'<text x="{px:.1f}" y="{base + 18}" text-anchor="middle" fill="#555">{x:,.0f}</text>')
        amount = f"{y:,.1f}" if scale > 1 else f"{y:,.0f}"
        lines.append(f'<text x="{px - 6:.1f}" y="{py - 8:.1f}" text-anchor="end" fill="#222">{amount}</text>')
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.windows", description=__doc__.partition("\n")[0])
    parser.add_argument("windows", type=int, nargs="?", default=WINDOWS)
    parser.add_argument("--part", type=int, default=PART)
    parser.add_argument("--chart", type=Path)
    chosen = parser.parse_args(arguments)
    if not BEGUN < chosen.part <= chosen.windows // 2:
        parser.error(f"a part has more than {BEGUN} windows, and there are two of them at least")
    found = grown(chosen.windows, chosen.part)
    for name, (first, last) in slopes(found).items():
        print(f"{name} for each window: {first:,.2f} at first, {last:,.2f} at last ({last / first:.3f})")
    if chosen.chart is not None:
        chosen.chart.write_text(chart(found))
    return 0


def benchmarks() -> list[Benchmark]:
    def both(name: str) -> Benchmark:
        return Benchmark(
            name=f"windows_{name}",
            kind="cost",
            goal=1.1,
            setup=lambda _: slopes(grown(WINDOWS, PART)),
            ours=lambda found: found[name][1],
            reference=lambda found: found[name][0],
            unit="",
            rounds=1,
        )

    return [both(name) for name in NAMES]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
