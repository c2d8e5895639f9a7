#!/usr/bin/env python3
"""Checks an exported audit chain. Needs Python 3.9 or newer, and nothing else.

    python3 -I verify_audit.py EXPORT_DIR [--anchors FILE]

Take this script from elsewhere than the export that it is to check: its sender may have written another one.
Exit status: 0 the chain is sound, 1 it is not (the first bad row is named), 2 it can't be read.

The chain: one JSON object a line, in RFC 8785 form (keys sorted, no white space), with
  number    1, 2, 3, ... without a gap
  content   SHA-256 of {"entry": ENTRY, "kfm": "audit-entry/1"}, in the same form
  previous  the hash of the line before; 64 zeros in the first
  hash      SHA-256 of {"content": .., "kfm": "audit-link/1", "number": .., "previous": ..}
  entry     what was recorded; absent where it is withheld, which the hashes allow
An anchor is a line {"at": .., "environment": .., "hash": .., "number": ..} that was kept elsewhere.
Anchors of another environment than the export's are left out. The other files of an export are compared
with export.json and with the chain: every row that is shown is told in them, and they tell of no other.
What no row vouches for is listed as `unproven`: there the sender's word is all that there is.
unit-pages.jsonl, where it is there, holds the history of units: the SHA-256 of a zero
byte and a line is a leaf of the tree (RFC 6962) whose root an entry of kind `seal` about `units` holds. Pages
that an entry of kind `retention` tells to have gone are not there; it holds their leaves where others stay.
"""

import sys

if __name__ == "__main__":
    sys.dont_write_bytecode = True
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        # Python looks beside the script first: a module that was put there would run instead of its own.
        sys.path[:] = [place for place in sys.path if place != sys.path[0]]

import argparse
import base64
import hashlib
import json
import os
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any, Optional

ZEROS = "0" * 64
INT_MAX = 2**53 - 1
ENTRY_FIELDS = {"kind", "subject", "actor", "recorded_at_ms", "rationale", "ticket", "details"}
LINK_FIELDS = {"number", "previous", "content", "hash"}
FILES = {"audit-chain.jsonl", "anchors.jsonl", "pipeline_retry_log.json", "versioning_ledger.json",
         "postmortems.json", "reviews.json", "verify_audit.py"}  # fmt: skip
PAGES = "unit-pages.jsonl"
CHAIN_FILES = {"audit-chain.jsonl", "anchors.jsonl", "verify_audit.py"}
NAMED_MAX = 50
RETIRED_MAX = 1_000_000
EXPORT_FIELDS = {"environment", "internal", "chain", "kfm", "withheld", "anchors", "anchored_number",
                 "unanchored_since", "files"}  # fmt: skip
DATASET_FIELDS = {"dataset_id", "care", "masked", "license", "versions"}
VERSION_FIELDS = {"sequence", "version_id", "run_id", "policy_epoch", "promoted_at", "governance_entry",
                  "attempts", "error_classes"}  # fmt: skip
FACTS = ("kind", "subject", "actor", "rationale", "ticket", "details")
EXTRACT_FIELDS = {"number", "hash", "recorded_at", "dataset_id", "care", "withheld", *FACTS}
CARE_FIELDS = {"label", "level"}
RETRY_FIELDS = {"runs_total", "attempts_total", "call_retries_total", "runs"}
REVIEW_KINDS = {"review", "halt-review", "halt"}
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
    seen: Optional[dict[int, dict[str, Any]]] = None,
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


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object that says nothing twice: of two values another reader might take the other one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def load(folder: str, name: str) -> Any:
    with opened(os.path.join(folder, name)) as file:
        return json.loads(file.read().decode("utf-8"), object_pairs_hook=once)


def file_hash(path: str) -> str:
    whole = hashlib.sha256()
    with opened(path) as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            whole.update(chunk)
    return whole.hexdigest()


def same(one: Any, other: Any) -> bool:
    """Equal, and of one type: Python takes true for 1."""
    return canonical(one) == canonical(other)


