#!/usr/bin/env python3
"""Check a bundle of evidence about one run: offline, with nothing but Python's standard library.

    python3 -I verify.py [FOLDER|FILE.zip] [--expect DIGEST] [--anchors FILE]

Take this script from elsewhere than the bundle that it is to check: its sender may have written another one.
Exit code 0: everything agrees. 1: something does not, and each finding is printed. 2: there is no bundle.

It finds damage and contradictions. A forger who writes all files anew is found only by something that you
got by another way: the digest that is printed (--expect), which settles everything, or anchors of the
governance chain (--anchors), which settle the entries up to them, the events that these seal and the
manifest that they name. What nothing vouches for is listed as `unproven`.
"""

import sys

if __name__ == "__main__":
    sys.dont_write_bytecode = True
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        # Python looks beside the script first: a module that was put there would run instead of its own.
        sys.path[:] = [place for place in sys.path if place != sys.path[0]]

import hashlib
import json
import os
import uuid
import zipfile
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import IO, Any, NamedTuple, Optional, Union
from urllib.parse import unquote

CHECKSUMS = "checksums.sha256"
METADATA = "ro-crate-metadata.json"
FORMAT = "kfm-evidence/1"
PROFILE = "https://w3id.org/ro/crate/1."
TERMINAL = {"complete": "COMPLETE", "fail": "FAIL", "abort": "ABORT"}
PROV_FIELDS = {
    "kfm:status": "status",
    "kfm:idempotencyKey": "idempotency_key",
    "kfm:workKey": "work_key",
    "kfm:pipelineVersion": "pipeline_version",
}
EVENTS, PROOFS, LINKS = "openlineage.jsonl", "openlineage.proofs.jsonl", "governance/links.jsonl"
LINK_FIELDS = {"number", "previous", "content", "hash"}
ENTRY_FIELDS = ("kind", "subject", "actor", "recorded_at_ms", "rationale", "ticket", "details")
PAGES, PAGES_MAX = "published/pages.jsonl", 64
USUAL = {EVENTS, PROOFS, LINKS, "ledger/requests.jsonl", "ledger/inputs.jsonl", "published/manifest.json",
         "published/dcat.jsonld", "published/collection.json"}  # fmt: skip
PROOF_FIELDS = {"line", "number", "event_id", "topic", "subject", "recorded_at_ms", "link", "index", "size",
                "path"}  # fmt: skip
ABOUT_FIELDS = {"format", "run_id", "internal", "missing"}
NAMED_MAX = 50
FILES_MAX = 10_000
DOCUMENT_BYTES_MAX = 256 * 1024 * 1024
ROWS_MAX = 200_000
FINDINGS_MAX = 1000
NEEDED = (METADATA, "README.md", "verify.py", "evidence.json", "prov.jsonld", "ledger/run.json",
          "ledger/invocations.jsonl", "ledger/attempts.jsonl", "ledger/retries.jsonl",
          "ledger/promotions.jsonl")  # fmt: skip


class NoBundle(Exception):
    """There is nothing here that could be checked."""


# --- reading ------------------------------------------------------------------------------


class Folder:
    def __init__(self, path: str) -> None:
        self._path = path

    def names(self) -> list[str]:
        found = []
        for folder, folders, files in os.walk(self._path):
            for name in [*files, *(each for each in folders if os.path.islink(os.path.join(folder, each)))]:
                path = os.path.relpath(os.path.join(folder, name), self._path)
                found.append(path.replace(os.sep, "/"))
                if len(found) > FILES_MAX:
                    raise NoBundle(f"more than {FILES_MAX} files")
        return sorted(found)

    def open(self, name: str) -> IO[bytes]:
        path = os.path.join(self._path, *name.split("/"))
        if os.path.islink(path) or not os.path.isfile(path):
            raise OSError("it is not a plain file")
        return open(path, "rb")


class Archive:
    def __init__(self, path: str) -> None:
        self._zip = zipfile.ZipFile(path)

    def names(self) -> list[str]:
        names = [one.filename for one in self._zip.infolist() if not one.is_dir()]
        if len(names) > FILES_MAX:
            raise NoBundle(f"more than {FILES_MAX} files")
        return sorted(names)

    def open(self, name: str) -> IO[bytes]:
        return self._zip.open(name)


