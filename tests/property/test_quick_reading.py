"""Quick readers of announcements against the slow ones that they stand in for: never a different answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfm.core import walid
from kfm.core.errors import UsageError
from kfm.ingest import bodies, familiar, grammar, messages, object_keys, patterns, plain_json, spans
from kfm.ingest.announced import event_time
from kfm.ingest.patterns import Fields, Pattern, Template
from kfm.ingest.reading import Arrival, parse
from kfm.ingest.refusals import Refusal
from kfm.ingest.registry import built_in, load_registry
from kfm.ingest.shapes import s3
from tests.nodd_keys import alike

NOW_MS = 1_790_000_000_000
REGISTRY = load_registry()
DATASETS = built_in()
RULES = [rule for dataset in DATASETS for rule in dataset.rules]
THOROUGH = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
TOPIC = "arn:aws:sns:us-east-1:123901341784:NewGOES16Object"
BUCKET = "noaa-goes16"
KEYS = (
    ("noaa-goes16", "ABI-L1b-RadC/2026/218/01/OR_ABI-L1b-RadC-M6C03_G16_s20262180138575_e20262180139033_c20262180139080.nc"),  # noqa: E501
    ("noaa-goes16", "GLM-L2-LCFA/2026/001/00/OR_GLM-L2-LCFA_G16_s20260010000000_e20260010000200_c20260010000220.nc"),
    ("unidata-nexrad-level2", "2026/01/02/KICT/KICT20260102_030405_V06"),
    ("noaa-hrrr-bdp-pds", "hrrr.20260101/conus/hrrr.t00z.wrfsfcf18.grib2.idx"),
    ("noaa-mrms-pds", "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-000000.grib2.gz"),
    ("noaa-goes16", "a+b%20c/%C3%A9?#.nc"),
    ("unknown-bucket", "x/../y"),
)  # fmt: skip
_GONE = object()
_NEVER = re.compile(r"(?!)")


# --- the slow reader -----------------------------------------------------------------


@contextmanager
def everything_slow() -> Iterator[None]:
    """The reference: each quick way declines, each table is empty, nothing is remembered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(familiar, "hear", lambda _body, _allowed: None)
        patch.setattr(plain_json, "read", lambda _text, _depth_max: plain_json.DECLINED)
        for module, table in ((spans, "_SECONDS"), (spans, "_SECONDS_AND_TENTHS"), (s3, "_SECONDS")):
            patch.setattr(module, table, {})
        patch.setattr(spans, "_digits_kept", spans._digits)
        patch.setattr(spans, "_hour_parts", spans._hour_parts.__wrapped__)
        patch.setattr(object_keys, "_PLAIN", _NEVER)
        patch.setattr(grammar, "_KEPT_OR_SLASH", _NEVER)
        patch.setattr(grammar, "is_plain", lambda _uri: False)
        patch.setattr(grammar, "_whereabouts", _whereabouts)
        patch.setattr(Template, "render", _render)
        for rule in RULES:
            patch.setattr(rule.pattern, "landmark", "")
        yield


def _whereabouts(fields: Fields, folders: Fields) -> tuple[bool, bool]:
    placed = all(fields.get(name) == value for name, value in folders.items())
    return placed, not placed and any(fields.get(name) not in (None, folders[name]) for name in folders)


def _render(self: Template, fields: Fields) -> str:
    return patterns._written(self._parts, fields, self.text)


def check(body: bytes) -> None:
    quickly = parse(body, REGISTRY, NOW_MS)
    again = parse(body, REGISTRY, NOW_MS)  # by now whatever is remembered is remembered
    with everything_slow():
        slowly = parse(body, REGISTRY, NOW_MS)
    assert quickly == slowly
    assert again == slowly


# --- messages that somebody could send -----------------------------------------------