def has_fields(document: Any, names: set[str], what: str) -> None:
    if not isinstance(document, dict) or set(document) != names:
        raise ValueError(f"{what} does not have the fields that it is written with")


def rfc3339(ms: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
    text = at.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{text}.{ms % 1000:03d}Z" if ms % 1000 else f"{text}Z"


def rows_named(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:NAMED_MAX]))
    more = f" and {len(numbers) - NAMED_MAX} more" if len(numbers) > NAMED_MAX else ""
    return f"{'row' if len(numbers) == 1 else 'rows'} {shown}{more}"


def file_problems(folder: str, report: dict[str, Any], notes: list[str]) -> Iterable[str]:
    """Files that are not the ones that export.json lists."""
    export = load(folder, "export.json")
    has_fields(export, EXPORT_FIELDS, "export.json")
    if export["kfm"] != "audit-export/1":
        yield f"export.json: it says to be {export['kfm']}"
    if not same(export["chain"], {"number": report["rows"], "hash": report["hash"]}):
        yield "export.json: it was made with another chain"
    if not same(export["withheld"], report["withheld"]):
        yield "export.json: another number of entries was withheld"
    if export["internal"] is not False and (export["internal"] is not True or export["withheld"]):
        yield "export.json: an internal export withholds nothing"
    named: set[str] = set()
    for listed in export["files"]:
        has_fields(listed, {"name", "size", "sha256"}, "a file in export.json")
        name = listed["name"]
        path = os.path.join(folder, os.path.basename(name))
        if name in named or name != os.path.basename(name):
            yield f"{name}: export.json lists it twice, or elsewhere"
        named.add(name)
        if not os.path.lexists(path):
            yield f"{name}: it is missing"
        elif (file_hash(path), os.path.getsize(path)) != (listed["sha256"], listed["size"]):
            yield f"{name}: it is not the file that was exported"
    for name in sorted(FILES - named):
        yield f"{name}: export.json does not list it"
    for name in sorted(set(os.listdir(folder)) - (named & (FILES | {PAGES})) - {"export.json"}):
        yield f"{name}: it does not belong to the export"
    enclosed = os.path.join(folder, "verify_audit.py")
    if os.path.realpath(__file__) == os.path.realpath(enclosed):
        notes.append("unproven: verify_audit.py: this script came with the export; take one from elsewhere")
    elif os.path.lexists(enclosed) and file_hash(enclosed) != file_hash(__file__):
        notes.append("unproven: verify_audit.py: it is another script than this one; do not run it")


def document_problems(name: str, document: Any, own: set[str], kfm: str, export: Any) -> Iterable[str]:
    """A document that is not of this export."""
    has_fields(document, own | {"environment", "internal", "chain", "kfm"}, name)
    for field in ("environment", "internal", "chain"):
        if not same(document[field], export[field]):
            yield f"{name}: export.json has another {field}"
    if document["kfm"] != kfm:
        yield f"{name}: it says to be {document['kfm']}"


def anchor_problems(
    folder: str, export: Any, seen: dict[int, dict[str, Any]], kept: list[dict[str, Any]], notes: list[str]
) -> Iterable[str]:
    """Enclosed anchors that the chain does not hold, or that export.json counts otherwise."""
    enclosed = read_anchors(os.path.join(folder, "anchors.jsonl"), False)
    for one in enclosed:
        if one["number"] not in seen or seen[one["number"]]["hash"] != one["hash"]:
            yield f"anchors.jsonl: the chain has another row {one['number']}"
    reached = max([one["number"] for one in enclosed], default=0)
    since = reached + 1 if reached < len(seen) else None
    told = [export["anchors"], export["anchored_number"], export["unanchored_since"]]
    if not same(told, [len(enclosed), reached, since]):
        yield "anchors.jsonl: export.json counts other anchors"
    if not all(one in kept for one in enclosed):
        notes.append("unproven: anchors.jsonl: when its anchors were made; none was kept elsewhere")