class Findings(list):  # type: ignore[type-arg]
    """What is wrong, in sentences."""

    def expect(self, right: object, sentence: str) -> bool:
        if not right and len(self) < FINDINGS_MAX:
            self.append(sentence)
        return bool(right)


class Bundle:
    def __init__(self, source: Union[Folder, Archive], findings: Findings) -> None:
        self.source = source
        self.findings = findings
        self.names = source.names()
        self.sums: dict[str, tuple[str, int]] = {}
        self.notes: list[str] = []
        self.proven: dict[str, int] = {}  # file → the last entry of the chain that it takes to prove it
        self.unproven_lines: list[int] = []  # of openlineage.jsonl

    def data(self, name: str) -> bytes:
        if name not in self.names:
            return b""
        with self.source.open(name) as file:
            data = file.read(DOCUMENT_BYTES_MAX + 1)
        self.findings.expect(len(data) <= DOCUMENT_BYTES_MAX, f"{name} is too large to be looked into")
        return data[:DOCUMENT_BYTES_MAX]

    def document(self, name: str) -> dict[str, Any]:
        found = self._parsed(name, self.data(name) or b"{}")
        return found if isinstance(found, dict) else {}

    def rows(self, name: str) -> list[dict[str, Any]]:
        data = self.data(name)
        self.findings.expect(not data or data.endswith(b"\n"), f"{name} was cut short")
        lines = data.split(b"\n", ROWS_MAX + 1)
        self.findings.expect(len(lines) <= ROWS_MAX + 1, f"{name} has too many lines to be looked into")
        rows = [self._parsed(name, line) for line in lines[:ROWS_MAX] if line]
        return [row for row in rows if isinstance(row, dict)]

    def _parsed(self, name: str, data: bytes) -> Any:
        try:
            found = json.loads(data, object_pairs_hook=once)
        except ValueError as error:
            self.findings.expect(False, f"{name} is not JSON: {error}")
            return {}
        self.findings.expect(isinstance(found, dict), f"{name} holds something else than objects")
        return found


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object that says nothing twice: of two values another reader might take the other one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


# --- every file is there, and as it was ----------------------------------------------------


def check_files(bundle: Bundle) -> str:
    """The digest of the whole bundle."""
    expect = bundle.findings.expect
    raw = bundle.data(CHECKSUMS)
    listed: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").splitlines():
        digest, _, name = line.partition("  ")
        good = len(digest) == 64 and name and name not in listed
        if expect(good, f"{CHECKSUMS}: {line[:80]!r} is no entry"):
            listed[name] = digest
    as_written = "".join(f"{listed[name]}  {name}\n" for name in sorted(listed)).encode()
    expect(raw == as_written, f"{CHECKSUMS} is not in the form in which it is written")
    expect(len(set(bundle.names)) == len(bundle.names), "a name stands twice in the archive")
    for name in sorted(listed.keys() - set(bundle.names)):
        expect(False, f"{name} is missing")
    for name in bundle.names:
        if name == CHECKSUMS:
            continue
        if not expect(name in listed, f"{name} does not belong to the bundle"):
            continue
        whole, size = hashlib.sha256(), 0
        try:
            with bundle.source.open(name) as file:
                while chunk := file.read(1 << 20):
                    whole.update(chunk)
                    size += len(chunk)
        except Exception as error:  # noqa: BLE001 - a damaged archive fails in many ways
            expect(False, f"{name} can't be read: {error}")
            continue
        bundle.sums[name] = (whole.hexdigest(), size)
        expect(whole.hexdigest() == listed[name], f"{name} is not the file that was written")
    for name in NEEDED:
        expect(name in listed, f"{name} belongs to every bundle")
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def check_crate(bundle: Bundle) -> None:
    expect = bundle.findings.expect
    graph = bundle.document(METADATA).get("@graph")
    things = {thing.get("@id"): thing for thing in graph or [] if isinstance(thing, dict)}
    profile = (things.get(METADATA, {}).get("conformsTo") or {}).get("@id", "")
    expect(str(profile).startswith(PROFILE), f"{METADATA} does not say that it is an RO-Crate")
    root = things.get("./", {})
    expect(root.get("identifier") == f"urn:kfm:run:{run_id(bundle)}", f"{METADATA} is about another run")
    licence = things.get((root.get("license") or {}).get("@id"), {})
    expect(licence.get("name"), f"{METADATA} names no licence")
    expect(things.get("#care-label", {}).get("value"), f"{METADATA} has no CARE label")
    named = [str(part.get("@id")) for part in root.get("hasPart") or []]
    parts = {unquote(name): things.get(name, {}) for name in named}
    here = {*bundle.sums, CHECKSUMS} - {METADATA}
    for name in sorted(parts.keys() ^ here):
        expect(False, f"{name} is in one of {METADATA} and the bundle, but not in the other")
    for name in sorted(parts.keys() & bundle.sums.keys()):
        digest, size = bundle.sums[name]
        right = (parts[name].get("sha256"), parts[name].get("contentSize")) == (digest, str(size))
        expect(right, f"{METADATA} has another checksum or size for {name}")


