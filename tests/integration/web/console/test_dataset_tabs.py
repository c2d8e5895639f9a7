"""The tabs of a dataset say what is on record and what is in its files, as the API does."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from kfm.app import App
from kfm.config.loader import load
from kfm.runs.kernel import RunRequest
from kfm.web.console.views.datasets import TABS
from kfm.web.request_context import WebContext
from tests.browser.filled import TOKENS, Filled, people_text
from tests.integration.web.console.reading import Reader
from tests.integration.web.console.test_datasets import asked, rows

CONFIG = """\
version: 1
environment: test
lineage: {export: none}
datasets:
  - id: wells
    owner: {name: Groundwater desk, contact: "#water"}
    rights:
      license: CC-BY-4.0
      attribution: The survey
      care: {label: Public, level: public}
      sovereignty: {authority: The council, consent: granted, agreement: "https://council.example/a-7"}
  - {id: shapes, rights: {license: CC0-1.0, care: {label: Public}}}
  - {id: hidden, rights: {license: CC0-1.0, care: {label: R, level: restricted}}}
  - {id: summary, rights: {license: CC0-1.0, care: {label: Public}}}
sources:
  - {id: well, dataset: wells, kind: files, folder: wells, window: P1D, contract: wells.odcs.yaml,
     pattern: "{window.start:%Y-%m-%d}.csv"}
  - {id: shape, dataset: shapes, kind: files, folder: shapes, window: P1D, mode: replace}
  - {id: mound, dataset: hidden, kind: dataset, datasets: {wells: current}, window: none, mode: replace,
     pipeline: "copy.py:publish"}
  - {id: sum, dataset: summary, kind: dataset, datasets: {wells: current}, window: none, mode: replace,
     pipeline: "copy.py:publish"}
publish:
  - {kind: local, path: published, datasets: [wells]}
  - {kind: local, name: other, path: elsewhere, datasets: [shapes]}
"""
CONTRACT = """\
apiVersion: v3.1.0
kind: DataContract
id: wells
version: 1.0.0
status: active
schema:
  - name: wells
    physicalName: "**"
    logicalType: object
    customProperties: [{property: kfmExtraColumns, value: allow}]
    properties:
      - {name: site, logicalType: string, required: true, unique: true}
      - {name: value, logicalType: number, required: true, logicalTypeOptions: {minimum: 0, maximum: 500}}
