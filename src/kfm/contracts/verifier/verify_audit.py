#!/usr/bin/env python3
"""Checks an exported audit chain. Needs Python 3.9 or newer, and nothing else.

    python verify_audit.py EXPORT_DIR [--anchors FILE]

Exit status: 0 the chain is sound, 1 it is not (the first bad row is named), 2 it can't be read.

The chain: one JSON object a line, in RFC 8785 form (keys sorted, no white space), with
  number    1, 2, 3, ... without a gap
  content   SHA-256 of {"entry": ENTRY, "kfm": "audit-entry/1"}, in the same form
  previous  the hash of the line before; 64 zeros in the first
  hash      SHA-256 of {"content": .., "kfm": "audit-link/1", "number": .., "previous": ..}
  entry     what was recorded; absent where it is withheld, which the hashes allow
An anchor is a line {"at": .., "environment": .., "hash": .., "number": ..} that was kept elsewhere.
Anchors of another environment than the export's are left out. The other files of an export are compared
with export.json, and their rows with the chain; of the retry log, which has no rows there, nothing but
its checksum is known. unit-pages.jsonl, where it is there, holds the history of units: the SHA-256 of a zero
byte and a line is a leaf of the tree (RFC 6962) whose root an entry of kind `seal` about `units` holds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import stat
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

ZEROS = "0" * 64
INT_MAX = 2**53 - 1
ENTRY_FIELDS = {"kind", "subject", "actor", "recorded_at_ms", "rationale", "ticket", "details"}
LINK_FIELDS = {"number", "previous", "content", "hash"}
FILES = {"audit-chain.jsonl", "anchors.jsonl", "pipeline_retry_log.json", "versioning_ledger.json",
         "postmortems.json", "reviews.json", "verify_audit.py"}  # fmt: skip
PLAIN = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


class Bad(Exception):
    """A line that kfm can't have written."""


def canonical(value: Any) -> str:
    """RFC 8785 text of text, whole numbers, true, false, null, lists and objects."""
    text = PLAIN(value)
    # Python sorts keys by code points, RFC 8785 by UTF-16: they differ only beyond U+FFFF.
    return text if max(text) <= "\uffff" else sorted_text(value)


def sorted_text(value: Any) -> str:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(PLAIN(key) + ":" + sorted_text(value[key]) for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(sorted_text, value)) + "]"
    return PLAIN(value)


def refused(text: str) -> Any:
    raise Bad(f"it holds the number {text[:32]}, which kfm never records")


def whole(text: str) -> int:
    return int(text) if len(text) < 20 and abs(int(text)) <= INT_MAX else refused(text)


def digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(document).encode("utf-8")).hexdigest()


def content_hash(entry: dict[str, Any]) -> str:
    return digest({"kfm": "audit-entry/1", "entry": entry})


def link_hash(previous: str, number: int, content: str) -> str:
    return digest({"kfm": "audit-link/1", "previous": previous, "number": number, "content": content})


def parse(line: bytes) -> dict[str, Any]:
    """One line of the chain; it must be written in exactly one way."""
    try:
        link = json.loads(line.decode("utf-8"), parse_int=whole, parse_float=refused, parse_constant=refused)
        same = canonical(link).encode("utf-8") == line.rstrip(b"\n")
    except (ValueError, RecursionError):
        raise Bad("it is not JSON as kfm writes it") from None
    if not same or not line.endswith(b"\n"):
        raise Bad("it is not written in canonical form")
    if not isinstance(link, dict) or set(link) - {"entry"} != LINK_FIELDS:
        raise Bad("it does not have the fields of a link")
    if type(link["number"]) is not int or not all(
        isinstance(link[name], str) for name in ("previous", "content", "hash")
    ):
        raise Bad("a field of it has the wrong type")
    if "entry" in link and (not isinstance(link["entry"], dict) or set(link["entry"]) != ENTRY_FIELDS):
        raise Bad("its entry does not have the fields of an entry")
    return link