def run_id(bundle: Bundle) -> str:
    return str(bundle.document("ledger/run.json").get("run_id"))


# --- the ledger's rows agree -----------------------------------------------------------------


def uuid5(namespace: str, name: str) -> str:
    try:
        return str(uuid.uuid5(uuid.UUID(namespace), name))
    except ValueError:
        return ""


def check_ledger(bundle: Bundle) -> None:
    expect = bundle.findings.expect
    mine = run_id(bundle)
    run = bundle.document("ledger/run.json")
    calls = bundle.rows("ledger/invocations.jsonl")
    attempts = bundle.rows("ledger/attempts.jsonl")
    about = bundle.document("evidence.json")
    known = set(about) - {"unproven_events"} == ABOUT_FIELDS
    expect(known, "evidence.json has other fields than it is written with")
    expect(about.get("format") == FORMAT, "evidence.json has a format that is not known here")
    expect(about.get("run_id") == mine, "evidence.json is about another run")
    for name in ("invocations", "requests", "attempts", "retries", "promotions"):
        ours = {mine} | (promoted_with(bundle, mine) if name == "promotions" else set())
        for row in bundle.rows(f"ledger/{name}.jsonl"):
            expect(row.get("run_id") in ours, f"ledger/{name}.jsonl speaks of run {row.get('run_id')}")
    asked = {row.get("request_id") for row in bundle.rows("ledger/requests.jsonl")}
    for row in bundle.rows("ledger/objects.jsonl"):
        expect(row.get("request_id") in asked, f"unit {row.get('unit')} was gathered by an unknown request")
    ids = {call.get("invocation_id") for call in calls}
    whole_ones = {each.get("attempt") for each in attempts if each.get("node") == ""}
    seen: set[tuple[Any, Any]] = set()
    for one in attempts:
        number, node = one.get("attempt"), one.get("node")
        what = f"attempt {number}{f' at {node}' if node else ''}"
        expect((number, node) not in seen, f"{what} stands twice")
        seen.add((number, node))
        whole = uuid5(mine, str(number))
        own = uuid5(whole, str(node)) if node else whole
        expect(one.get("lineage_id") == own, f"{what} has a foreign id")
        expect(not calls or one.get("invocation_id") in ids, f"{what} was asked for by an unknown call")
        expect((one.get("ending") is None) == (one.get("ended_at_ms") is None), f"{what} has half an end")
        expect(not node or number in whole_ones, f"{what} belongs to no attempt at the run")
    if attempts:
        highest = max(int(one.get("attempt") or 0) for one in attempts)
        expect(run.get("attempts") == highest, "ledger/run.json counts other attempts than there are")
    for row in bundle.rows("ledger/promotions.jsonl"):
        expect(row.get("version_id") == run.get("version_id"), "the promotion is of another version")


# --- lineage and provenance -------------------------------------------------------------------