"""
COPY = "def publish(context):\n    context.publisher.write_file('all.csv', b'n\\n1\\n')\n"
DAYS = [f"2026-01-{day:02d}" for day in range(1, 8)]
UNIT_FROM = "2026-01-05"


class Wells:
    """Seven days of wells, the unit from the fifth on; then one that breaks two checks of the contract."""

    def __init__(self, folder: Path) -> None:
        for name in ("wells", "shapes"):
            (folder / name).mkdir(parents=True)
        (folder / "kfm.yml").write_text(CONFIG)
        (folder / "wells.odcs.yaml").write_text(CONTRACT)
        (folder / "copy.py").write_text(COPY)
        (folder / "guarded.yml").write_text(CONFIG + people_text())
        self.guarded = WebContext(load(str(folder / "guarded.yml")))
        self.loaded = load(str(folder / "kfm.yml"))
        self.context = WebContext(self.loaded)
        app = App(self.loaded, read_only=False, progress=None)
        for day in DAYS:
            unit = day >= UNIT_FROM
            text = f"site,value{',unit' * unit}\nW-1,{day[-2:]}{',m' * unit}\nW-2,7{',m' * unit}\n"
            (folder / "wells" / f"{day}.csv").write_text(text)
            assert app.run(RunRequest(source_id="well", actor="a", window_spec=f"{day}/P1D")).error is None
        (folder / "wells" / "2026-01-08.csv").write_text("site,value\nW-1,-9\nW-1,4\n")
        broken = app.run(RunRequest(source_id="well", actor="a", window_spec="2026-01-08/P1D"))
        assert broken.run is not None
        self.broken_id = broken.run.run_id
        for day, west in zip(DAYS, (-98, -99), strict=False):
            (folder / "shapes" / "a.geojson").write_text(_square(west))
            assert app.run(RunRequest(source_id="shape", actor="a", window_spec=f"{day}/P1D")).error is None
        app.close()


def _square(west: int) -> str:
    ring = [[west, 38], [west + 1, 38], [west + 1, 39], [west, 39], [west, 38]]
    feature = {
        "type": "Feature",
        "properties": {"name": "Reno"},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }
    return json.dumps({"type": "FeatureCollection", "features": [feature]})


@pytest.fixture(scope="module")
def wells(tmp_path_factory: pytest.TempPathFactory) -> Wells:
    return Wells(tmp_path_factory.mktemp("tabs") / "project")


@pytest.fixture
def page(wells: Wells) -> Reader:
    return Reader(wells.context)


@pytest.mark.req("REL-4")
def test_every_tab_has_an_address(page: Reader) -> None:
    """Each tab of each dataset is a page that says which one it is, is small, and leads to all others."""
    for name in ("wells", "shapes", "summary"):
        for tab, title in TABS.items():
            path = f"datasets/{name}" + (f"?tab={tab}" if tab != "coverage" else "")
            found = page.page(path)
            here = [
                attrs.get("href") for kind, attrs in found.tags if "aria-current" in attrs and kind == "a"
            ]
            assert f"/console/{path}" in here, (path, here)
            assert f'<h2 id="{tab}">{title}' in page.ask(path).text or tab == "coverage"
            assert len(page.ask(path).content) <= 100_000, path
            assert not found.odd, (path, found.odd)
    assert page.ask("datasets/wells?tab=odd").status_code == 400
    assert page.ask("datasets/wells?tab=versions&version=x").status_code == 400
    assert page.ask("datasets/wells?tab=versions&before=0").status_code == 400
    assert page.ask("datasets/none?tab=schema").status_code == 404


def test_two_versions_beside_each_other(page: Reader, wells: Wells) -> None:
    """The page compares as the API does; every version leads to its changes, and to the form that puts it
    back, which knows the version."""
    links = page.page("datasets/wells?tab=versions").links()
    (changes,) = [link for link in links if "version=7" in link and "against=6" in link]
    text = page.page(changes.removeprefix("/console/")).text
    (told,) = [asked(wells, "/datasets/wells/versions/7/diff")["summary"]]  # type: ignore[arg-type]
    assert f"Version 7 against version 6 {told}." in text
    shown = page.page("datasets/shapes?tab=versions&version=2").text
    assert "Rows: 0 added, 1 changed, 0 removed, 0 unchanged. Rows are found again by name." in shown
    assert "Polygon of 5 positions, -98…-97, 38…39 → Polygon of 5 positions, -99…-98, 38…39" in shown
    assert (
        "Choose two different versions." in page.page("datasets/wells?tab=versions&version=3&against=3").text
    )
    assert "There is no version of that number." in page.page("datasets/wells?tab=versions&version=99").text


def test_versions_are_read_to_the_first(page: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page, every version is listed once."""
    from kfm.web.console.views import dataset_versions

    monkeypatch.setattr(dataset_versions, "VERSIONS", 3)
    path, found = "datasets/wells?tab=versions", []
    for _ in range(5):
        found += [cells[0] for cells in rows(page, path, "versions")]
        older = re.search(r'href="/console/([^"]+)" rel="next"', page.ask(path).text)
        if older is None:
            break
        path = older[1].replace("&amp;", "&")
    assert found == [str(number) for number in range(7, 0, -1)]


