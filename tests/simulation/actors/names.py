"""One thing, one name: object ids, keys and hashes, however the same thing is written."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import quote

from kfm.model import keys
from kfm.model.canonical import canonical_bytes, canonical_hashed, float_text, strict_loads, tag_floats
from kfm.model.errors import MalformedJson, UnhashableInput, UsageError
from kfm.model.input_hash import fingerprint, inputs_hash
from kfm.model.records import Found, Trigger, Window, Work
from kfm.model.units import wal_id
from tests.simulation.actors.scene import Scene, refused
from tests.simulation.judging import require

ALPHABET = "abz09-_. é中🦆%"
NO_OBJECT = (
    "", "bucket/key", "s3://bucket", "s3:///key", "ftp://host/x", "https:///x", "http://[::1/x",
    "abfs://c@nowhere.example/k", "https://storage.googleapis.com/bucket", "x" * 5000,
)  # fmt: skip
BAD_JSON = (
    b'{"a": 1, "a": 2}', b"[NaN]", b"[1e999]", b"[9007199254740993]", b"[" * 200 + b"]" * 200, b"\xff",
    b'"\\ud800"', b"{", b"[" * 100_000, b"[123456789012345678901]",
)  # fmt: skip
UNHASHABLE = (float("nan"), {1: 2}, {"a": {3}}, 2**60, "\ud800", {"\ud800": 1}, [[0.5]], {"x y": [object()]})


def name_things(scene: Scene) -> None:
    _objects(scene)
    scene.pause("names")
    _documents(scene)
    scene.pause("names")
    _inputs(scene)
    _triggers(scene)


# --- objects -------------------------------------------------------------------------


def _spellings(scheme: str, bucket: str, key: str) -> list[str]:
    escaped = quote(key)
    if scheme == "s3":
        hosts = ("s3.amazonaws.com", "s3.us-east-1.amazonaws.com", "s3-eu-west-1.amazonaws.com")
        return [
            f"s3://{bucket}/{escaped}",
            f"S3A://{bucket}/{escaped}?versionId=1#x",
            f"s3://{bucket}/{quote(key, safe='')}",
            *(f"https://{host}/{bucket}/{escaped}" for host in hosts),
            *(f"https://{bucket}.{host}:443/{escaped}?X-Amz-Signature=1" for host in hosts),
        ]
    if scheme == "gs":
        return [
            f"gs://{bucket}/{escaped}",
            f"gs://{bucket}/{quote(key, safe='')}",
            f"https://storage.googleapis.com/{bucket}/{escaped}",
            f"https://{bucket}.storage.googleapis.com/{escaped}",
        ]
    if scheme == "az":
        return [
            f"az://account1/{bucket}/{escaped}",
            f"abfss://{bucket}@account1.dfs.core.windows.net/{escaped}",
            f"https://account1.blob.core.windows.net/{bucket}/{escaped}?sig=secret",
        ]
    if scheme == "file":
        return [f"file:///{bucket}/{escaped}", f"FILE:///{bucket}/{escaped}"]
    return [
        f"https://{bucket}.example.org/{escaped}",
        f"HTTPS://user:pw@{bucket.upper()}.Example.Org:443/{escaped}?a=1",
    ]


def _objects(scene: Scene) -> None:
    rng = scene.rng
    ids: dict[tuple[str, ...], str] = {}
    times: list[tuple[int, str]] = []
    for _ in range(8):
        scheme = rng.choice(("s3", "gs", "az", "file", "https"))
        bucket = rng.choice(("alpha", "beta9"))
        key = "k/" + "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(1, 5))).strip()
        dataset = rng.choice(("d1", "d2"))
        start_ms = rng.choice((None, rng.randrange(-(10**12), 10**13)))
        found = {wal_id(dataset, uri, start_ms) for uri in _spellings(scheme, bucket, key)}
        require(len(found) == 1, "one object has one id, however it is written", scheme=scheme, key=key)
        name = found.pop()
        identity = (dataset, scheme, bucket, key, str(start_ms))
        ids[identity] = name
        if start_ms is not None:
            times.append((start_ms, name))
    require(len(set(ids.values())) == len(ids), "two objects have two ids", ids=ids)
    ordered = sorted(times, key=lambda pair: pair[0])
    if len({start for start, _ in times}) == len(times):
        names = [name for _, name in ordered]
        require(names == sorted(names), "ids are ordered by time", times=ordered)
    for wrong in rng.sample(NO_OBJECT, 4):
        refused(
            UsageError, lambda uri=wrong: wal_id("d", uri, 0), "what names no object has no id", uri=wrong
        )
    refused(UsageError, lambda: wal_id("d", "s3://b/k", -(10**14)), "no id before the calendar")


# --- documents -----------------------------------------------------------------------


def _document(scene: Scene, depth: int = 0) -> Any:
    rng = scene.rng
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind < 6:
        text = "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(6)))
        return (text, rng.randrange(-(2**53) + 1, 2**53), True, False, None, rng.random() * 10)[kind]
    if kind == 6:
        return [_document(scene, depth + 1) for _ in range(rng.randrange(4))]
    return {
        "".join(rng.choice(ALPHABET + "ﬀ￿") for _ in range(rng.randrange(1, 4))): _document(scene, depth + 1)
        for _ in range(rng.randrange(4))
    }


def _shuffled(scene: Scene, document: Any) -> Any:
    if isinstance(document, dict):
        items = [(key, _shuffled(scene, value)) for key, value in document.items()]
        scene.rng.shuffle(items)
        return dict(items)
    return [_shuffled(scene, one) for one in document] if isinstance(document, list) else document


def _reference(value: Any) -> str:
    """RFC 8785 as one would write it down, for documents without floats."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{_reference(name)}:{_reference(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_reference, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _documents(scene: Scene) -> None:
    for _ in range(5):
        document = {"root": _document(scene)}
        tagged = tag_floats(document)
        encoded = canonical_bytes(tagged)
        require(encoded.decode() == _reference(tagged), "one document, one byte string", document=document)
        again = _shuffled(scene, document)
        require(canonical_hashed(again) == encoded, "the order of members does not matter", document=document)
        require(strict_loads(encoded) == json.loads(encoded), "what is written can be read", encoded=encoded)
        other = canonical_bytes({**tagged, "more": 1})
        require(other != encoded, "another document has other bytes")
    value = scene.rng.random() * 10 ** scene.rng.randrange(-8, 8)
    require(float(float_text(value)) == value, "a float's text means the float", value=value)
    require(tag_floats([2.0, -0.0]) == [2, 0], "whole floats are whole numbers")
    for wrong in scene.rng.sample(BAD_JSON, 4):
        refused(
            MalformedJson, lambda data=wrong: strict_loads(data), "readers would disagree", data=wrong[:40]
        )
    refused(MalformedJson, lambda: strict_loads(b"[1]", bytes_max=2), "too large is refused")
    for unfit in scene.rng.sample(UNHASHABLE, 4):
        error = refused(
            UnhashableInput, lambda value=unfit: canonical_bytes({"a": value}), "no bytes without a meaning"
        )
        require(bool(error.facts.get("field")), "a refusal names the place", error=str(error))
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    refused(UnhashableInput, lambda: canonical_bytes(deep), "depth is bounded")
    refused(UnhashableInput, lambda: tag_floats([float("inf")]), "infinity is no number")
    refused(UnhashableInput, lambda: tag_floats({"$float": "1"}), "the tag is ours")
    refused(UnhashableInput, lambda: tag_floats(deep), "depth is bounded")