def check_lineage(bundle: Bundle) -> None:
    """One start and one end for each lineage run; no end while the attempt is under way."""
    expect = bundle.findings.expect
    events = bundle.rows("openlineage.jsonl")
    if "openlineage.jsonl" not in bundle.names:
        return
    events_of: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        events_of.setdefault(str((event.get("run") or {}).get("runId")), []).append(event)
    attempts = {str(one.get("lineage_id")): one for one in bundle.rows("ledger/attempts.jsonl")}
    away = {uuid5(str(c.get("invocation_id")), "0"): c for c in bundle.rows("ledger/invocations.jsonl")}
    passes = passes_in(events_of, str((bundle.rows("ledger/attempts.jsonl") or [{}])[0].get("run_id")))
    for name in passes:
        kinds = [event.get("eventType") for event in events_of[name]]
        expect(
            kinds[:1] == ["START"] and len(kinds) <= 2 and kinds[1:] != ["START"],
            f"lineage run {name} has the events {kinds}",
        )
    for name in sorted(events_of.keys() - attempts.keys() - away.keys() - passes):
        expect(False, f"openlineage.jsonl has events of {name}, which is no attempt at this run")
    for name, one in attempts.items():
        kinds = [event.get("eventType") for event in events_of.get(name, [])]
        ending = TERMINAL.get(str(one.get("ending")))
        wanted = ["START"] if ending is None else ["START", ending]
        expect(kinds == wanted, f"lineage run {name} has the events {kinds}, not {wanted}")
    for name in events_of.keys() & away.keys():
        kinds = [event.get("eventType") for event in events_of[name]]
        expect(kinds in (["START", "ABORT"], ["START", "FAIL"]), f"lineage run {name} has the events {kinds}")
    for name, events in events_of.items():
        times = [str(event.get("eventTime") or "") for event in events]
        expect(times == sorted(times), f"lineage run {name} ends before it starts")


def passes_in(events_of: dict[str, list[dict[str, Any]]], run_id: str) -> set[str]:
    """Passes over a pipeline's nodes, and those nodes: ids that follow from the run's own."""
    found = set()
    for name, events in events_of.items():
        facet = ((events[0].get("run") or {}).get("facets") or {}).get("kfmRunState") or {}
        if facet.get("kind") == "pass" and name == uuid5(uuid5(run_id, str(facet.get("attempt"))), "pass"):
            found.add(name)
    for name, events in events_of.items():
        facets = (events[0].get("run") or {}).get("facets") or {}
        parent = ((facets.get("parent") or {}).get("run") or {}).get("runId")
        node = str((facets.get("kfmRunState") or {}).get("dataset_id"))
        if parent in found and name == uuid5(parent, node):
            found.add(name)
    return found


def instant(value: Any) -> str:
    return str(value.get("@value")) if isinstance(value, dict) else ""


def rfc3339(ms: Any) -> str:
    at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=int(ms))
    text = at.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{text}.{ms % 1000:03d}Z" if ms % 1000 else f"{text}Z"


def check_provenance(bundle: Bundle) -> None:
    expect = bundle.findings.expect
    graph = bundle.document("prov.jsonld").get("@graph")
    things = {str(thing.get("@id")): thing for thing in graph or [] if isinstance(thing, dict)}
    mine = f"urn:kfm:run:{run_id(bundle)}"
    runs = [name for name, thing in things.items() if "kfm:Run" in (thing.get("@type") or [])]
    expect(runs == [mine], "prov.jsonld is about another run")
    run = bundle.document("ledger/run.json")
    activity = things.get(mine, {})
    for member, field in PROV_FIELDS.items():
        expect(activity.get(member) == run.get(field), f"prov.jsonld and ledger/run.json differ in {field}")
    for one in bundle.rows("ledger/attempts.jsonl"):
        name = f"urn:kfm:attempt:{one.get('lineage_id')}"
        thing = things.get(name, {})
        expect(thing.get("kfm:ending") == one.get("ending"), f"prov.jsonld has another end of {name}")
        start = one.get("started_at_ms")
        right = isinstance(start, int) and instant(thing.get("prov:startedAtTime")) == rfc3339(start)
        expect(right, f"prov.jsonld has another start of {name}")
    check_published(bundle, things)
    check_policies(bundle, things)