def version_problems(ledger: Any, seen: dict[int, dict[str, Any]], notes: list[str]) -> Iterable[str]:
    """Versions that the chain does not record so, and promotions that are left out."""
    name = "versioning_ledger.json"
    told: set[int] = set()
    hidden: list[int] = []
    older: list[int] = []
    public = [dataset["dataset_id"] for dataset in ledger["datasets"] if not dataset["masked"]]
    if len(set(public)) != len(public):
        yield f"{name}: a dataset is there twice"
    for dataset in ledger["datasets"]:
        has_fields(dataset, DATASET_FIELDS, "a dataset")
        has_fields(dataset["care"], CARE_FIELDS, "a CARE label")
        if not dataset["versions"]:
            yield f"{name}: {dataset['dataset_id']} has no version"
        before = 0
        for place, version in enumerate(dataset["versions"], 1):
            has_fields(version, VERSION_FIELDS, "a version")
            number, which = version["governance_entry"], f"version {place} of {dataset['dataset_id']}"
            if type(number) is not int or number not in seen:
                yield f"{name}: {which} has no row in the chain"
                continue
            if number in told or number < before or not same(version["sequence"], place):
                yield f"{name}: {which} does not stand in its place"
            told.add(number)
            before = number
            entry = seen[number].get("entry")
            if entry is None:
                hidden.append(number)
            elif not is_promotion(entry, dataset, version):
                yield f"{name}: {which} is not what row {number} of the chain records"
            elif "sequence" not in entry["details"]:
                older.append(number)
    for number, link in seen.items():
        if "entry" in link and link["entry"]["kind"] == "promotion" and number not in told:
            yield f"{name}: row {number} of the chain is not in it"
    notes.append(f"unproven: {name}: attempts, care, error_classes, license: no row tells of them")
    if hidden:
        notes.append(f"unproven: {name}: what is told of {rows_named(hidden)}, which the chain withholds")
    if older:
        fields = "policy_epoch and promoted_at"
        notes.append(f"unproven: {name}: {fields} of {rows_named(older)}, recorded before rows held them")


def is_promotion(entry: dict[str, Any], dataset: dict[str, Any], version: dict[str, Any]) -> bool:
    """Does the row record this version of this dataset?"""
    details = entry["details"]
    recorded = [entry["kind"], entry["subject"], details.get("version_id"), details.get("dataset_id"), False]
    told = ["promotion", version["run_id"], version["version_id"], dataset["dataset_id"], dataset["masked"]]
    if "sequence" in details:  # since rows hold what a promotion was given when it was committed
        recorded += [details["sequence"], details.get("policy_epoch"), rfc3339(entry["recorded_at_ms"])]
        told += [version["sequence"], version["policy_epoch"], version["promoted_at"]]
    return same(recorded, told)


def extract_problems(
    name: str, kinds: set[str], ledger: Any, seen: dict[int, dict[str, Any]], notes: list[str]
) -> Iterable[str]:
    """Entries that differ from their rows of the chain, or that were left out."""
    told: set[int] = set()
    hidden: list[int] = []
    of_runs: list[int] = []
    before = 0
    for one in ledger["entries"]:
        has_fields(one, EXTRACT_FIELDS, "an entry")
        has_fields(one["care"], CARE_FIELDS, "a CARE label")
        number = one["number"]
        link = seen.get(number) if type(number) is int else None
        if link is None or link["hash"] != one["hash"] or number <= before or one["kind"] not in kinds:
            yield f"{name}: it differs from row {number} of the chain"
            continue
        told.add(number)
        before = number
        entry = link.get("entry")
        if one["withheld"] is not (entry is None):
            yield f"{name}: row {number} is withheld in one of it and the chain, and shown in the other"
        elif entry is None:
            hidden.append(number)
            if not same([one[fact] for fact in FACTS[1:]], [None, None, None, None, {}]):
                yield f"{name}: it tells what row {number} says, which the chain withholds"
        else:
            dataset_id = dataset_of(entry)
            if not same([one[fact] for fact in FACTS], [entry[fact] for fact in FACTS]):
                yield f"{name}: it differs from row {number} of the chain"
            elif one["recorded_at"] != rfc3339(entry["recorded_at_ms"]):
                yield f"{name}: it has another time than row {number} of the chain"
            elif dataset_id is None:
                of_runs.append(number)
            elif one["dataset_id"] != dataset_id:
                yield f"{name}: it names another dataset than row {number} of the chain"
    for number, link in seen.items():
        if "entry" in link and link["entry"]["kind"] in kinds and number not in told:
            yield f"{name}: row {number} of the chain is not in it"
    if told:
        notes.append(f"unproven: {name}: care: no row tells of it")
    if of_runs:
        notes.append(f"unproven: {name}: dataset_id of {rows_named(of_runs)}, which names none")
    if hidden:
        fields = "care, dataset_id, kind and recorded_at"
        notes.append(f"unproven: {name}: {fields} of {rows_named(hidden)}, which the chain withholds")