@pytest.mark.req("DAT-4")
def test_a_version_is_put_back_from_its_row(filled: Filled, guarded: Filled) -> None:
    """The link of a row leads to the form of the rollback, with this version in it; a reader has none."""
    reader = Reader(guarded.context)
    reader.ask("sign-in", "POST", data={"token": TOKENS["ann"]})
    (link,) = [each for each in reader.page("datasets/rivers?tab=versions").links() if "to_version=1" in each]
    form = reader.page(link.removeprefix("/console/"))
    fields = {attrs.get("name"): attrs.get("value") for kind, attrs in form.tags if kind == "input"}
    assert fields["to_version"] == "1"
    assert not any(
        "to_version" in each for each in Reader(filled.context).page("datasets/rivers?tab=versions").links()
    )


def test_the_schema_says_what_changed_and_when(page: Reader) -> None:
    """Columns with the types of their values and of the contract; from when on there is one more."""
    columns = rows(page, "datasets/wells?tab=schema", "schema")
    assert [cells[:3] for cells in columns] == [
        ["site", "string", "string, required"],
        ["value", "integer", "number, required"],
        ["unit", "string", "–"],
    ]
    text = page.page("datasets/wells?tab=schema").text
    assert f"{UNIT_FROM} 00:00 … 2026-01-06 00:00 unit –" in text


def test_the_contract_has_every_check_with_its_last_verdicts(page: Reader, wells: Wells) -> None:
    """All checks that the last run failed are named, though what is published keeps them."""
    found = {cells[0]: cells[1:] for cells in rows(page, "datasets/wells?tab=contract", "contract")}
    assert [name for name, cells in found.items() if cells[0] == "! failed"] == [
        "schema.column.range:value",
        "schema.column.unique:site",
    ]
    assert list(found)[:2] == ["schema.column.range:value", "schema.column.unique:site"]
    assert all(cells[1] == "✓ passed" for cells in found.values())
    text = page.page("datasets/wells?tab=contract").text
    assert f"{wells.broken_id[:13]}" in text
    assert "2 of 9 checks failed" in text
    assert "No source of it has a contract" in page.page("datasets/shapes?tab=contract").text


def test_the_rest_of_what_is_on_record(page: Reader) -> None:
    """Rights, targets, place and runs of a dataset are told where they are known."""
    rights = page.page("datasets/wells?tab=rights").text
    for said in (
        "CC-BY-4.0",
        "The survey",
        "The council",
        "granted, agreement https://council.example/a-7",
        "Groundwater desk, #water",
    ):
        assert said in rights
    targets = {cells[0]: cells[1:] for cells in rows(page, "datasets/wells?tab=targets", "targets")}
    assert targets["local"][1:5] == ["✓ shown", "7", "7", "–"]
    assert targets["other"][1] == "· not taken"
    place = page.page("datasets/shapes?tab=extent").text
    assert "99°W to 98°W, 38°N to 39°N; 1 feature of 1 GeoJSON file" in place
    assert "No map:" in page.page("datasets/summary?tab=extent").text
    durations = page.ask("datasets/wells?tab=trend").text
    assert len(re.findall(r"data-took=\"\d+\"", durations)) == 8
    assert "/static/uplot." in durations
    assert "/static/uplot." not in page.ask("datasets/wells?tab=runs").text
    assert len(rows(page, "datasets/wells?tab=runs", "runs")) == 8


def test_the_lineage_of_a_dataset_leads_everywhere(page: Reader) -> None:
    """From its sources to what is derived of it and to its targets, each box is a link."""
    found = page.page("datasets/wells?tab=lineage")
    links = [link for link in found.links() if "/console/" in link]
    for wanted in ("runs?source=well", "datasets/summary", "datasets/hidden", "datasets/wells?tab=targets"):
        assert f"/console/{wanted}" in links, wanted
    assert "shapes" not in found.text
    for link in set(links):
        assert page.ask(link.removeprefix("/console/")).status_code == 200, link