def checksum_of(thing: dict[str, Any]) -> str:
    return instant((thing.get("spdx:checksum") or {}).get("spdx:checksumValue"))


def check_published(bundle: Bundle, things: dict[str, dict[str, Any]]) -> None:
    expect = bundle.findings.expect
    version = bundle.document("ledger/run.json").get("version_id")
    for name, thing in things.items():
        if "kfm:DatasetVersion" in (thing.get("@type") or []):
            expect(f"sha256:{checksum_of(thing)}" == version, f"prov.jsonld names another version: {name}")
    if "published/manifest.json" not in bundle.names:
        return
    digest = hashlib.sha256(bundle.data("published/manifest.json")).hexdigest()
    expect(f"sha256:{digest}" == version, "published/manifest.json is not the run's version")
    manifest = bundle.document("published/manifest.json")
    items = records(bundle, manifest)
    sums = {asset.get("sha256") for item in items.values() for asset in item.get("assets") or []}
    for name, thing in things.items():
        if "kfm:Output" in (thing.get("@type") or []):
            expect(checksum_of(thing) in sums, f"prov.jsonld names a file that was not published: {name}")
    for name in bundle.names:
        if not name.startswith("published/items/"):
            continue
        item = bundle.document(name)
        assets = (items.get(str(item.get("id"))) or {}).get("assets") or []
        wanted = {asset.get("path"): "1220" + str(asset.get("sha256")) for asset in assets}
        found = {path: asset.get("file:checksum") for path, asset in (item.get("assets") or {}).items()}
        expect(found == wanted, f"{name} has other files than the manifest")
        expect(item.get("collection") == manifest.get("dataset_id"), f"{name} is of another dataset")
    record = bundle.document("published/dcat.jsonld")
    expect(record.get("dcterms:identifier") == manifest.get("dataset_id"), "dcat.jsonld is about another one")


