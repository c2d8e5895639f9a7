"""Versions: the ids of pages, facts, root documents, and the documents that are published of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.item_ids import item_id
from kfm.model.records import Item, Manifest, Window
from kfm.model.times import MS_MAX, MS_MIN
from kfm.model.trees import EMPTY
from kfm.model.version_trees import facts_of, files_forest, folded, item_document, items_forest
from kfm.model.versions import Version, version_of
from kfm.publish.catalogue import documents
from tools.vector_cases.shape import Case, Family

HOUR_MS = 3_600_000
_START_MS = 1_767_218_400_000  # 2025-12-31T22:00:00Z: the first two hours are of another year


def _evaluate(given: dict[str, Any]) -> Any:
    if "item" in given:
        item = msgspec.convert(given["item"], Item)
        document = item_document(item)
        found = {"document": document.decode(), "sha256": sha256(document).hexdigest(), "size": len(document)}
        return found | {"facts": _plain(facts_of(item))}
    if "facts" in given:
        return _plain(folded(given["facts"]))
    if "items" in given:
        return _version(given)
    return _tree(given)


def _plain(facts: Iterable[Any]) -> list[Any]:
    return [list(one) if isinstance(one, tuple) else one for one in facts]


def _tree(given: dict[str, Any]) -> dict[str, Any]:
    facts = given.get("with_facts")
    stored: dict[str, str] = {}
    forest = (items_forest if facts else files_forest)(stored.__getitem__)
    rows: dict[str, Any] = {}
    for number in range(given["first"], given["beyond"]):
        name = f"{given['begins']}{number}"
        row = (name, sha256(name.encode()).hexdigest(), len(name.encode()))
        rows[name] = (*row, [number, 1, number, -number, 1, number, None, None]) if facts else row
    tree_id, _ = forest.put(EMPTY, rows)
    pages: set[str] = set()
    if tree_id != EMPTY:
        forest.reach(tree_id, pages)
    return {"tree_id": tree_id, "level": forest.node(tree_id).level, "pages": len(pages)}


# --- whole versions ------------------------------------------------------------------------


def _version(given: dict[str, Any]) -> dict[str, Any]:
    """What a version is called, in both forms, its root document, and what is published of it."""
    items = sorted(_items_of(given["items"]), key=lambda item: item["id"])
    manifest = msgspec.convert({**_HEADER, **given.get("header", {}), "items": items}, Manifest)
    version = version_of(manifest)
    whole = version_of(manifest, 1)
    return {
        "root": canonical_bytes(msgspec.to_builtins(version.root)).decode(),
        "version_id": version.version_id,
        "whole_id": whole.version_id,
        "facts": _plain(version.facts()),
        "documents": _documents(version, texts=given.get("texts", False)),
    }


def _documents(version: Version, *, texts: bool) -> dict[str, Any]:
    """Each document by its path: its text, or its hash, those of many items in one."""
    made = {name: data.decode() for name, data in documents(version)}
    if texts:
        return made
    hashes = {name: sha256(text.encode()).hexdigest() for name, text in made.items()}
    items = {name: hashes.pop(name) for name in sorted(hashes) if name.startswith("items/")}
    lines = "".join(f"{name} {digest}\n" for name, digest in items.items())
    return hashes | {f"{len(items)} items": sha256(lines.encode()).hexdigest()}


_HEADER: dict[str, Any] = {
    "dataset_id": "levels",
    "title": "Levels",
    "description": "Levels of rivers",
    "domain": "water",
    "keywords": ["river", "level"],
    "rights": {
        "license": "CC0-1.0",
        "care": {"label": "Public", "level": "public"},
        "sovereignty": None,
        "local_contexts": None,
        "attribution": None,
    },
}


def _items_of(given: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """`count` windows of a source, one after the other, each with one file; or the item itself."""
    for one in given:
        if "count" not in one:
            yield one
            continue
        for number in range(one["count"]):
            start_ms = one["start_ms"] + number * one["step_ms"]
            window = Window(start_ms=start_ms, end_ms=start_ms + one["step_ms"], spec="")
            path = f"{one['source_id']}/{number:05d}.csv"
            asset = {"path": path, "sha256": sha256(path.encode()).hexdigest(), "size": number}
            asset |= {"media_type": "text/csv", "source_uri": None, "roles": ["data"]}
            asset["modified_ms"] = None if number % 3 else start_ms
            box = None if number % 4 else [str(number % 170), "-10", f"{number % 170}.5", "10.5"]
            yield {
                "id": item_id(one["source_id"], window, None),
                "source_id": one["source_id"],
                "window_start_ms": window.start_ms,
                "window_end_ms": window.end_ms,
                "partition": None,
                "assets": [asset],
                "bbox": box,
            }


# --- cases ---------------------------------------------------------------------------------


def _trees() -> list[Case]:
    counts = (0, 1, 2, 10, 63, 64, 65, 100, 300, 1000, 5000)
    cases = [
        Case(f"{count} files", {"begins": "levels_", "first": 100_000, "beyond": 100_000 + count})
        for count in counts
    ]
    cases += [
        Case(
            f"{count} items",
            {"begins": "levels_", "first": 100_000, "beyond": 100_000 + count, "with_facts": True},
        )
        for count in (1, 2, 100, 300, 5000)
    ]
    cases += [
        Case(f"300 files from {first}", {"begins": "levels_", "first": first, "beyond": first + 300})
        for first in (100_001, 100_050, 200_000)
    ]
    return cases + [
        Case(f"300 files that begin with {begins}", {"begins": begins, "first": 0, "beyond": 300})
        for begins in ("", "a.b~c-", "näss-", "水_", "\N{EARTH GLOBE AMERICAS}")
    ]


_ASSET: dict[str, Any] = {
    "path": "data/a.csv",
    "sha256": "ab" * 32,
    "size": 12,
    "media_type": "text/csv",
    "source_uri": None,
    "modified_ms": None,
    "roles": ["data"],
}
_ITEM: dict[str, Any] = {
    "id": "levels_1",
    "source_id": "levels",
    "window_start_ms": 0,
    "window_end_ms": HOUR_MS,
    "partition": None,
    "assets": [_ASSET],
    "bbox": None,
}
_RUN_STATE = {
    "dataset_id": "levels",
    "run_id": "r",
    "lakefs_branch": "main",
    "inputs_hash": "sha256:1",
    "validation_summary": {"passed": 2, "failed": 0, "checks": 2},
    "outcome": "success",
    "code_sha": "sha256:2",
}
_SNAPSHOT = {"id": "wells", "source_id": "wells", "window_start_ms": MS_MIN, "window_end_ms": MS_MAX}


def _items() -> list[Case]:
    other = _ASSET | {"path": "data/b.csv", "roles": ["metadata", "x"]}
    forms: dict[str, dict[str, Any]] = {
        "one file": {},
        "no files": {"assets": []},
        "two files": {"assets": [_ASSET, other]},
        "a file with a time": {"assets": [_ASSET | {"modified_ms": 7}, other]},
        "files with times": {"assets": [_ASSET | {"modified_ms": 7}, other | {"modified_ms": -8}]},
        "a partition": {"partition": "north"},
        "an extent": {"bbox": ["-102.05", "36.99", "-94.59", "40.0"]},
        "a run": {"run_state": _RUN_STATE},
        "a time": {"as_of": [1, 2]},
        "a snapshot": _SNAPSHOT,
        "a snapshot with times": _SNAPSHOT | {"as_of": [1, 2]},
        "an instant": {"window_end_ms": 0},
        "a quote": {"partition": 'the "north"\\'},
        "a line": {"partition": "one\ntwo\u0001\u007f"},
        "letters of other scripts": {"partition": "Ünïcode – 水"},
        "a letter beyond the plane": {"partition": "\N{EARTH GLOBE AMERICAS}"},
        "a large number": {"window_end_ms": 2**53 - 1},
        "digits": {"partition": "1234567890123456789"},
    }
    return [Case(name, {"item": _ITEM | changes}) for name, changes in forms.items()]


def _facts() -> list[Case]:
    def facts(bbox: list[str] | None, modified_ms: int | None = None, number: int = 1) -> list[Any]:
        return [number, 10 * number, 100 * number, 200 * number, 5, 6 + number, modified_ms, bbox]

    east, west = ["10", "-1", "20.5", "1"], ["-20", "-2", "-10", "0.5"]
    across, other = ["170", "-5", "-170", "5"], ["179.5", "-6", "-179", "4"]
    forms = {
        "of nothing": [],
        "of one": [facts(east, 3)],
        "without boxes": [facts(None, None, 1), facts(None, None, 2)],
        "one without a box": [facts(None, None, 3), facts(east, None, 2)],
        "equal boxes": [facts(east), facts(east)],
        "two boxes": [facts(east), facts(west)],
        "two boxes in another order": [facts(west), facts(east)],
        "a box across the antimeridian": [facts(across)],
        "equal boxes across the antimeridian": [facts(across), facts(across), facts(None)],
        "one of two boxes across the antimeridian": [facts(east), facts(across)],
        "two boxes across the antimeridian": [facts(other), facts(across)],
        "two texts of one number": [facts(["10", "1", "20", "2"]), facts(["10.0", "1.0", "20.0", "2.0"])],
        "numbers, not texts": [facts(["-9", "-9", "9", "9"]), facts(["-10", "-10", "10", "10"])],
        "a zero below zero": [facts(["-0", "-0", "0", "0"]), facts(["0", "0", "-0", "-0"])],
        "times and none": [facts(None, None), facts(None, 5), facts(None, None), facts(None, -7)],
        "times before 1970": [facts(None, -5), facts(None, -7)],
        "the lengths of windows": [[0, 0, 0, 0, 9, 9, None, None], [0, 0, 0, 0, 3, 3, None, None]],
    }
    return [Case(f"facts {name}", {"facts": each}) for name, each in forms.items()]


def _versions() -> list[Case]:
    def of(count: int, source_id: str = "levels", step_ms: int = HOUR_MS) -> dict[str, Any]:
        return {"source_id": source_id, "count": count, "start_ms": _START_MS, "step_ms": step_ms}

    restricted = {**_HEADER["rights"], "care": {"label": "Held", "level": "restricted"}}
    several = {
        "no items": [],
        "one item": [of(1)],
        "items of a source": [of(30)],
        "items of two sources": [of(20), of(15, "flow", 86_400_000)],
        "a snapshot among them": [of(3), _ITEM | _SNAPSHOT | {"as_of": [1, _START_MS]}],
        "100 items": [of(100)],
        "101 items": [of(101)],
        "800 items of two sources": [of(420), of(380, "flow.2", 2 * HOUR_MS)],
    }
    cases = [Case(f"a version with {name}", {"items": items}) for name, items in several.items()]
    spots = [_ITEM | {"bbox": ["170", "-5", "-170", "5"], "partition": "north", "run_state": _RUN_STATE}]
    spots += [
        _ITEM | {"id": "levels_2", "window_start_ms": -1, "bbox": ["-0.50", "0", "1e1", "10"], "assets": []}
    ]
    forms: dict[str, dict[str, Any]] = {
        "letters of other scripts": {"header": {"title": "Pegelstände – 水位", "description": 'a "quote"'}},
        "restricted data": {"header": {"rights": restricted}},
        "no keywords": {"header": {"keywords": []}},
        "boxes and a run": {"items": spots},
        "a source whose name is not safe": {"items": [of(2, "pegel/水")]},
        "a source whose name begins another's": {"items": [of(60), of(60, "levels_2", 86_400_000)]},
        "snapshots among many": {"items": [of(101), *_snapshots()]},
    }
    usual = {"items": [of(3)]}
    return cases + [
        Case(f"a version with {name}", {**usual, **form, "texts": name not in _MANY})
        for name, form in forms.items()
    ]


_MANY = ("a source whose name begins another's", "snapshots among many")


def _snapshots() -> list[dict[str, Any]]:
    asset = _ASSET | {"path": "wells/north.csv"}
    north = {"id": "wells~north", "partition": "north", "assets": [asset]}
    return [_ITEM | _SNAPSHOT | {"as_of": [1, _START_MS]}, _ITEM | _SNAPSHOT | north]


FAMILIES = [
    Family(
        "version_trees",
        "Versions: the id, level and number of pages of the tree of the entries named begins + number, each with "
        "the SHA-256 and length of its name (with_facts: and with facts of its number); the documents and facts "
        "of items; facts folded; and the root documents, ids and published documents of whole versions. An "
        "element of items that has a count stands for so many windows of its source.",
        _evaluate,
        [*_trees(), *_items(), *_facts(), *_versions()],
    )
]