# --- inputs --------------------------------------------------------------------------


def _inputs(scene: Scene) -> None:
    rng = scene.rng
    rows: list[dict[str, Any]] = [
        {"uri": f"s3://b/{number}{rng.choice(ALPHABET)}", "etag": f"e{rng.randrange(9)}", "size": number}
        for number in range(rng.randrange(2, 6))
    ]
    if rng.random() < 0.3:
        rows[0]["weight"] = 0.5
    if rng.random() < 0.3:
        rows.append({"id": "named", "version": "7", "etag": None})
    before = inputs_hash(rows, {"area": [1, 2]})
    mixed = [_shuffled(scene, row) for row in rows] + [rows[0]]
    rng.shuffle(mixed)
    require(inputs_hash(mixed, {"area": [1, 2]}) == before, "inputs count in any order, each once", rows=rows)
    changed = [{**rows[0], "etag": "other"}, *rows[1:]]
    require(inputs_hash(changed, {"area": [1, 2]}) != before, "a changed input changes the hash")
    require(inputs_hash(rows, {"area": [2, 1]}) != before, "changed parameters change the hash")
    unclear = (
        [*rows, changed[0]],
        [{"uri": "x"}],
        [{"etag": "x"}],
        ["text"],
        [{"uri": "x", "etag": {1: 2}}],
        [{"uri": "x", "etag": "\ud800"}],
    )
    for wrong in rng.sample(unclear, 2):
        refused(UnhashableInput, lambda inputs=wrong: inputs_hash(inputs), "unclear inputs are refused")
    refused(UnhashableInput, lambda: inputs_hash(rows, {"a": {1: 2}}), "unclear parameters are refused")
    _fingerprints(scene)