def records(bundle: Bundle, manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The items of the version that the bundle tells of. A root document names a page; from it pages lead to
    the hash of the record that is here."""
    if manifest.get("manifest") != 2:
        return {str(item.get("id")): item for item in manifest.get("items") or []}
    if "published/record.json" not in bundle.names:
        return {}
    data = bundle.data("published/record.json")
    record = bundle.document("published/record.json")
    name, digest = str(record.get("id")), hashlib.sha256(data).hexdigest()
    pages = bundle.data("published/pages.jsonl").split(b"\n")[:-1] if PAGES in bundle.names else []
    wanted = str((manifest.get("items") or {}).get("tree"))
    for page in pages[:PAGES_MAX]:
        if hashlib.sha256(page).hexdigest() != wanted:
            break
        try:
            level, rows = json.loads(page)
            wanted = next((str(row[1]) for row in rows if str(row[0]) >= name), "")
            if level == 0:
                row = next((row for row in rows if row[0] == name), None)
                if row is not None and row[1] == digest:
                    return {name: record}
                break
        except (ValueError, TypeError, LookupError):
            break
    bundle.findings.expect(False, "published/record.json is not an item of the version")
    return {}


def check_policies(bundle: Bundle, things: dict[str, dict[str, Any]]) -> None:
    expect = bundle.findings.expect
    kept: dict[tuple[str, str], str] = {}
    for name in bundle.names:
        if name.startswith("policies/"):
            document = bundle.document(name)
            texts = document.get("policies")
            for policy, text in texts.items() if isinstance(texts, dict) else ():
                digest = hashlib.sha256(str(text).encode("utf-8", "replace")).hexdigest()
                kept[(str(document.get("bundle_id")).removeprefix("sha256:"), policy)] = digest
    recorded = {}
    for thing in things.values():
        if "kfm:Policy" in (thing.get("@type") or []):
            plan = str((thing.get("dcterms:isPartOf") or {}).get("@id")).rpartition(":")[2]
            recorded[(plan, str(thing.get("dcterms:identifier")))] = checksum_of(thing)
    expect(not kept or recorded == kept, "prov.jsonld and policies/ differ about the policies in force")


# --- governance --------------------------------------------------------------------------------


def canonical(value: Any) -> str:
    """RFC 8785 for documents without floats."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{canonical(name)}:{canonical(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(member) for member in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def hashed(document: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(document).encode("utf-8", "surrogatepass")).hexdigest()


def check_governance(bundle: Bundle) -> None:
    """Each link holds its entry, if it is shown, and the one before it."""
    expect = bundle.findings.expect
    before: Optional[dict[str, Any]] = None
    links = bundle.rows(LINKS)
    for link in links:
        number = link.get("number")
        if before is not None:
            expect(number == before["number"] + 1, f"governance entry {before['number'] + 1} is missing")
            expect(link.get("previous") == before["hash"], f"governance entry {number} is not chained")
        expect(
            set(link) - {"entry"} == LINK_FIELDS, f"governance entry {number} has other fields than a link"
        )
        if "entry" in link:
            expect(isinstance(link["entry"], dict) and set(link["entry"]) <= set(ENTRY_FIELDS),
                   f"governance entry {number} has other fields than an entry")  # fmt: skip
            content = hashed({"kfm": "audit-entry/1", "entry": _whole(link["entry"])})
            expect(content == link.get("content"), f"governance entry {number} is not as recorded")
        document = {"kfm": "audit-link/1", "previous": link.get("previous"), "number": number,
                    "content": link.get("content")}  # fmt: skip
        unchained = link.get("hash") == "" and (before is None or before["hash"] == "")
        expect(
            unchained or link.get("hash") == hashed(document),
            f"the hash of governance entry {number} is wrong",
        )
        before = {"number": number if isinstance(number, int) else 0, "hash": link.get("hash")}
    if links:
        hidden = sum("entry" not in link for link in links)
        span = f"entries {links[0].get('number')} to {links[-1].get('number')} of the chain"
        bundle.notes.append(f"governance: {span}, {hidden} of them not shown: that these, and those before "
                            "and after, do not concern the run is the sender's word")  # fmt: skip
        check_promotion(bundle, links)


def promoted_with(bundle: Bundle, mine: str) -> set[Any]:
    """The run that its version is recorded with, where several windows were promoted together."""
    entries = [_whole(link.get("entry")) for link in bundle.rows(LINKS)]
    found = [one for one in entries if (one.get("kind"), one.get("subject")) == ("promoted-together", mine)]
    details = [one["details"] for one in found if isinstance(one["details"], dict)]
    return {one["promoted_with"] for one in details if isinstance(one.get("promoted_with"), str)}


def check_promotion(bundle: Bundle, links: list[dict[str, Any]]) -> None:
    """A promotion that the chain shows is the one of the ledger's row and of the manifest."""
    expect = bundle.findings.expect
    mine = run_id(bundle)
    rows = bundle.rows("ledger/promotions.jsonl")
    for link in links:
        entry = _whole(link.get("entry"))
        if entry.get("kind") not in ("promotion", "promoted-together") or entry.get("subject") != mine:
            continue
        details, row = entry["details"], rows[0] if len(rows) == 1 else {}
        told = [row.get("version_id"), row.get("dataset_id")]
        recorded = [details.get("version_id"), details.get("dataset_id")]
        if "sequence" in details:
            told += [row.get("sequence"), row.get("policy_epoch"), row.get("promoted_at_ms")]
            recorded += [details["sequence"], details.get("policy_epoch"), entry["recorded_at_ms"]]
        number = link.get("number")
        right = canonical(told) == canonical(recorded)
        if expect(right, f"ledger/promotions.jsonl is not what governance entry {number} records"):
            bundle.proven["published/manifest.json"] = int(number or 0)


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def check_seals(bundle: Bundle) -> None:
    """Each proof leads from its event to the root that a shown entry of the chain holds."""
    expect = bundle.findings.expect
    if EVENTS not in bundle.names:
        expect(PROOFS not in bundle.names, f"{PROOFS} proves events that are not there")
        return
    events = bundle.data(EVENTS).decode("utf-8", "replace").split("\n")[:-1]
    expect(all(events), f"{EVENTS} has an empty line")
    links = {link.get("number"): link for link in bundle.rows(LINKS)}
    proven: dict[int, int] = {}
    for proof in bundle.rows(PROOFS):
        line = proof["line"]
        expect(set(proof) == PROOF_FIELDS, f"the proof of event {line} has other fields than a proof")
        expect(
            1 <= line <= len(events) and line not in proven, f"event {line} has two proofs, or is not there"
        )
        names = ("number", "event_id", "topic", "subject", "recorded_at_ms")
        row = {"kfm": "sealed-row/1", "body": events[line - 1], **{name: proof[name] for name in names}}
        link = links.get(proof["link"]) or {}
        right = link.get("hash") and leads_to(row, proof, _whole(link.get("entry")))
        if expect(right, f"event {line} of {EVENTS} is not what was sealed"):
            proven[line] = proof["link"]
    bundle.unproven_lines = [line for line in range(1, len(events) + 1) if line not in proven]
    bundle.proven[EVENTS] = max(proven.values(), default=0)
    bundle.notes.append(f"proven: {len(proven)} of {len(events)} events, by seals of the chain")
    about, left = bundle.document("evidence.json"), len(events) - len(proven)
    # Before the number was a field of its own, a sentence told it.
    sentence = f"A proof for {left} event{'' if left == 1 else 's'}: not sealed yet when this was made."
    declared = about.get("unproven_events", left if sentence in (about.get("missing") or []) else 0)
    expect(declared == left, f"{left} events have no proof, and evidence.json declares {declared}")


def leads_to(row: dict[str, Any], proof: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Is the row a leaf of the tree whose root the entry holds?"""
    index, last = proof["index"], proof["size"] - 1
    reached = hashlib.sha256(b"\x00" + canonical(row).encode("utf-8", "surrogatepass")).digest()
    steps = [bytes.fromhex(step) for step in proof["path"]]
    while last > 0 and (steps or not (index % 2 or index < last)):
        if index % 2 or index < last:  # else it is the odd one out, carried up as it is
            beside = steps.pop(0)
            reached = node_hash(beside, reached) if index % 2 else node_hash(reached, beside)
        index, last = index // 2, last // 2
    seal = entry["details"] if (entry.get("kind"), entry.get("subject")) == ("seal", "outbox") else {}
    return last == 0 and not steps and (reached.hex(), proof["size"]) == (seal.get("root"), seal.get("count"))


def _whole(entry: Any) -> dict[str, Any]:
    """An entry with all its fields; nothing, where it is not shown."""
    return {name: entry.get(name) for name in ENTRY_FIELDS} if isinstance(entry, dict) else {}


# --- what was kept elsewhere ---------------------------------------------------------------------


def read_anchors(path: str) -> list[dict[str, Any]]:
    """Lines {"number": .., "hash": ..}, as `kfm audit anchor` writes them."""
    with open(path, "rb") as file:
        anchors = [json.loads(line, object_pairs_hook=once) for line in file if line.strip()]
    if not all(isinstance(one, dict) and isinstance(one.get("hash"), str) for one in anchors):
        raise ValueError("a line is no anchor")
    return anchors


def check_anchors(bundle: Bundle, anchors: Sequence[dict[str, Any]]) -> None:
    """Which entries the anchors reach, and what follows from them; all else is the sender's word."""
    links = {link.get("number"): link for link in bundle.rows(LINKS)}
    reached = 0
    for anchor in anchors:
        link = links.get(anchor.get("number"))
        if link is not None and bundle.findings.expect(
            link.get("hash") == anchor["hash"],
            f"governance entry {anchor['number']} is not the one that was anchored",
        ):
            reached = max(reached, anchor["number"])
    notes, unproven = bundle.notes, set(bundle.names)
    if reached:
        notes.append(f"anchored: governance entries up to {reached}")
        unproven -= {name for name, number in bundle.proven.items() if 0 < number <= reached}
    if reached and reached == max(map(int, filter(None, links))):
        unproven.discard(LINKS)
    elif reached:
        notes.append(f"unproven: {LINKS}: entries after {reached}")
        unproven.discard(LINKS)
    if EVENTS in bundle.names and EVENTS not in unproven and bundle.unproven_lines:
        notes.append(f"unproven: {EVENTS}: {lines_named(bundle.unproven_lines)}")
    notes.append(f"unproven: {', '.join(sorted(unproven))}: they agree with each other, and no more is known")
    absent = sorted(USUAL - set(bundle.names))
    left = ", ".join(absent) or "nothing that is usual"
    notes.append(f"absent: {left}; that no other file was left out is the sender's word")
    notes.append("note: --expect DIGEST, with the digest that you got by another way, settles all of them")


def lines_named(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:NAMED_MAX]))
    more = f" and {len(numbers) - NAMED_MAX} more" if len(numbers) > NAMED_MAX else ""
    return f"{'line' if len(numbers) == 1 else 'lines'} {shown}{more}"