def record(bucket: str = BUCKET, key: str = KEYS[0][1]) -> dict[str, Any]:
    """In Amazon's own order."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2026-08-06T01:39:17.337Z",
        "eventName": "ObjectCreated:Put",
        "userIdentity": {"principalId": "AWS:AIDA"},
        "requestParameters": {"sourceIPAddress": "192.0.2.1"},
        "responseElements": {"x-amz-request-id": "EBD615B128A3EBBB", "x-amz-id-2": "4CFJrIHl+bAy="},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "MjQ5",
            "bucket": {"name": bucket, "ownerIdentity": {"principalId": "A2"}, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {"key": key, "size": 1063054, "eTag": "7239138a", "sequencer": "005D48DA450E238E88"},
        },
    }


def envelope(message: str) -> dict[str, Any]:
    return {
        "Type": "Notification",
        "MessageId": "191c04d9-d428-5417-b457-511b08af29c6",
        "TopicArn": TOPIC,
        "Subject": "Amazon S3 Notification",
        "Message": message,
        "Timestamp": "2026-08-06T01:39:19.120Z",
        "SignatureVersion": "1",
        "Signature": "DrjMXAKufoJ7lM2ZC7uZ5q0NwrGC+oy4YQAT/Taef5uL==",
        "SigningCertURL": "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-6aad65c2.pem",
        "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
    }


def as_sns_writes(document: dict[str, Any]) -> str:
    lines = (f"  {json.dumps(name)} : {json.dumps(value)}" for name, value in document.items())
    return "{\n" + ",\n".join(lines) + "\n}"


def minified(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


WRITERS = (minified, json.dumps, lambda document: json.dumps(document, indent=1))
ENVELOPES = (as_sns_writes, *WRITERS)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e300, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**19, 10**20, 10**25),
    *("", " ", "x", "\n", "é", "\ud800", '"', "\\", "a\u202eb", "ObjectRemoved:Delete", "s3:ObjectCreated:Put"),
    *("s3:TestEvent", "ObjectTagging:Put", "2.9", "2.12", "3.0", "2026-08-06T24:00:00.000Z", "2026-08-06 01:39:17Z"),
    *("2099-08-06T01:39:17.337Z", "0000-01-01T00:00:00.000Z", "2026-08-06T01:39:60.000Z", "/a", "a/./b", "%zz"),
    *("x" * 5000, "a/" * 520 + "b", [], {}, [[]], {"name": "b"}, float("nan"), float("inf")),
)
SNIPPETS = (
    *(b'"size":1,', b'"Subject":"x",', b'"Type":"Notification",', b'"a":1,"a":2,', b"NaN", b"1e999", b"-0", b"1E5"),
    *(b"0" * 25, b"\\u0041", b"\\ud800", b"\\", b'"', b" ", b"\n", b"\t", b"\x00", b"\xff", b"\xc3\xa9", b"[" * 40),
    *(b"{}", b",", b":", b"]", b"}", b"\\/", b"\xef\xbb\xbf", b'\\"', b"null", b"\\n  "),
)  # fmt: skip


@st.composite
def records(draw: Any) -> dict[str, Any]:
    """A record of S3; now and then with odd members, others, fewer, or in another order."""
    made = record(*draw(st.sampled_from(KEYS)))
    parts = [made, made["s3"], made["s3"]["object"], made["s3"]["bucket"]]
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        part = draw(st.sampled_from(parts))
        name = draw(st.sampled_from((*part, "versionId", "glacierEventData")))
        what = draw(st.sampled_from(("odd", "gone", "last")))
        value = part.pop(name, "v1")
        if what != "gone":
            part[name] = draw(st.sampled_from(ODD)) if what == "odd" else value
    return made


@st.composite
def mutated(draw: Any, text: bytes) -> bytes:
    """With a piece more, less or twice."""
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        at = draw(st.integers(0, len(text)))
        until = at + draw(st.sampled_from((0, 1, 2, 5, 17, 60)))
        put = draw(st.sampled_from((*SNIPPETS, b"", text[at:until] * 2)))
        text = text[:at] + put + text[until:]
    return text


@st.composite
def messages_of_any_sort(draw: Any) -> bytes:
    """One or several records, bare or wrapped, mutated within and without."""
    many = draw(st.lists(records(), min_size=1, max_size=draw(st.sampled_from((1, 1, 1, 6)))))
    text = draw(mutated(_bytes(draw(st.sampled_from(WRITERS))({"Records": many}))))
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2)))):
        wrapped = envelope(text.decode("utf-8", "surrogateescape"))
        if draw(st.booleans()):
            name = draw(st.sampled_from(tuple(wrapped)))
            value = draw(st.sampled_from((wrapped.pop(name), None, *ODD)))
            wrapped |= {} if value is None else {name: value}
        text = draw(mutated(_bytes(draw(st.sampled_from(ENVELOPES))(wrapped))))
    return text


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# --- promises ------------------------------------------------------------------------


@pytest.mark.req("WAL-20")
@given(messages_of_any_sort())
@THOROUGH
def test_quick_and_slow_readers_agree(body: bytes) -> None:
    """Whatever a message is, the quick way to read it has the slow one's answer."""
    check(body)


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize("write", ENVELOPES)
def test_odd_members_are_read_alike(write: Any) -> None:
    """Each member of a message, once missing and once with each odd value: both ways have one answer."""
    bare = minified({"Records": [record()]})
    for name in envelope(bare):
        check(_bytes(write({other: value for other, value in envelope(bare).items() if other != name})))
        for value in ODD:
            check(_bytes(write(envelope(bare) | {name: value})))
    for path in ((), ("s3",), ("s3", "object"), ("s3", "bucket"), ("userIdentity",)):
        names = (*_within(record(), path), "versionId")
        for name, value in ((name, value) for name in names for value in (*ODD, _GONE)):
            made = record()
            _within(made, path)[name] = value
            if value is _GONE:
                del _within(made, path)[name]
            check(_bytes(write({"Records": [made]})))