def dataset_of(entry: dict[str, Any]) -> Optional[str]:
    """The dataset that an entry itself names."""
    named = entry["details"].get("dataset_id")
    if isinstance(named, str):
        return named
    subject = str(entry["subject"])
    return subject[len("dataset:") :] if subject.startswith("dataset:") else None


def page_problems(folder: str, seen: dict[int, dict[str, Any]], notes: list[str]) -> Iterable[str]:
    """Pages of the history of units that are not what was sealed. Each line is what was hashed."""
    name = PAGES
    path = os.path.join(folder, name)
    seals = [(number, link["entry"]["details"]) for number, link in seen.items() if seals_units(link)]
    if not os.path.lexists(path):
        if seals:
            notes.append(f"unproven: {name}: it is not in the export; {len(seals)} seals speak of it")
        return
    leaves: dict[int, bytes] = {}
    numbers: list[int] = []
    withheld = 0
    with opened(path) as file:
        for line in file:
            page = json.loads(line.decode("utf-8"), object_pairs_hook=once)
            if page["kfm"] == "withheld-page/1":
                has_fields(page, {"kfm", "number", "leaf"}, "a withheld page")
                withheld += 1
                leaf = bytes.fromhex(page["leaf"])
            else:
                leaf = hashlib.sha256(b"\x00" + line.rstrip(b"\n")).digest()
            if type(page["number"]) is not int or numbers[-1:] >= [page["number"]]:
                yield f"{name}: page {page['number']} does not stand in its place"
            numbers.append(page["number"])
            leaves[page["number"]] = leaf
    sealed: set[int] = set()
    retired, gone_of = 0, retired_pages(seen)
    for number, details in seals:
        found = [at for first, last in details["members"]
                 for at in numbers[bisect_left(numbers, first) : bisect_right(numbers, last)]]  # fmt: skip
        gone = gone_of.get(number, {})
        known = {**{at: leaves[at] for at in found}, **gone}
        there = [leaf for _, leaf in sorted(known.items()) if leaf is not None]
        proven = not found or (len(there) == len(known) and root(there) == details["root"])
        if gone.keys() & set(found) or len(known) != details["count"] or not proven:
            yield f"{name}: it is not what row {number} of the chain has sealed"
        sealed.update(found)
        retired += len(gone)
    notes.append(f"sealed: {len(sealed)} pages of the history of units by {len(seals)} seals")
    if retired:
        notes.append(
            f"retired: {retired} pages of it have gone by retention, as the chain tells; their seals stay"
        )
    if withheld:
        notes.append(f"withheld: {withheld} pages of the history of units are not shown")
    left = sum(number not in sealed for number in numbers)
    notes.append(f"unsealed: {left} pages of it, for which nothing vouches; nor that there were no more")