def check_link(link: dict[str, Any], number: int, previous: str) -> None:
    """Raise Bad unless this is row `number`, after the row with the hash `previous`."""
    if link["number"] > number:
        raise Bad(f"it is missing; row {link['number']} comes next")
    if link["number"] != number:
        raise Bad(f"a row numbered {link['number']} stands in its place")
    if link["previous"] != previous:
        raise Bad("it does not follow on the row before it")
    if "entry" in link and content_hash(link["entry"]) != link["content"]:
        raise Bad("its entry is not the one that was recorded")
    if link_hash(previous, number, link["content"]) != link["hash"]:
        raise Bad("its hash is not the one that was recorded")


def verify(
    lines: Iterable[bytes],
    anchors: Iterable[dict[str, Any]] = (),
    seen: dict[int, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """What chain and anchors say together: `sound`, and `row` and `problem` if it is not.

    `seen` is filled with the links that are sound.
    """
    kept: dict[int, list[dict[str, Any]]] = {}
    for anchor in anchors:
        kept.setdefault(anchor["number"], []).append(anchor)
    report: dict[str, Any] = {
        "sound": False,
        "rows": 0,
        "hash": ZEROS,
        "anchored": 0,
        "anchors": 0,
        "withheld": 0,
    }
    try:
        for line in lines:
            number = report["rows"] + 1
            link = parse(line)
            check_link(link, number, report["hash"])
            for anchor in kept.pop(number, ()):
                if anchor["hash"] != link["hash"]:
                    raise Bad(f"it is not the row that was anchored at {anchor['at']}")
                report["anchored"], report["anchors"] = number, report["anchors"] + 1
            report["rows"], report["hash"] = number, link["hash"]
            report["withheld"] += "entry" not in link
            if seen is not None:
                seen[number] = link
        if kept:
            anchor = kept[max(kept)][0]
            raise Bad(f"the chain ends before it, but row {max(kept)} was anchored at {anchor['at']}")
        report["sound"] = True
    except Bad as problem:
        report["row"], report["problem"] = report["rows"] + 1, str(problem)
    report["unanchored_since"] = report["anchored"] + 1 if report["anchored"] < report["rows"] else None
    return report


# --- the other files -------------------------------------------------------------------


def opened(path: str) -> Any:
    """A plain file: a link, or a pipe that never ends, was not exported."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(0, "it is no plain file", path)
    return open(path, "rb")


def load(folder: str, name: str) -> Any:
    with opened(os.path.join(folder, name)) as file:
        return json.loads(file.read().decode("utf-8"))


def file_hash(path: str) -> str:
    whole = hashlib.sha256()
    with opened(path) as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            whole.update(chunk)
    return whole.hexdigest()


def file_problems(folder: str, report: dict[str, Any]) -> Iterable[str]:
    """Files that are not the ones that export.json lists."""
    export = load(folder, "export.json")
    if export["chain"] != {"number": report["rows"], "hash": report["hash"]}:
        yield "export.json: it was made with another chain"
    if export["withheld"] != report["withheld"]:
        yield "export.json: another number of entries was withheld"
    for listed in export["files"]:
        path = os.path.join(folder, os.path.basename(listed["name"]))
        if not os.path.lexists(path):
            yield f"{listed['name']}: it is missing"
        elif file_hash(path) != listed["sha256"]:
            yield f"{listed['name']}: it is not the file that was exported"
    named = {listed["name"] for listed in export["files"]}
    for name in sorted(FILES - named):
        yield f"{name}: export.json does not list it"
    for name in sorted(set(os.listdir(folder)) - named - {"export.json", "__pycache__"}):
        yield f"{name}: it does not belong to the export"


def version_problems(ledger: Any, seen: dict[int, dict[str, Any]]) -> Iterable[str]:
    """Versions whose row of the chain records something else."""
    for dataset in ledger["datasets"]:
        for version in dataset["versions"]:
            number = version["governance_entry"]
            if number is None:
                continue
            link = seen.get(number)
            entry = link.get("entry") if link else None
            recorded = entry and (entry["kind"], entry["subject"], entry["details"].get("version_id"))
            if link is None or (
                entry and recorded != ("promotion", version["run_id"], version["version_id"])
            ):
                yield (
                    f"versioning_ledger.json: version {version['sequence']} of {dataset['dataset_id']} "
                    f"is not what row {number} of the chain records"
                )


def extract_problems(
    name: str, kinds: set[str], ledger: Any, seen: dict[int, dict[str, Any]]
) -> Iterable[str]:
    """Entries that differ from their rows of the chain, or that were left out."""
    for one in ledger["entries"]:
        link = seen.get(one["number"])
        entry = link.get("entry") if link else None
        facts = ("kind", "subject", "actor", "rationale", "ticket", "details")
        differs = entry and not one["withheld"] and any(one.get(fact) != entry[fact] for fact in facts)
        if link is None or link["hash"] != one["hash"] or differs:
            yield f"{name}: it differs from row {one['number']} of the chain"
    told = {one["number"] for one in ledger["entries"]}
    for number, link in seen.items():
        if "entry" in link and link["entry"]["kind"] in kinds and number not in told:
            yield f"{name}: row {number} of the chain is not in it"


def page_problems(folder: str, seen: dict[int, dict[str, Any]], notes: list[str]) -> Iterable[str]:
    """Pages of the history of units that are not what was sealed. Each line is what was hashed."""
    path = os.path.join(folder, "unit-pages.jsonl")
    if not os.path.lexists(path):
        return
    leaves: dict[int, bytes] = {}
    with opened(path) as file:
        for line in file:
            page = json.loads(line.decode("utf-8"))
            withheld = page["kfm"] == "withheld-page/1"
            leaves[page["number"]] = (
                bytes.fromhex(page["leaf"]) if withheld
                else hashlib.sha256(b"\x00" + line.rstrip(b"\n")).digest()
            )  # fmt: skip
    numbers, sealed, seals = sorted(leaves), 0, 0
    for number, link in seen.items():
        entry = link.get("entry")
        if not entry or (entry["kind"], entry["subject"]) != ("seal", "units"):
            continue
        details = entry["details"]
        found = [leaves[at] for first, last in details["members"]
                 for at in numbers[bisect_left(numbers, first) : bisect_right(numbers, last)]]  # fmt: skip
        if len(found) != details["count"] or root(found) != details["root"]:
            yield f"unit-pages.jsonl: it is not what row {number} of the chain has sealed"
        sealed, seals = sealed + len(found), seals + 1
    notes.append(f"sealed: {sealed} pages of the history of units by {seals} seals")
    if len(leaves) > sealed:
        notes.append(f"unsealed: {len(leaves) - sealed} pages of it, for which nothing vouches")


def root(leaves: list[bytes]) -> str:
    """Of a tree of hashes, as RFC 6962 has it."""
    level = leaves or [hashlib.sha256(b"").digest()]
    while len(level) > 1:
        pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
        level = [pair[0] if len(pair) == 1 else hashlib.sha256(b"\x01" + b"".join(pair)).digest()
                 for pair in pairs]  # fmt: skip
    return level[0].hex()


def ledger_problems(
    folder: str, report: dict[str, Any], seen: dict[int, dict[str, Any]], notes: list[str]
) -> list[str]:
    """What is wrong with the files beside the chain."""
    try:
        return [
            *file_problems(folder, report),
            *page_problems(folder, seen, notes),
            *version_problems(load(folder, "versioning_ledger.json"), seen),
            *extract_problems("postmortems.json", {"postmortem"}, load(folder, "postmortems.json"), seen),
            *extract_problems(
                "reviews.json", {"review", "halt-review", "halt"}, load(folder, "reviews.json"), seen
            ),
        ]
    except OSError as error:
        return [f"{os.path.basename(str(error.filename))}: it can't be read: {error.strerror}"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return [f"a file is not as kfm writes it: {error!r}"]


# --- the command -----------------------------------------------------------------------


def read_anchors(path: str, theirs: bool) -> list[dict[str, Any]]:
    """Those of a file that the reader named, which may be a pipe, or of the export's own."""
    anchors = []
    with open(path, "rb") if theirs else opened(path) as file:
        for at, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                anchor = json.loads(line.decode("utf-8"))
                good = type(anchor["number"]) is int and isinstance(anchor["hash"], str)
            except (ValueError, TypeError, KeyError, RecursionError):
                good = False
            if not good:
                raise ValueError(f"{path}: line {at} is no anchor")
            anchors.append({"at": "an unknown time", **anchor})
    return anchors


def environment_of(folder: str) -> Any:
    """What the export says that it is of; one file of anchors may serve several environments."""
    try:
        return load(folder, "export.json").get("environment")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def of_environment(anchors: list[dict[str, Any]], environment: Any) -> list[dict[str, Any]]:
    return [one for one in anchors if None in (environment, one.get("environment", environment))
            or one["environment"] == environment]  # fmt: skip


def shown(text: str) -> str:
    """On one line, without what a terminal would obey: a forger chooses his words."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def told(report: dict[str, Any], source: str) -> Iterable[str]:
    if report["sound"]:
        yield f"sound: {report['rows']} rows, last hash {report['hash']}"
    else:
        yield f"BROKEN at row {report['row']}: {report['problem']}"
    if report["withheld"]:
        yield f"withheld: {report['withheld']} entries are not shown; their places in the chain are proven"
    if report["anchors"]:
        yield f"anchored: up to row {report['anchored']}; anchors that agree: {report['anchors']} ({source})"
    if report["unanchored_since"]:
        yield (
            f"unanchored since row {report['unanchored_since']}: from there on, a cut end or a chain that "
            "was written anew would not be seen"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Checks an exported audit chain.")
    parser.add_argument("folder", help="what `kfm audit export` wrote")
    parser.add_argument("--anchors", metavar="FILE", help="anchors kept elsewhere; else those in the folder")
    options = parser.parse_args(arguments)
    inside = os.path.join(options.folder, "anchors.jsonl")
    source = options.anchors or inside
    seen: dict[int, dict[str, Any]] = {}
    try:
        found = (
            read_anchors(source, bool(options.anchors)) if options.anchors or os.path.lexists(inside) else []
        )
        environment = environment_of(options.folder)
        anchors = of_environment(found, environment)
        with opened(os.path.join(options.folder, "audit-chain.jsonl")) as chain:
            report = verify(chain, anchors, seen)
    except (OSError, ValueError) as error:
        sys.stderr.write(shown(f"can't be read: {error}") + "\n")
        return 2
    lines = list(told(report, source))
    problems: list[str] = []
    if not report["sound"]:
        pass  # what it proves about other files is nothing
    elif os.path.lexists(os.path.join(options.folder, "export.json")):
        notes: list[str] = []
        problems = ledger_problems(options.folder, report, seen, notes)
        lines += notes
        lines += [f"BROKEN {problem}" for problem in problems] or [
            "sound: the other files agree with the chain"
        ]
    else:
        lines.append("note: there is no export.json, so only the chain was checked")
    if anchors and not options.anchors:
        lines.append(
            "note: these anchors came with the export; use --anchors FILE with a copy kept elsewhere"
        )
    if found and options.anchors and not anchors:  # naming another environment escapes no anchor
        problems.append(f"none of the anchors is of the export's environment, {environment}")
        lines.append(f"BROKEN {problems[-1]}")
    elif len(anchors) < len(found):
        others = f"note: {len(found) - len(anchors)} anchors are of other environments than {environment}"
        lines.append(f"{others}: not compared")
    sys.stdout.write("\n".join(map(shown, lines)) + "\n")
    return 0 if report["sound"] and not problems else 1


if __name__ == "__main__":
    sys.exit(main())
