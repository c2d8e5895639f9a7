"""A project with a derived dataset: daily readings, zones without windows, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kfm.app import App, open_app
from kfm.config.loader import load
from tests.acceptance.runs.conftest import Inside
from tests.crash.project import RIGHTS
from tests.published import files_in

DAYS = (1, 2, 3)
CONFIG = """\
version: 1
environment: test
ingest: {{coalesce_seconds: {coalesce}}}
datasets:
  - {{id: readings, rights: {readings_rights}}}
  - {{id: zones, rights: {rights}}}
  - {{id: exposure, rights: {rights}}}
  - {{id: monthly, rights: {rights}}}
sources:
  - id: exposure
    dataset: exposure
    kind: dataset
    datasets: {datasets}
    window: {window}
    pipeline: "pipeline.py:table"
{extra}
  - {{id: readings, dataset: readings, kind: files, folder: incoming, pattern: "{{window.start:date}}.csv"}}
  - {{id: zones, dataset: zones, kind: files, folder: shapes, window: none}}
{more}
publish:
  - {{kind: local, path: published}}
"""
MONTHLY = (
    "  - {id: monthly, dataset: monthly, kind: dataset, datasets: {exposure: window}, window: P1M, "
    'pipeline: "pipeline.py:joined"}\n'
)
PIPELINE = """
from datetime import datetime, UTC


def day(window):
    return datetime.fromtimestamp(window.start_ms / 1000, UTC).strftime("%Y-%m-%d")


def lines(context):
    return "".join(f"{each.path}: {each.read().decode()}\\n" for each in context.inputs)


def table(context):
    context.publisher.write_file(f"{day(context.window)}.txt", lines(context).encode())


def joined(context):
    context.publisher.write_file(f"{day(context.window)[:7]}.txt", lines(context).encode())
"""


def daily(day: int) -> str:
    return f"2026-11-{day:02}/P1D"


class Derived(Inside):
    """Commands over the project."""

    def prepare(self) -> None:
        self.write("pipeline.py", PIPELINE)
        self.write("cron.yml", "version: 1\nschedules: []\n")
        for day in DAYS:
            self.write(f"incoming/2026-11-{day:02}.csv", f"1 of day {day}")
        self.write("shapes/zones.csv", "a zone")
        self.configure_derived()

    def configure_derived(
        self,
        *,
        datasets: str = "{readings: window, zones: current}",
        window: str = "P1D",
        coalesce: int = 0,
        readings_rights: str = RIGHTS,
        extra: str = "",
        more: str = "",
        deeper: bool = False,
    ) -> None:
        self.write(
            "kfm.yml",
            CONFIG.format(
                datasets=datasets,
                window=window,
                coalesce=coalesce,
                rights=RIGHTS,
                readings_rights=readings_rights,
                extra=f"    {extra}" if extra else "",
                more=more + (MONTHLY if deeper else ""),
            ),
        )

    @contextmanager
    def opened(self) -> Iterator[App]:
        with self._surroundings(), open_app(load(None, {})) as app:
            yield app

    def run(self, source: str, window: str | None = None) -> dict[str, Any]:
        arguments = ["--window", window] if window else []
        ended = self.kfm("run", "--json", "--source", source, *arguments)
        assert ended.code == 0, ended.err
        (only,) = json.loads(ended.out)["results"]
        return dict(only)

    def publish_inputs(self) -> None:
        for day in DAYS:
            assert self.run("readings", daily(day))["word"] == "published"
        assert self.run("zones")["word"] == "published"

    def change(self, day: int) -> None:
        """Other readings of that day."""
        path = f"incoming/2026-11-{day:02}.csv"
        before = int((self.folder / path).read_text().split()[0])
        self.write(path, f"{before + 1} of day {day}")

    def run_due(self, source: str = "exposure") -> dict[str, str]:
        """Work off what is due: the windows of the source that were asked for, and what became of them."""
        before = {one["request_id"] for one in self.requests(source) if one["state"] == "done"}
        ended = self.kfm("schedule", "run-due")
        assert ended.code == 0, ended.err + ended.out
        found = {}
        for one in self.requests(source):
            if one["state"] == "done" and one["request_id"] not in before:
                published = any(
                    run["run_id"] == one["run_id"] and self._promoted(run["run_id"])
                    for run in self.runs(source)
                )
                day = int(one["window_start"][8:10])
                name = daily(day)
                assert name not in found, "one request for each window"
                found[name] = "published" if published else "unchanged"
        return found

    def _promoted(self, run_id: str) -> bool:
        with self.opened() as app:
            run = app.ledger.run(run_id)
            assert run is not None
            return any(one.run_id == run_id for one in app.ledger.promotions(run.dataset_id, 1000))

    def requests(self, source: str) -> list[dict[str, Any]]:
        with self.opened() as app:
            from kfm.reports.requests import request_document

            found = app.ledger.request_reader().requests(source_id=source, limit=500)
            return [
                {**request_document(one), "details": one.details}
                for one in found
                if one.kind == "upstream-event"
            ]

    def runs(self, source: str) -> list[dict[str, Any]]:
        found = json.loads(self.kfm("runs", "--json", "--source", source, "--limit", "500").out)["runs"]
        return list(reversed(found))

    def files(self, dataset: str) -> dict[str, str]:
        folder = self.folder / "published" / dataset / "current"
        if not folder.exists():
            return {}
        return {path: (folder / "data" / path).read_text() for path in files_in(folder)}

    def withdraw(self, dataset: str, window: str) -> None:
        done = self.kfm("withdraw", dataset, "--window", window, "--yes", "--rationale", "it was wrong")
        assert done.code == 0, done.err

    def roll_back(self, dataset: str, version: int) -> None:
        done = self.kfm("rollback", dataset, "--to", str(version), "--yes", "--rationale", "it was wrong")
        assert done.code == 0, done.err

    def events(self) -> list[dict[str, Any]]:
        assert self.kfm("lineage", "deliver").code == 0
        text = (self.folder / ".kfm/lineage/openlineage.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]
