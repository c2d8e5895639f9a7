"""A forger: edits an audit export or a bundle of evidence, and refits all that can be refitted.

    python -m tests.forger [EDITS] [SEED]

The reader has a verifier from elsewhere and an anchor of the chain, no digest. Each edit must be found, or
lie within what the verifier's own output declares as unproven or withheld.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from kfm.evidence_bundle import verify_bundle
from kfm.model import audit
from kfm.model.canonical import canonical_bytes
from tests.unit.audit.tampering import verifier

Files = dict[str, bytes]
DOCUMENTS = ("versioning_ledger.json", "postmortems.json", "reviews.json", "pipeline_retry_log.json")
CHAIN, LISTING, PAGES, ANCHORS = "audit-chain.jsonl", "export.json", "unit-pages.jsonl", "anchors.jsonl"
LINKS, EVENTS, PROOFS = "governance/links.jsonl", "openlineage.jsonl", "openlineage.proofs.jsonl"
METADATA, CHECKSUMS = "ro-crate-metadata.json", "checksums.sha256"


class Edit(NamedTuple):
    """What was done to which file."""

    file: str
    what: str
    place: tuple[Any, ...] = ()  # in a document: keys and indices; of lines: the line


class Verdict(NamedTuple):
    found: bool
    lines: list[str]


# --- edits of documents ----------------------------------------------------------------


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every value of a document."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*at, key))


def at(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        document = document[key]
    return document


def other(rng: random.Random, value: Any, document: Any) -> Any:
    """Another value that could stand there: most often one that stands elsewhere in the document."""
    kin = [one for one in (at(document, place) for place in places(document)) if type(one) is type(value)]
    if rng.random() < 0.5:
        return copy.deepcopy(rng.choice(kin))
    if isinstance(value, bool) or value is None:
        return rng.choice([True, False, None, 1, 0, "x"])
    if isinstance(value, int):
        return value + rng.choice([-1, 1, 1000])
    if isinstance(value, str):
        return rng.choice([value + "x", value[:-1], value.upper(), None])
    return rng.choice([[], {}, None])


def edited(rng: random.Random, document: Any) -> tuple[str, tuple[Any, ...]]:
    """Change one thing; what was done, and where."""
    before = copy.deepcopy(document)
    while True:
        place = rng.choice(list(places(document)))
        holder, key, value = at(document, place[:-1]), place[-1], at(document, place)
        way = rng.choice(["change", "change", "change", "remove", "add", "move"])
        if way == "remove":
            del holder[key]
        elif way == "add" and isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(value))
        elif way == "add":
            holder[f"{key}_too"] = "all is well"
        elif way == "move" and isinstance(holder, list):
            rng.shuffle(holder)
        else:
            way = "change"
            holder[key] = other(rng, value, document)
        if text_of(document) != text_of(before):
            return way, place
        document.clear()
        document.update(copy.deepcopy(before))


def text_of(document: Any) -> bytes:
    """As kfm writes it, numbers of strangers included."""
    return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def lines_of(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def as_lines(rows: list[Any]) -> bytes:
    return b"".join(text_of(row) + b"\n" for row in rows)


def rechained(rows: list[Any], start: int) -> None:
    """Hashes that fit again, from this row on."""
    previous = rows[start]["previous"] if start == 0 else rows[start - 1]["hash"]
    first = rows[0]["number"]
    for index in range(start, len(rows)):
        row = rows[index]
        row["number"], row["previous"] = first + index, previous
        if "entry" in row:
            row["content"] = hashlib.sha256(
                canonical_bytes({"kfm": audit.ENTRY_TAG, "entry": row["entry"]})
            ).hexdigest()
        row["hash"] = previous = audit.link_hash(previous, row["number"], row["content"])


def chain_edit(rng: random.Random, rows: list[Any]) -> tuple[str, int]:
    """Change a chain, with hashes made anew where that helps; what was done, and to which row."""
    index = rng.randrange(len(rows))
    number = rows[index]["number"]
    way = rng.choice(
        ["withhold", "withhold", "entry", "entry-rechained", "drop", "cut", "swap", "hash", "field"]
    )
    shown = [one for one in range(len(rows)) if "entry" in rows[one]]
    if way == "withhold":
        index = rng.choice(shown)
        number = rows[index]["number"]
        del rows[index]["entry"]
    elif way in ("entry", "entry-rechained"):
        index = rng.choice(shown)
        number = rows[index]["number"]
        edited(rng, rows[index]["entry"])
        if way == "entry-rechained":
            rechained(rows, index)
    elif way == "drop":
        del rows[index]
        if index < len(rows) and rng.random() < 0.7:
            rechained(rows, index)
    elif way == "cut":
        del rows[max(1, index) :]
    elif way == "swap":
        index = max(1, index)
        rows[index - 1], rows[index] = rows[index], rows[index - 1]
        rechained(rows, index - 1)
    elif way == "field":
        rows[index]["remark"] = "approved"
    else:
        rows[index]["hash"] = hashlib.sha256(rows[index]["hash"].encode()).hexdigest()
    return way, number


# --- an export of the chain ------------------------------------------------------------


class ExportForger:
    """Edits an export; its reader has the anchor."""

    def __init__(self, folder: Path, anchors: Path) -> None:
        self._folder = folder
        self._anchors = anchors
        self._script = verifier()
        self._files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.withheld = {row["number"] for row in lines_of(self._files[CHAIN]) if "entry" not in row}

    def edit(self, rng: random.Random, files: Files) -> Edit:
        way = rng.random()
        if way < 0.55:
            name = rng.choice(DOCUMENTS[: 3 if rng.random() < 0.9 else 4])
            document = json.loads(files[name])
            done = Edit(name, *edited(rng, document))
            files[name] = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
        elif way < 0.75:
            rows = lines_of(files[CHAIN])
            what, number = chain_edit(rng, rows)
            files[CHAIN] = as_lines(rows)
            if what == "withhold":
                self._withhold(files, number)
            done = Edit(CHAIN, what, (number,))
        elif way < 0.85:
            done = self._page(rng, files)
        elif way < 0.9:
            document = json.loads(files[LISTING])
            self.refit(files)
            done = Edit(LISTING, *edited(rng, document))
            files[LISTING] = json.dumps(document).encode()
            return done
        else:
            done = self._file(rng, files)
        self.refit(files)
        return done

    def _withhold(self, files: Files, number: int) -> None:
        """What tells of a row that is withheld now is withheld, too."""
        for name in ("postmortems.json", "reviews.json"):
            document = json.loads(files[name])
            for one in document["entries"]:
                if one["number"] == number:
                    one |= {"withheld": True, "subject": None, "actor": None, "rationale": None}
                    one |= {"ticket": None, "details": {}}
            files[name] = json.dumps(document).encode()

    def _page(self, rng: random.Random, files: Files) -> Edit:
        rows = files[PAGES].splitlines(keepends=True)
        index = rng.randrange(len(rows))
        page = json.loads(rows[index])
        what = rng.choice(["change", "drop", "withhold", "double", "withhold-wrong"])
        if what == "change":
            edited(rng, page)
            rows[index] = text_of(page) + b"\n"
        elif what == "drop":
            del rows[index]
        elif what == "double":
            page["event"] = "succeeded"
            rows.insert(index, text_of(page) + b"\n")
        else:
            leaf = hashlib.sha256(b"\x00" + rows[index].rstrip(b"\n")).hexdigest()
            page = {"kfm": "withheld-page/1", "number": page["number"], "leaf": leaf}
            if what == "withhold-wrong":
                page["remark"] = "all is well"
            rows[index] = text_of(page) + b"\n"
        files[PAGES] = b"".join(rows)
        return Edit(PAGES, what, (index,))

    def _file(self, rng: random.Random, files: Files) -> Edit:
        what = rng.choice(["add", "cache", "script", "anchor", "no-list", "no-pages"])
        if what == "add":
            files["statement.json"] = b"{}"
        elif what == "cache":
            files["__pycache__/argparse.pyc"] = b"x"
        elif what == "script":
            files["verify_audit.py"] += b"\nprint('sound')\n"
        elif what == "anchor":
            rows = lines_of(files[ANCHORS])
            rows[0][rng.choice(["at", "hash"])] = "2020-01-01T00:00:00Z"
            files[ANCHORS] = as_lines(rows)
        elif what == "no-list":
            del files[LISTING]
        else:
            del files[PAGES]
        name = {"script": "verify_audit.py", "anchor": ANCHORS, "no-pages": PAGES}.get(what, what)
        return Edit(name, what)

    def refit(self, files: Files) -> None:
        """Checksums, sizes, the chain's end and every count."""
        if LISTING not in files:
            return
        rows = lines_of(files[CHAIN])
        end = (
            {"number": rows[-1]["number"], "hash": rows[-1]["hash"]}
            if rows
            else {"number": 0, "hash": audit.ZEROS}
        )
        for name in DOCUMENTS:
            document = json.loads(files[name])
            if document.get("chain") == json.loads(self._files[LISTING])["chain"]:
                document["chain"] = end
                files[name] = json.dumps(document).encode()
        listing = json.loads(files[LISTING])
        listing["chain"], listing["withheld"] = end, sum("entry" not in row for row in rows)
        listing["files"] = [
            {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(files.items())
            if name != LISTING
        ]
        files[LISTING] = json.dumps(listing).encode()

    def verdict(self, files: Files) -> Verdict:
        written = _laid_out(self._folder, self._files, files)
        out = io.StringIO()
        try:
            with redirect_stdout(out):
                code = self._script.main([str(self._folder), "--anchors", str(self._anchors)])
        finally:
            _laid_out(self._folder, {**files, **dict.fromkeys(written, b"")}, self._files)
        return Verdict(code != 0, out.getvalue().splitlines())

    def is_declared(self, edit: Edit, lines: list[str]) -> bool:
        said = [line for line in lines if line.startswith(f"unproven: {edit.file}: ")]
        if edit.file == CHAIN:
            count = len(self.withheld) + 1
            return edit.what == "withhold" and any(f"withheld: {count} entries" in line for line in lines)
        if edit.file == PAGES:
            words = {"withhold": "withheld: ", "no-pages": "unproven: unit-pages.jsonl"}.get(
                edit.what, "unsealed: "
            )
            return any(line.startswith(words) for line in lines)
        if edit.file not in DOCUMENTS[:3]:
            return bool(said)
        fields = {key for key in edit.place if isinstance(key, str)}
        free = {word for line in said if "no row tells" in line for word in _words(line)}
        if edit.what == "change" and fields & free:
            return True
        return self._is_withheld(edit, said, lines)

    def _is_withheld(self, edit: Edit, said: list[str], lines: list[str]) -> bool:
        """Is it about nothing but rows that the chain withholds, and are these named?"""
        rows = set(_rows(at(json.loads(self._files[edit.file]), edit.place[: _depth(edit)])))
        named = {word for line in said if "which names none" in line for word in _words(line)}
        if edit.what == "change" and {"dataset_id", *map(str, rows)} <= named and "dataset_id" in edit.place:
            return True
        named = {word for line in said if "withholds" in line for word in _words(line)}
        some = any("nor that the other files tell of them" in line for line in lines)
        return (
            bool(rows)
            and rows <= self.withheld
            and some
            and {str(row) for row in rows} <= named | _left_out(edit, rows)
        )


def _depth(edit: Edit) -> int:
    """Up to the version, entry or dataset that was edited."""
    indices = [index for index, key in enumerate(edit.place) if isinstance(key, int)]
    return indices[min(len(indices), 2) - 1] + 1 if indices else len(edit.place)


def _rows(value: Any) -> Iterator[int]:
    """The rows of the chain that a part of a document names."""
    if isinstance(value, dict):
        for name, child in value.items():
            if name in ("governance_entry", "number"):
                yield child
            else:
                yield from _rows(child)
    elif isinstance(value, list):
        for child in value:
            yield from _rows(child)


def _left_out(edit: Edit, rows: set[int]) -> set[str]:
    """Rows that no file names any more: that they are withheld is all that can be said."""
    return {str(row) for row in rows} if edit.what == "remove" else set()


def _words(line: str) -> set[str]:
    return {word.strip(",:;") for word in line.split()}


# --- a bundle --------------------------------------------------------------------------


class BundleForger:
    """Edits a bundle; its reader has the anchor, and no digest."""

    def __init__(self, folder: Path, anchors: list[dict[str, Any]]) -> None:
        self._folder = folder
        self._anchors = anchors
        self._files = {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        self._hidden = sum("entry" not in row for row in lines_of(self._files[LINKS]))

    def edit(self, rng: random.Random, files: Files) -> Edit:
        name = rng.choice([LINKS, EVENTS, EVENTS, PROOFS, *sorted(set(files) - {CHECKSUMS, METADATA})])
        way = rng.random()
        if way < 0.05:
            name, what = rng.choice([("__pycache__/uuid.pyc", "add"), ("uuid.py", "add"), (name, "remove")])
            if what == "add":
                files[name] = b"x"
            else:
                del files[name]
            done = Edit(name, what)
        elif name == LINKS:
            rows = lines_of(files[name])
            what, number = chain_edit(rng, rows)
            files[name] = as_lines(rows)
            done = Edit(name, what, (number,))
        elif name.endswith(".jsonl") and not name.startswith("artifacts/") and files[name].strip():
            done = self._line(rng, name, files)
        elif name.endswith((".json", ".jsonld")):
            document = json.loads(files[name])
            done = Edit(name, *edited(rng, document))
            files[name] = json.dumps(document).encode()
        else:
            files[name] += b"x"
            done = Edit(name, "change")
        self.refit(files)
        return done

    def _line(self, rng: random.Random, name: str, files: Files) -> Edit:
        rows = lines_of(files[name])
        index = rng.randrange(len(rows))
        what = rng.choice(["change", "change", "remove", "double", "unproven"])
        if what == "remove":
            del rows[index]
        elif what == "double":
            rows.insert(index, rows[index])
        else:
            edited(rng, rows[index])
        files[name] = as_lines(rows)
        if name == EVENTS and what == "unproven":  # without its proof, and with the gap declared
            proofs = [one for one in lines_of(files[PROOFS]) if one["line"] != index + 1]
            files[PROOFS] = as_lines(proofs)
            about = json.loads(files["evidence.json"])
            if rng.random() < 0.5:
                about["unproven_events"] = len(rows) - len(proofs)
            files["evidence.json"] = json.dumps(about).encode()
        return Edit(name, what, (index + 1,))

    def refit(self, files: Files) -> None:
        """The description and the checksums."""
        crate = json.loads(files[METADATA])
        graph = crate["@graph"]
        root = next(one for one in graph if one["@id"] == "./")
        for name in sorted(set(files) - set(self._files)):
            root["hasPart"].append({"@id": name})
            graph.append({"@id": name, "@type": "File"})
        gone = set(self._files) - set(files)
        root["hasPart"] = [part for part in root["hasPart"] if part["@id"] not in gone]
        for thing in graph:
            data = files.get(thing["@id"])
            if data is not None and "File" in str(thing.get("@type")) and thing["@id"] != CHECKSUMS:
                thing["sha256"], thing["contentSize"] = hashlib.sha256(data).hexdigest(), str(len(data))
        files[METADATA] = json.dumps(crate).encode()
        sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != CHECKSUMS}
        files[CHECKSUMS] = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode()

    def verdict(self, files: Files) -> Verdict:
        _laid_out(self._folder, self._files, files)
        try:
            done = verify_bundle.verify(str(self._folder), "", self._anchors)
        finally:
            _laid_out(self._folder, files, self._files)
        return Verdict(bool(done.findings), done.notes)

    def is_declared(self, edit: Edit, lines: list[str]) -> bool:
        said = [line for line in lines if line.startswith("unproven: ")]
        if edit.what == "remove" and not edit.place:
            left = next((line for line in lines if line.startswith("absent: ")), "")
            usual = edit.file in verify_bundle.USUAL
            return "that no other file was left out" in left and (edit.file in _words(left) or not usual)
        if edit.file == LINKS and edit.what == "withhold":
            return any(f"{self._hidden + 1} of them not shown" in line for line in lines)
        if edit.file == LINKS:  # only what is before, or after the last anchor, can be taken away
            return edit.what in ("drop", "cut") and any(
                line.startswith("governance: entries ") for line in lines
            )
        if edit.file == EVENTS:
            (line,) = edit.place
            words = {word for one in said if EVENTS in one for word in _words(one)}
            return str(line) in words or edit.what == "remove"
        return any(edit.file in _words(line) for line in said)


# --- both ------------------------------------------------------------------------------


def _laid_out(folder: Path, before: Files, files: Files) -> list[str]:
    """Make the folder hold these files; which are new."""
    for name in before.keys() - files.keys():
        (folder / name).unlink(missing_ok=True)
        parent = (folder / name).parent
        if parent != folder and parent.exists() and not list(parent.iterdir()):
            parent.rmdir()
    for name, data in files.items():
        if before.get(name) != data or not (folder / name).exists():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
    return sorted(files.keys() - before.keys())


def missed(
    forger: ExportForger | BundleForger, edits: int, seed: int
) -> tuple[list[tuple[int, Edit]], Counter[str]]:
    """Edits that were neither found nor declared, with their seeds; and how many were what."""
    left: list[tuple[int, Edit]] = []
    counts: Counter[str] = Counter()
    original = dict(forger._files)
    first = forger.verdict(dict(original))
    assert not first.found, first.lines
    for number in range(seed, seed + edits):
        files = dict(original)
        edit = forger.edit(random.Random(number), files)
        if files == original:
            continue
        verdict = forger.verdict(files)
        if verdict.found:
            counts["found"] += 1
        elif forger.is_declared(edit, verdict.lines):
            counts["declared"] += 1
        else:
            left.append((number, edit))
    return left, counts


def main(arguments: list[str]) -> int:
    from tests.unit.audit.exports import exported_with_units
    from tests.unit.evidence_bundle.test_bundle import anchored_bundle

    edits, seed = (int(text) for text in [*arguments, "1000", "1"][:2]) if arguments else (1000, 1)
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, forger in (
            ("export", ExportForger(*exported_with_units(folder))),
            ("bundle", BundleForger(*anchored_bundle(folder))),
        ):
            left, counts = missed(forger, edits, seed)
            print(f"{name}: {dict(counts)}, {len(left)} missed")
            for number, edit in left[:20]:
                print(f"  seed {number}: {edit}")
            failed += len(left)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