def retired_pages(seen: dict[int, dict[str, Any]]) -> dict[int, dict[int, Optional[bytes]]]:
    """Pages that have gone, by seal and number: with their leaves where others of that seal stay."""
    found: dict[int, dict[int, Optional[bytes]]] = {}
    for link in seen.values():
        entry = link.get("entry")
        if entry is None or (entry["kind"], entry["subject"]) != ("retention", "retention/unit_history"):
            continue
        details = entry["details"]
        count = sum(last - first + 1 for first, last in details["members"])
        packed = base64.b64decode(details.get("leaves", ""))
        if count > RETIRED_MAX or count != details["rows"] or len(packed) not in (0, 32 * count):
            raise ValueError("a row of the chain tells in two ways which pages have gone")
        numbers = [at for first, last in details["members"] for at in range(first, last + 1)]
        for place, number in enumerate(numbers):
            leaf = packed[32 * place : 32 * place + 32] if packed else None
            found.setdefault(details["seal"], {})[number] = leaf
    return found


def seals_units(link: dict[str, Any]) -> bool:
    entry = link.get("entry")
    return entry is not None and (entry["kind"], entry["subject"]) == ("seal", "units")


def root(leaves: list[bytes]) -> str:
    """Of a tree of hashes, as RFC 6962 has it."""
    level = leaves or [hashlib.sha256(b"").digest()]
    while len(level) > 1:
        pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
        level = [pair[0] if len(pair) == 1 else hashlib.sha256(b"\x01" + b"".join(pair)).digest()
                 for pair in pairs]  # fmt: skip
    return level[0].hex()


def ledger_problems(
    folder: str,
    report: dict[str, Any],
    seen: dict[int, dict[str, Any]],
    kept: list[dict[str, Any]],
    notes: list[str],
) -> list[str]:
    """What is wrong with the files beside the chain; what no row vouches for goes to the notes."""
    try:
        export = load(folder, "export.json")
        problems = [
            *file_problems(folder, report, notes),
            *anchor_problems(folder, export, seen, kept, notes),
            *page_problems(folder, seen, notes),
        ]
        name = "pipeline_retry_log.json"
        problems += document_problems(name, load(folder, name), RETRY_FIELDS, "pipeline-retry-log/1", export)
        notes.append(f"unproven: {name}: all of it: no row tells of it, only its checksum is known")
        name = "versioning_ledger.json"
        ledger = load(folder, name)
        problems += document_problems(name, ledger, {"datasets"}, "versioning-ledger/1", export)
        problems += version_problems(ledger, seen, notes)
        for name, kfm, kinds in (
            ("postmortems.json", "postmortems/1", {"postmortem"}),
            ("reviews.json", "reviews/1", REVIEW_KINDS),
        ):
            ledger = load(folder, name)
            problems += document_problems(name, ledger, {"entries"}, kfm, export)
            problems += extract_problems(name, kinds, ledger, seen, notes)
        return problems
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
        yield (
            f"withheld: {report['withheld']} entries are not shown: their places in the chain are proven, "
            "not what they say, nor that the other files tell of them"
        )
    if report["anchors"]:
        yield f"anchored: up to row {report['anchored']}; anchors that agree: {report['anchors']} ({source})"
    if report["unanchored_since"]:
        yield (
            f"unanchored since row {report['unanchored_since']}: from there on, a cut end or a chain that "
            "was written anew would not be seen"
        )


def main(arguments: Optional[list[str]] = None) -> int:
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
        problems = ledger_problems(options.folder, report, seen, anchors if options.anchors else [], notes)
        lines += notes
        lines += [f"BROKEN {problem}" for problem in problems] or [
            "sound: the other files agree with the chain"
        ]
    elif others := sorted(set(os.listdir(options.folder)) & FILES - CHAIN_FILES):
        problems.append(f"export.json: it is missing, so {others[0]} can't be checked")
        lines.append(f"BROKEN {problems[-1]}")
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
        left = len(found) - len(anchors)
        lines.append(f"note: {left} anchors are of other environments than {environment}: not compared")
    sys.stdout.write("\n".join(map(shown, lines)) + "\n")
    return 0 if report["sound"] and not problems else 1


if __name__ == "__main__":
    sys.exit(main())