def _fingerprints(scene: Scene) -> None:
    signs: dict[str, Any] = scene.rng.choice(
        ({"checksum": "sha256:00"}, {"etag": "x"}, {"version": "3"}, {"modified_ms": 5})
    )
    found = [Found(uri=f"u{i}", path=f"p{i}", media_type="text/csv", **signs) for i in range(3)]
    before = fingerprint(found)
    require(fingerprint(found[::-1]) == before, "discovery may list in any order")
    strong = next(iter(signs))
    other = Found(
        uri="u0", path="p0", media_type="text/csv", **{strong: 9 if strong == "modified_ms" else "y"}
    )
    require(fingerprint([other, *found[1:]]) != before, "a change is seen", sign=strong)
    if strong != "modified_ms":
        touched = Found(uri="u0", path="p0", media_type="text/csv", modified_ms=99, **signs)
        require(fingerprint([touched, *found[1:]]) == before, "touched is not changed", sign=strong)
    bare = Found(uri="u", path="p", media_type="text/csv")
    refused(UnhashableInput, lambda: fingerprint([bare]), "an object that can't be told apart is refused")


# --- triggers ------------------------------------------------------------------------


def _event_key(trigger: Trigger, code_sha: str | None = None) -> str:
    return keys.key_of(keys.upstream_event_document(trigger, code_sha))


def _triggers(scene: Scene) -> None:
    rng = scene.rng
    window = Window(start_ms=scene.now_ms - 1000, end_ms=scene.now_ms, spec="P1D")
    work = Work(source_id="s", window=window, partition=rng.choice((None, "east")), output_version="1")
    events = [
        _event_key(Trigger(type="upstream-event", source_id="s", dataset_id="d", message_id=f"m{i}"))
        for i in range(3)
    ]
    shuffled = [*rng.sample(events, 3), events[0]]
    together = [
        keys.trigger_key(
            Trigger(type="upstream-event", source_id="s", dataset_id="d", member_keys=tuple(members)),
            work,
            revision,
        )
        for revision, members in enumerate((events, shuffled))
    ]
    require(together[0] == together[1], "coalesced events have one key in any order")
    announced = Trigger(
        type="upstream-event", source_id="s", dataset_id="d", source_uri="s3://b/k", content_tag="e1"
    )
    other_code = _event_key(announced, "abc")
    require(_event_key(announced) != other_code, "other code is other work")
    kinds: list[Any] = ["cron", "manual"]
    found = {}
    for kind in kinds:
        for force, correction in ((0, None), (1, None), (0, "C1")):
            trigger = Trigger(type=kind, source_id="s", dataset_id="d", force=force, correction=correction)
            for revision in (0, 1):
                found[kind, force, correction, revision] = keys.trigger_key(trigger, work, revision)
        plain = Trigger(type=kind, source_id="s", dataset_id="d")
        document = keys.cron_document if kind == "cron" else keys.manual_document
        named = keys.key_of(document(plain, work))
        require(named == found[kind, 0, None, 0], "a key is made one way")
    require(len(set(found.values())) == len(found), "every request has its own key", keys=found)
    fired = {keys.schedule_instant_key("nightly", scene.now_ms // 60_000 * 60_000 + i) for i in (0, 0, 1)}
    require(len(fired) == 2, "an instant fires once")
    run = keys.run_id("sim", keys.work_key(work))
    require(
        keys.attempt_id(run, 2) == str(uuid.uuid5(uuid.UUID(run), "2")), "attempts are named in their run"
    )
    retry = Trigger(type="retry", source_id="s", dataset_id="d")
    for wrong in (
        lambda: keys.trigger_key(retry, work),
        lambda: keys.work_key(work, -1),
        lambda: keys.uuid5("no uuid", "1"),
        lambda: _event_key(Trigger(type="upstream-event", source_id="s", dataset_id="d")),
    ):
        refused(UsageError, wrong, "no key without what it is made of")