# --- all of it -----------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """What was found."""

    digest: str  # of the whole bundle
    files: int
    findings: list[str]  # what is wrong
    notes: list[str]  # how much of it is proven, and by what


def verify(path: str, expected: str = "", anchors: Sequence[dict[str, Any]] = ()) -> Verdict:
    """Check everything; `expected` and `anchors` came by another way than the bundle."""
    try:
        if os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path):
            raise NoBundle("it is neither a folder nor a file")
        source = Folder(path) if os.path.isdir(path) else Archive(path)
        findings = Findings()
        bundle = Bundle(source, findings)
        if CHECKSUMS not in bundle.names:
            raise NoBundle(f"there is no {CHECKSUMS}")
        bundle.data(CHECKSUMS)
    except NoBundle:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged archive fails in many ways
        raise NoBundle(str(error)) from None
    digest = check_files(bundle)

    def check_kept(bundle: Bundle) -> None:
        if expected:
            findings.expect(expected == digest, f"the digest is {digest}, not {expected}")
            bundle.notes.append("proven: every file, if you got the digest by another way than the bundle")
        else:
            check_anchors(bundle, anchors)

    for check in (check_crate, check_ledger, check_lineage, check_provenance, check_governance, check_seals,
                  check_kept):  # fmt: skip
        try:
            check(bundle)
        except Exception as error:  # noqa: BLE001 - whatever a damaged file holds is a finding
            findings.expect(False, f"{check.__name__} stopped: {type(error).__name__}: {error}")
    return Verdict(digest, len(bundle.names), list(findings), [] if findings else bundle.notes)


