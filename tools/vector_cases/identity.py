"""Trigger keys, work keys, run ids."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.model import keys
from kfm.model.canonical import canonical_bytes
from kfm.model.input_hash import sha256_text
from kfm.model.records import Trigger, Work
from tools.vector_cases.shape import Case, Family, error

HAND = "document by hand; its hash with any SHA-256 tool"
_W = "2026-03-08T06:00:00Z"  # the day of 23 hours in Chicago
_WINDOW = {"start_ms": 1772949600000, "end_ms": 1773032400000, "spec": "P1D"}
_WORK: dict[str, Any] = {
    "source_id": "usgs-daily",
    "window": _WINDOW,
    "partition": None,
    "output_version": "v1",
}


def _of(document: dict[str, Any]) -> Any:
    encoded = canonical_bytes(document)
    return {"canonical": encoded.decode(), "key": sha256_text(encoded)}


def _by_hand(canonical: str) -> dict[str, str]:
    return {"canonical": canonical, "key": sha256_text(canonical.encode())}


def _work(**changes: Any) -> dict[str, Any]:
    return {**_WORK, **changes}


def _window(start_ms: int, end_ms: int, spec: str = "P1D") -> dict[str, Any]:
    return {"start_ms": start_ms, "end_ms": end_ms, "spec": spec}


# --- trigger keys --------------------------------------------------------------------


def _trigger_key(given: dict[str, Any]) -> Any:
    if "schedule_id" in given:
        return _of(keys.schedule_instant_document(given["schedule_id"], given["utc_instant_ms"]))
    trigger = msgspec.convert(given["trigger"], Trigger)
    if given.get("tag") == "trigger/1":
        return _of(keys.former_webhook_document(trigger))
    if "code_sha" in given:
        return _of(keys.upstream_event_document(trigger, given["code_sha"]))
    return _of(keys.trigger_document(trigger, msgspec.convert(given["work"], Work), given.get("revision", 0)))


def _formerly(given: dict[str, Any]) -> dict[str, Any]:
    """The webhook under the version of its key that names no source."""
    return {**given, "tag": "trigger/1"}


def _asked(kind: str, revision: int = 0, work: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    trigger = {"type": kind, "source_id": "usgs-daily", "dataset_id": "ks-streamflow", **fields}
    return {"trigger": trigger, "work": work or _WORK, "revision": revision}


_PERIOD = '{"end":"2026-03-09T05:00:00Z","start":"2026-03-08T06:00:00Z"}'
_MANUAL = (
    '{"kfm":"trigger/1","pipeline_version":"v1","source_id":"usgs-daily","trigger_type":"manual","window":'
    + _PERIOD
    + "}"
)
_CRON = (
    '{"code_sha":"v1","dataset_id":"ks-streamflow","kfm":"trigger/1","partition":null,"period":'
    + _PERIOD
    + ',"source_id":"usgs-daily","trigger_type":"cron"}'
)
_OLD_HOOK = (
    '{"kfm":"trigger/1","request_uuid":"4f9c2f2e-0000-4000-8000-000000000001","trigger_type":"webhook"}'
)
_HOOK = (
    '{"kfm":"trigger/2","request_uuid":"4f9c2f2e-0000-4000-8000-000000000001","source_id":"usgs-daily",'
    '"trigger_type":"webhook"}'
)
_UUID = "4f9c2f2e-0000-4000-8000-000000000001"
_MEMBERS = '{"kfm":"trigger/1","member_keys":["sha256:aa","sha256:bb"],"source_id":"usgs-daily","trigger_type":"upstream-event"}'
_MESSAGE = '{"kfm":"trigger/1","message_id":"m-1","source_id":"usgs-daily","trigger_type":"upstream-event"}'
_OBJECT = (
    '{"content_tag":"aa11","kfm":"trigger/1","source_id":"usgs-daily","source_uri":"s3://b/k",'
    '"trigger_type":"upstream-event"}'
)


def _key(name: str, given: dict[str, Any], canonical: str | None = None) -> Case:
    return Case(name, given) if canonical is None else Case(name, given, _by_hand(canonical), HAND)


def _no(name: str, given: dict[str, Any], code: str = "KFM200") -> Case:
    return Case(name, given, error(code), "by the rules of the trigger")


TRIGGER_KEYS = Family(
    "trigger_keys",
    "A request for work, the document that its idempotency key is made of, and the key.",
    _trigger_key,
    [
        _key("manual", _asked("manual"), _MANUAL),
        _key(
            "manual, window written otherwise",
            _asked("manual", work=_work(window={**_WINDOW, "spec": "x"})),
            _MANUAL,
        ),
        _key(
            "manual, actor and rationale do not count",
            _asked("manual", actor="a", rationale="b", ticket="c"),
            _MANUAL,
        ),
        _key("manual, revision 0", _asked("manual", 0), _MANUAL),
        _key(
            "manual, revision 1",
            _asked("manual", 1),
            _MANUAL.replace('"source_id"', '"revision":1,"source_id"'),
        ),
        _key(
            "manual, partition",
            _asked("manual", work=_work(partition="ks")),
            _MANUAL.replace('"pipe', '"partition":"ks","pipe'),
        ),
        _key(
            "manual, other version",
            _asked("manual", work=_work(output_version="v2")),
            _MANUAL.replace('"v1"', '"v2"'),
        ),
        _key("manual, force 1", _asked("manual", force=1), '{"force":1,' + _MANUAL[1:]),
        _key("manual, force 2", _asked("manual", force=2), '{"force":2,' + _MANUAL[1:]),
        _key("manual, correction", _asked("manual", correction="C-7"), '{"correction":"C-7",' + _MANUAL[1:]),
        _key("manual, force and correction and revision", _asked("manual", 3, force=1, correction="C-7")),
        _key("manual, next day", _asked("manual", work=_work(window=_window(1773032400000, 1773118800000)))),
        _key(
            "manual, milliseconds", _asked("manual", work=_work(window=_window(1772949600001, 1773032400000)))
        ),
        _key("cron", _asked("cron"), _CRON),
        _key("cron, revision 1", _asked("cron", 1), _CRON.replace('"source_id"', '"revision":1,"source_id"')),
        _key(
            "cron, partition",
            _asked("cron", work=_work(partition="ks")),
            _CRON.replace('"partition":null', '"partition":"ks"'),
        ),
        _key(
            "cron, other source of the dataset",
            _asked("cron", work=_work(source_id="b")),
            _CRON.replace("usgs-daily", "b"),
        ),
        _key("cron, force", _asked("cron", force=1), _CRON.replace('"kfm"', '"force":1,"kfm"')),
        _key("webhook", _asked("webhook", request_uuid=_UUID), _HOOK),
        _key(
            "webhook, another window is the same request",
            _asked("webhook", work=_work(output_version="v9"), request_uuid=_UUID),
            _HOOK,
        ),
        _key("webhook, revision does not count", _asked("webhook", 4, request_uuid=_UUID), _HOOK),
        _key("webhook, force", _asked("webhook", request_uuid=_UUID, force=1), '{"force":1,' + _HOOK[1:]),
        _key(
            "webhook, correction",
            _asked("webhook", request_uuid=_UUID, correction="C-7"),
            '{"correction":"C-7",' + _HOOK[1:],
        ),
        _key(
            "webhook at another source",
            _asked("webhook", request_uuid=_UUID, source_id="b"),
            _HOOK.replace("usgs-daily", "b"),
        ),
        _key("webhook, trigger/1", _formerly(_asked("webhook", request_uuid=_UUID)), _OLD_HOOK),
        _key(
            "webhook, trigger/1, another window is the same request",
            _formerly(_asked("webhook", work=_work(output_version="v9"), request_uuid=_UUID)),
            _OLD_HOOK,
        ),
        _key(
            "webhook, trigger/1, revision does not count",
            _formerly(_asked("webhook", 4, request_uuid=_UUID)),
            _OLD_HOOK,
        ),
        _key(
            "webhook, trigger/1, force",
            _formerly(_asked("webhook", request_uuid=_UUID, force=1)),
            '{"force":1,' + _OLD_HOOK[1:],
        ),
        _key(
            "webhook, trigger/1, at another source is the same request",
            _formerly(_asked("webhook", request_uuid=_UUID, source_id="b")),
            _OLD_HOOK,
        ),
        _no("webhook without a request", _asked("webhook")),
        _no("webhook with an empty request", _asked("webhook", request_uuid="")),
        _key("message", _asked("upstream-event", message_id="m-1"), _MESSAGE),
        _key("message, revision does not count", _asked("upstream-event", 2, message_id="m-1"), _MESSAGE),
        _key("object", _asked("upstream-event", source_uri="s3://b/k", content_tag="aa11"), _OBJECT),
        _key(
            "object, new content",
            _asked("upstream-event", source_uri="s3://b/k", content_tag="bb22"),
            _OBJECT.replace("aa11", "bb22"),
        ),
        _key(
            "message wins over object",
            _asked("upstream-event", message_id="m-1", source_uri="s3://b/k", content_tag="aa11"),
            _MESSAGE,
        ),
        _no("object without content", _asked("upstream-event", source_uri="s3://b/k")),
        _no("event without anything", _asked("upstream-event")),
        _key("members", _asked("upstream-event", member_keys=["sha256:aa", "sha256:bb"]), _MEMBERS),
        _key(
            "members, other order", _asked("upstream-event", member_keys=["sha256:bb", "sha256:aa"]), _MEMBERS
        ),
        _key(
            "members, twice",
            _asked("upstream-event", member_keys=["sha256:bb", "sha256:aa", "sha256:bb"]),
            _MEMBERS,
        ),
        _key(
            "event with code",
            {**_asked("upstream-event", message_id="m-1"), "code_sha": "abc"},
            '{"code_sha":"abc",' + _MESSAGE[1:],
        ),
        _no("a retry keeps its run's key", _asked("retry")),
        _no("negative revision", _asked("manual", -1)),
        _key(
            "schedule",
            {"schedule_id": "nightly", "utc_instant_ms": 1772949600000},
            '{"kfm":"schedule/1","schedule_id":"nightly","utc_instant":"' + _W + '"}',
        ),
        _key(
            "schedule, at the epoch",
            {"schedule_id": "nightly", "utc_instant_ms": 0},
            '{"kfm":"schedule/1","schedule_id":"nightly","utc_instant":"1970-01-01T00:00:00Z"}',
        ),
    ],
)


# --- work keys and run ids -----------------------------------------------------------


def _work_key(given: dict[str, Any]) -> Any:
    return _of(keys.work_document(msgspec.convert(given["work"], Work), given.get("revision")))


_BASE = (
    '{"kfm":"work/1","output_version":"v1","partition":null,"source_id":"usgs-daily",'
    '"window_end":"2026-03-09T05:00:00Z","window_start":"2026-03-08T06:00:00Z"}'
)


def _revised(canonical: str, revision: int) -> str:
    return canonical.replace('"source_id"', f'"revision":{revision},"source_id"')


def _done(revision: int | None = None, **changes: Any) -> dict[str, Any]:
    return (
        {"work": _work(**changes)} if revision is None else {"work": _work(**changes), "revision": revision}
    )


def _ends(start_ms: int, end_ms: int, start: str, end: str) -> tuple[dict[str, Any], str]:
    canonical = _BASE.replace("2026-03-08T06:00:00Z", start).replace("2026-03-09T05:00:00Z", end)
    return _done(window=_window(start_ms, end_ms)), canonical


WORK_KEYS = Family(
    "work_keys",
    "The work itself, whoever asked: without a revision the key that all revisions share, with one the key of that.",
    _work_key,
    [
        _key("base", _done(), _BASE),
        _key("revision 0 is not the base", _done(0), _revised(_BASE, 0)),
        _key("revision 1", _done(1), _revised(_BASE, 1)),
        _key("revision 41", _done(41), _revised(_BASE, 41)),
        _key(
            "how the window was written does not count",
            _done(window={**_WINDOW, "spec": "2026-03-08/P1D"}),
            _BASE,
        ),
        _key("partition", _done(partition="ks"), _BASE.replace("null", '"ks"')),
        _key("empty partition is not none", _done(partition=""), _BASE.replace("null", '""')),
        _key("partition null as text is not none", _done(partition="null"), _BASE.replace("null", '"null"')),
        _key("other source", _done(source_id="b"), _BASE.replace("usgs-daily", "b")),
        _key("other output version", _done(output_version="sha256:ab"), _BASE.replace('"v1"', '"sha256:ab"')),
        _key("source outside ASCII", _done(source_id="größe"), _BASE.replace("usgs-daily", "größe")),
        _key("source beyond the BMP", _done(source_id="🛰"), _BASE.replace("usgs-daily", "🛰")),
        _key("quotes", _done(source_id='a"b'), _BASE.replace("usgs-daily", 'a\\"b')),
        _key("control characters", _done(source_id="a\nb"), _BASE.replace("usgs-daily", "a\\nb")),
        _key("epoch", *_ends(0, 86400000, "1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z")),
        _key("before the epoch", *_ends(-1, 0, "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z")),
        _key("one millisecond", *_ends(1, 2, "1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z")),
        _key(
            "tenths keep their zeros",
            *_ends(100, 1100, "1970-01-01T00:00:00.100Z", "1970-01-01T00:00:01.100Z"),
        ),
        _key(
            "leap day", *_ends(1709164800000, 1709251200000, "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z")
        ),
        _key(
            "no leap day in 2100",
            *_ends(4107456000000, 4107542400000, "2100-02-28T00:00:00Z", "2100-03-01T00:00:00Z"),
        ),
        _key(
            "year end", *_ends(1767139200000, 1767225600000, "2025-12-31T00:00:00Z", "2026-01-01T00:00:00Z")
        ),
        _key(
            "year 1",
            *_ends(-62135596800000, -62135596799999, "0001-01-01T00:00:00Z", "0001-01-01T00:00:00.001Z"),
        ),
        _key(
            "end of the calendar",
            *_ends(253402300799998, 253402300799999, "9999-12-31T23:59:59.998Z", "9999-12-31T23:59:59.999Z"),
        ),
        _key(
            "31 bits of seconds",
            *_ends(2147483647000, 2147483648000, "2038-01-19T03:14:07Z", "2038-01-19T03:14:08Z"),
        ),
        _no("beyond the calendar", _done(window=_window(0, 253402300800000))),
        _no("before the calendar", _done(window=_window(-62135596800001, 0))),
        _no("negative revision", _done(-1)),
        _no("half of a surrogate pair", _done(source_id="\ud800"), "KFM206"),
    ],
)


def _ids(given: dict[str, Any]) -> Any:
    if "environment" in given:
        return keys.run_id(given["environment"], given["work_key"])
    if "attempt" in given:
        return keys.attempt_id(given["run_id"], given["attempt"])
    return keys.uuid5(given["namespace"], given["name"])


_DNS = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
_RUN = "dfa888d8-ecc0-8499-b53f-5aba05e7578a"
_LIB = "Python's uuid module"


def _run(environment: str, work_key: str, name: str | None = None) -> Case:
    return Case(
        name or f"run of {environment or 'nothing'}", {"environment": environment, "work_key": work_key}
    )


def _five(name: str, namespace: str, text: str, pin: str, source: str) -> Case:
    return Case(name, {"namespace": namespace, "name": text}, pin, source)


RUN_IDS = Family(
    "run_ids",
    "Run ids: UUIDv8 over SHA-256 of the canonical environment and work key. Attempts: UUIDv5 of the number's text.",
    _ids,
    [
        _run("demo", "sha256:" + "0" * 64),
        _run("production", "sha256:" + "0" * 64),
        _run("demo", "sha256:" + "f" * 64, "other work"),
        _run("", "sha256:" + "0" * 64),
        _run("größe", "sha256:" + "0" * 64),
        _run("🛰", "sha256:" + "0" * 64),
        _run("demo", "", "no work"),
        *(_run("demo", f"sha256:{index:064x}", f"work {index}") for index in range(1, 8)),
        *(
            Case(f"attempt {number}", {"run_id": _RUN, "attempt": number}, pin, _LIB)
            for number, pin in (
                (0, "598398d1-a20e-581b-a60b-6a67aa2e25d0"),
                (1, "21d58710-86bd-514e-b79b-2c26bacf4e98"),
                (2, "f7ca6b85-ffa0-5531-af10-e0d9cc89835b"),
                (10, "84b602e4-b9fb-5dde-a96b-dd0d29557182"),
            )
        ),
        Case("negative attempt", {"run_id": _RUN, "attempt": -1}, error("KFM200"), "counts from 0"),
        Case("run id is no UUID", {"run_id": "run-1", "attempt": 1}, error("KFM200"), "by the format"),
        Case(
            "run id without hyphens",
            {"run_id": _RUN.replace("-", ""), "attempt": 1},
            error("KFM200"),
            "by the format",
        ),
        Case(
            "run id in braces",
            {"run_id": "{" + _RUN[:34] + "}", "attempt": 1},
            error("KFM200"),
            "by the format",
        ),
        _five(
            "published example",
            _DNS,
            "www.example.com",
            "2ed6657d-e927-568b-95e1-2665a8aea6a2",
            "RFC 9562, appendix A.4",
        ),
        _five(
            "python.org",
            _DNS,
            "python.org",
            "886313e1-3b8a-5372-9b90-0c9aee199e5d",
            "Python's documentation of uuid",
        ),
        _five(
            "namespace in capitals", _DNS.upper(), "python.org", "886313e1-3b8a-5372-9b90-0c9aee199e5d", _LIB
        ),
        _five("empty name", _DNS, "", "4ebd0208-8328-5d69-8c44-ec50939c0967", _LIB),
        _five("name outside ASCII", _DNS, "größe", "2ea9457d-e513-5521-a9bf-e7456b57cddd", _LIB),
    ],
)

FAMILIES = [TRIGGER_KEYS, WORK_KEYS, RUN_IDS]