def _within(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset.name)
@given(data=st.data())
@QUICK
def test_keys_are_read_alike(dataset: Any, data: Any) -> None:
    """Keys of every dataset, in every place of it, tell the same by both ways."""
    for key in data.draw(alike(dataset))[:12]:
        for place in dataset.places:
            quickly = _read(place.provider, place.bucket, key)
            with everything_slow():
                assert quickly == _read(place.provider, place.bucket, key)


def _read(provider: str, bucket: str, key: str) -> object:
    try:
        return REGISTRY.read(provider, bucket, key)
    except Refusal as refusal:
        return refusal.text


@pytest.mark.parametrize("write", ENVELOPES)
def test_usual_messages_take_the_quick_way(write: Any) -> None:
    """What Amazon sends is not declined, so the rest of this page is about something."""
    message = minified({"Records": [record()] * 2})
    topics = frozenset({TOPIC})
    assert familiar.hear(message.encode(), topics) is not None
    assert familiar.hear(write(envelope(message)).encode(), topics) is not None
    assert isinstance(parse(write(envelope(message)).encode(), REGISTRY, NOW_MS)[0], Arrival)


@pytest.mark.req("WAL-20")
def test_second_name_finds_no_room() -> None:
    """An envelope that says something twice is refused, also if it is just as long as an honest one."""
    honest = as_sns_writes(envelope(minified({"Records": [record()]})))
    lines = honest.split("\n")
    signature = envelope("")["Signature"]
    for index in range(1, len(lines) - 1):
        for again in ('"Subject":"x"', '"Subject":""', '"MessageId":"x"', '"Message":"{}"', '"Type":1e15'):
            last = "" if lines[index].endswith(",") else ","
            before = f"  {again}, {lines[index].lstrip()}"
            after = f"{lines[index]}{last}{again}{'' if last else ','}"
            for line in (before, after):
                text = "\n".join((*lines[:index], line, *lines[index + 1 :]))
                room = len(text) - len(honest)
                for old, new, times in ((" : ", ":", room // 2), ("\n  ", "\n", room // 2), (signature[:room], "", 1)):
                    made = text.replace(old, new, times)
                    assert not isinstance(parse(made.encode(), REGISTRY, NOW_MS)[0], Arrival)
                    check(made.encode())


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":1}', '{"a":{"b":1,"b":2}}', "[NaN]", "[1e999]", "[-0]", "[18446744073709551616]", "[1.0,1E1]",
     '["\\ud800"]', '["\\u0041"]', "[" * 33 + "]" * 33, "[" * 32 + "]" * 32, "[" * 300 + "]" * 300, '{"a":1}x',
     "", " ", '\ufeff{"a":1}', '{"a" : 1 ,\n"b c":[ ]}', f"[{'1' * 21}]", "[0.1]", '["[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["]'],
)  # fmt: skip
def test_plain_json_is_read_alike(text: str) -> None:
    """The quick reader of JSON has the same document, or none."""
    found = plain_json.read(text.encode(), bodies.DEPTH_MAX)
    if found is not plain_json.DECLINED:
        assert bodies._load(text) == (found, False)
        assert repr(bodies._load(text)[0]) == repr(found)


def test_plain_json_is_not_declined() -> None:
    """Blanks, many records and brackets within strings are nothing odd."""
    for text in ('{"a" : 1 ,\n"b c":[ ]}', "[" * 32 + "]" * 32, f"[{'[],' * 50}1]", '["' + "[" * 50 + '"]', "[0.1]"):
        assert plain_json.read(text.encode(), bodies.DEPTH_MAX) == json.loads(text)