def shown(text: str) -> str:
    """On one line, and without what a terminal would obey: a forger chooses the names of his files."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def taken(arguments: list[str], option: str) -> str:
    """An option's value, which is taken out of the arguments."""
    if option not in arguments:
        return ""
    place = arguments.index(option)
    value = (arguments[place + 1 :] or [""])[0]
    del arguments[place : place + 2]
    return value


def main(arguments: list[str]) -> int:
    wanted, anchored = taken(arguments, "--expect"), taken(arguments, "--anchors")
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        sys.stderr.write(f"{__doc__}\n")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    here = os.path.dirname(os.path.abspath(__file__))
    path = arguments[0] if arguments else here
    try:
        verdict = verify(path, wanted, read_anchors(anchored) if anchored else ())
    except (NoBundle, OSError, ValueError) as error:
        sys.stderr.write(f"{shown(path)}: {shown(str(error))}\n")
        return 2
    lines = [f"wrong: {finding}" for finding in verdict.findings] or verdict.notes
    if os.path.realpath(path) == os.path.realpath(here):
        lines = [
            *lines,
            "note: this script came with the bundle: it helps only a reader who trusts its sender",
        ]
    lines = [
        *lines,
        f"{'not sound' if verdict.findings else 'sound'}: {verdict.files} files, {verdict.digest}",
    ]
    sys.stdout.write("".join(f"{shown(line)}\n" for line in lines))
    return 1 if verdict.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