def test_a_reader_learns_nothing_of_what_is_masked(wells: Wells) -> None:
    """In no tab of a dataset is a masked one named that is made of it, nor its source; its own pages are
    refused."""
    reader = Reader(wells.guarded)
    assert reader.ask("sign-in", "POST", data={"token": TOKENS["cy"]}).status_code == 303
    for tab in TABS:
        text = reader.ask(f"datasets/wells?tab={tab}").text
        assert "mound" not in text
        assert "datasets/hidden" not in text
        assert not re.search(r">\s*hidden\s*<", text)
        assert reader.ask(f"datasets/hidden?tab={tab}").status_code in (403, 404)
    shown = reader.page("datasets/wells?tab=lineage").text
    assert "1 dataset that the role read may not know is left out" in shown
    assert "5 nodes: 1 source, 2 datasets, 1 derived, 1 shown" in shown


def test_cells_say_what_they_are_of(page: Reader) -> None:
    """Each cell of a calendar names its source, its window and its state, for scripts to select by."""
    tags = page.page("datasets/wells?from=2026-01-01").tags
    cells = [attrs for kind, attrs in tags if kind == "g" and "data-state" in attrs]
    assert {(cell["data-source"], cell["data-start"], cell["data-end"]) for cell in cells} >= {
        ("well", f"{day}T00:00:00Z", f"{after}T00:00:00Z") for day, after in pairwise(DAYS)
    }
    assert {cell["data-state"] for cell in cells} >= {"published"}


def test_a_large_comparison_leaves_its_page_small(page: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files, columns and rows differ, and however wide they are: the page shows what it has room
    for, and counts the rest."""
    from kfm.publish.manifest import VersionChange
    from kfm.reports.version_diffs import Cell, ColumnChange, RowChange, RowsOfFile, VersionDiff
    from kfm.web.console.views import dataset_versions

    cells = tuple(Cell(column=f"c{n}", before=None, after="x" * 200) for n in range(12))
    rows = tuple(RowChange(kind="added", key=f"{n}", cells=cells) for n in range(100))
    columns = tuple(ColumnChange(kind="added", column=f"c{n}", before=None, after="date") for n in range(500))
    tables = tuple(
        RowsOfFile(
            path=f"{n}.csv",
            earlier_path=None,
            source_id="s",
            is_compared=True,
            added=100,
            columns=columns,
            rows=rows,
        )
        for n in range(20)
    )
    found = VersionDiff(
        files_added=205,
        files_changed=0,
        files_removed=0,
        files_unchanged=0,
        changes=tuple(VersionChange(kind="added", what="asset", name=f"{n}" * 60) for n in range(200)),
        changes_more=5,
        tables=tables,
        tables_more=0,
        shows_values=True,
    )
    monkeypatch.setattr(dataset_versions, "compared_versions", lambda *_: found)
    answer = page.ask("datasets/wells?tab=versions&version=7")
    assert len(answer.content) <= 100_000
    text = page.page("datasets/wells?tab=versions&version=7").text
    told = len(re.findall("x{200}", text)) // 12
    assert told >= 5
    assert sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) more rows differ", text)) == 2000 - told
    assert "and 488 more columns" in text


def test_windows_are_listed_to_the_last(page: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page, every window of a dataset is there once, the newest first."""
    from kfm.web.console.views import datasets

    monkeypatch.setattr(datasets, "ROWS", 3)
    path, found = "datasets/wells?from=2026-01-01", []
    for _ in range(5):
        found += [cells[0][:10] for cells in rows(page, path, "windows")]
        older = re.search(r'href="/console/([^"]+)" rel="next"', page.ask(path).text)
        if older is None:
            break
        path = older[1].replace("&amp;", "&")
    assert found == ["2026-01-08", *reversed(DAYS)]
    for odd in ("x", "1", "1.2", "1.2.x", "9" * 30 + ".1.1"):
        assert page.ask(f"datasets/wells?before={odd}").status_code == 400, odd