@given(st.one_of(st.from_regex(r"[0-9]{7,16}", fullmatch=True), st.text("0123569:- TZ", max_size=16)))
@THOROUGH
def test_times_are_alike(text: str) -> None:
    """Times by tables are times by the calendar, refusals included."""
    for quick, slow in ((spans.digits, spans._digits), (spans.day_of_year, spans._day_of_year)):
        assert _told(quick, text) == _told(slow, text)


@given(
    st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='milliseconds')}Z"),
    st.integers(0, 24),
    st.sampled_from(("", "0", "6", "9", ":", "Z", "z", " ", "٣", "-")),
)
@THOROUGH
def test_times_of_events_are_alike(text: str, at: int, put: str) -> None:
    """The time of an event is the same by tables, also if a character of it is another."""
    for made in (text, text[:at] + put + text[at + len(put) :]):
        assert s3.s3_time(made) == event_time(made)


def _told(read: Any, text: str) -> object:
    try:
        return read(text)
    except Refusal as refusal:
        return refusal.text
    except ValueError as error:  # what no pattern lets through
        return type(error)


@given(st.integers(spans.MS_MIN, spans.MS_MAX))
def test_parts_of_days_are_alike(ms: int) -> None:
    """An hour's folders are those of each moment in it."""
    year, month, day, hour, number = spans.day_parts(ms)
    assert spans.day_of_year(f"{year}{number}{hour}00000") == ms // spans.HOUR_MS * spans.HOUR_MS
    assert spans.digits(f"{year}{month}{day}{hour}") == ms // spans.HOUR_MS * spans.HOUR_MS


@given(
    st.sampled_from(("s3", "gs", "az", "S3", "s3a", "file")),
    st.text("abZ0._-/$%", max_size=12),
    st.text("abZ0._-/=+%?#\"\\ é", max_size=20),
)
@settings(deadline=None)
def test_plain_addresses_have_the_same_ids(scheme: str, bucket: str, key: str) -> None:
    """What is plain needs no canonical form: its id is the same without."""
    uri = f"{scheme}://{bucket}/{key}"
    if walid.is_plain(uri):
        assert walid.plain_wal_id("d-1", uri, 5) == walid.wal_id("d-1", uri, 5)
        assert walid.canonical_object_uri(uri) == uri
    with pytest.raises(UsageError):
        walid.plain_wal_id("d-1", "s3://b/k", -(10**15))


def test_landmarks_stand_in_every_key() -> None:
    """A pattern's landmark is part of each key that it matches, however kinds are written."""
    kinds = {"one": "ab+c", "two": "ab?", "three": "a|bc", "four": r"x\d", "five": "ab{2}", "six": "MDM"}
    landmarks = {name: Pattern(f"_{{f:{name}}}", kinds).landmark for name in kinds}
    assert landmarks == {"one": "_a", "two": "_a", "three": "_", "four": "_x", "five": "_a", "six": "_MDM"}
    assert Pattern("[abc{f:d2}]x{g:d2}").landmark == "x"


def test_templates_write_what_is_there() -> None:
    """Options are weighed for each set of fields that is there, and remembered for the like of it."""
    template = Template("100%{a}[-{b}[%s{c}]]_{a}")
    for _ in range(2):
        assert template.render({"a": "1", "b": "2", "c": "3"}) == "100%1-2%s3_1"
        assert template.render({"a": "1", "b": None, "c": "3"}) == "100%1_1"
        assert template.render({"a": "%s", "b": "2", "c": None}) == "100%%s-2_%s"
        assert template.render({"a": "1"}) == "100%1_1"
        with pytest.raises(ValueError, match="not there"):
            template.render({"a": None, "b": "2", "c": "3"})
    assert Template("plain%").render({}) == "plain%"
    assert Template("x{a}").render({"a": "1"}) == "x1"


def test_slow_reader_is_slow() -> None:
    """The reference of this page takes none of the quick ways."""
    with everything_slow():
        assert familiar.hear(minified({"Records": [record()]}).encode(), ()) is None
        assert plain_json.read(b"{}", 1) is plain_json.DECLINED
        assert messages.hear(b"{}", ())
    assert plain_json.read(b"{}", 1) == {}
