"""Quick readers of announcements against the slow ones that they stand in for: never a different answer."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfm.model import units
from kfm.model.errors import UsageError
from kfm.model.times import MS_MAX, MS_MIN
from kfm.nodd import grammar, object_keys, patterns, spans
from kfm.nodd.dataset_registry import built_in, load_registry
from kfm.nodd.messages import json_bodies, s3_fast, s3_records
from kfm.nodd.messages.announcement import event_time
from kfm.nodd.messages.record_outcomes import Arrival, parse_key, parse_message
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.patterns import Fields, Pattern, Template
from tests.nodd_keys import alike
from tests.nodd_messages import (
    ENVELOPES,
    ODD,
    TOPIC,
    Writer,
    as_sns_writes,
    encoded,
    envelope,
    messages,
    minified,
    record,
)

FOLDER = Path(os.environ.get("KFM_NODD_CASES") or Path(__file__).resolve().parents[3] / "shared/data/nodd")
NOW_MS = 1_790_000_000_000
REGISTRY = load_registry()
DATASETS = built_in()
RULES = [rule for dataset in DATASETS for rule in dataset.rules]
THOROUGH = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
_GONE = object()
_NEVER = re.compile(r"(?!)")


# --- the slow reader -----------------------------------------------------------------


@contextmanager
def everything_slow() -> Iterator[None]:
    """The reference: each quick way declines, each table is empty, nothing is remembered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_fast, "read_plain_message", lambda _body, _allowed: None)
        patch.setattr(json_bodies, "read_plain", lambda _text, _depth_max: json_bodies.DECLINED)
        for module, table in ((spans, "_CLOCK"), (s3_records, "_CLOCK")):
            patch.setattr(module, table, {})
        patch.setattr(spans, "_date_parts", spans._date_parts.__wrapped__)
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
    quickly = parse_message(body, REGISTRY, NOW_MS)
    again = parse_message(body, REGISTRY, NOW_MS)  # by now whatever is remembered is remembered
    with everything_slow():
        slowly = parse_message(body, REGISTRY, NOW_MS)
    assert quickly == slowly
    assert again == slowly


# --- promises ------------------------------------------------------------------------


@pytest.mark.req("WAL-20")
@given(messages())
@THOROUGH
def test_quick_and_slow_readers_agree(body: bytes) -> None:
    """Whatever a message is, the quick way to read it has the slow one's answer."""
    check(body)


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize("write", ENVELOPES)
def test_odd_members_are_read_alike(write: Writer) -> None:
    """Each member of a message, once missing and once with each odd value: both ways have one answer."""
    bare = minified({"Records": [record()]})
    for name in envelope(bare):
        check(encoded(write({other: value for other, value in envelope(bare).items() if other != name})))
        for value in ODD:
            check(encoded(write(envelope(bare) | {name: value})))
    for path in ((), ("s3",), ("s3", "object"), ("s3", "bucket"), ("userIdentity",)):
        names = (*_within(record(), path), "versionId")
        for name, value in ((name, value) for name in names for value in (*ODD, _GONE)):
            made = record()
            _within(made, path)[name] = value
            if value is _GONE:
                del _within(made, path)[name]
            check(encoded(write({"Records": [made]})))


def _within(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no collection of real keys (KFM_NODD_CASES)")
def test_real_messages_and_keys_are_read_alike() -> None:
    """Real and hostile bodies, and real keys, where a collection of them is kept."""
    for path in FOLDER.glob("messages/*.json"):
        check(path.read_bytes())
    for row in _rows("hostile.jsonl"):
        check(base64.b64decode(row["body_b64"]) if "body_b64" in row else encoded(row["body"]))
    for row in _rows("keys.jsonl"):
        key = quote_plus(row["key"], safe="/")
        check(as_sns_writes(envelope(minified({"Records": [record(row["bucket"], key)]}))).encode())
        quickly = parse_key(row["bucket"], row["key"], REGISTRY, NOW_MS)
        with everything_slow():
            assert quickly == parse_key(row["bucket"], row["key"], REGISTRY, NOW_MS)


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


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
    except RecordRefusal as refusal:
        return refusal.text


@pytest.mark.parametrize("write", ENVELOPES)
def test_usual_messages_take_the_quick_way(write: Writer) -> None:
    """What Amazon sends is not declined, so the rest of this page is about something."""
    message = minified({"Records": [record()] * 2})
    topics = frozenset({TOPIC})
    assert s3_fast.read_plain_message(message.encode(), topics) is not None
    assert s3_fast.read_plain_message(write(envelope(message)).encode(), topics) is not None
    assert isinstance(parse_message(write(envelope(message)).encode(), REGISTRY, NOW_MS)[0], Arrival)


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
                for made in (
                    text.replace(" : ", ":", room // 2),
                    text.replace("\n  ", "\n", room // 2),
                    text.replace(signature[:room], "", 1),
                ):
                    assert not isinstance(parse_message(made.encode(), REGISTRY, NOW_MS)[0], Arrival)
                    check(made.encode())


# fmt: off
ALMOST_PLAIN = (
    '{"a":1,"a":1}', '{"a":{"b":1,"b":2}}', "[NaN]", "[1e999]", "[-0]", "[18446744073709551616]", "[1.0,1E1]",
    '["\\ud800"]', '["\\u0041"]', "[" * 33 + "]" * 33, "[" * 32 + "]" * 32, "[" * 300 + "]" * 300, '{"a":1}x',
    "", " ", '\ufeff{"a":1}', '{"a" : 1 ,\n"b c":[ ]}', f"[{'1' * 21}]", "[0.1]", f'["{"[" * 33}"]',
)
# fmt: on


@pytest.mark.parametrize("text", ALMOST_PLAIN)
def test_plain_json_is_read_alike(text: str) -> None:
    """The quick reader of JSON has the same document, or none."""
    found = json_bodies.read_plain(text.encode(), json_bodies.DEPTH_MAX)
    if found is not json_bodies.DECLINED:
        assert json_bodies._load(text) == (found, False)
        assert repr(json_bodies._load(text)[0]) == repr(found)


def test_plain_json_is_not_declined() -> None:
    """Blanks, many records and brackets within strings are nothing odd."""
    for text in ('{"a" : 1 ,\n"b c":[ ]}', "[" * 32 + "]" * 32, f"[{'[],' * 50}0.1]", f'["{"[" * 50}"]'):
        assert json_bodies.read_plain(text.encode(), json_bodies.DEPTH_MAX) == json.loads(text)


@given(st.one_of(st.from_regex(r"[0-9]{7,16}", fullmatch=True), st.text("0123569:- TZ", max_size=16)))
@THOROUGH
def test_times_are_alike(text: str) -> None:
    """Times by tables are times by the calendar, refusals included."""
    for quick, slow in ((spans.digits, spans._digits), (spans.day_of_year, spans._day_of_year)):
        assert _told(quick, text) == _told(slow, text)


def test_edges_of_the_clock_are_alike() -> None:
    """The last hour, minute, second and day that there is, and the first that there is not."""
    sixty = ("00", "59", "60", "9", "")
    for hour, minute, second, tenth in product(
        ("00", "23", "24", "2", ""), sixty, sixty, ("0", "9", "x", "")
    ):
        for day in ("20240229", "20250229", "00010101", "99991231", "20240100"):
            text = day + hour + minute + second + tenth
            assert _told(spans.digits, text) == _told(spans._digits, text), text
        for day in ("2024366", "2025366", "2025365", "2025000", "0000001", "9999366", "2024367"):
            text = day + hour + minute + second + tenth
            assert _told(spans.day_of_year, text) == _told(spans._day_of_year, text), text


@given(
    st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='milliseconds')}Z"),
    st.integers(0, 24),
    st.sampled_from(("", "0", "6", "9", ":", "Z", "z", " ", "٣", "-")),
)
@THOROUGH
def test_times_of_events_are_alike(text: str, at: int, put: str) -> None:
    """The time of an event is the same by tables, also if a character of it is another."""
    for made in (text, text[:at] + put + text[at + len(put) :]):
        assert s3_records.s3_time(made) == event_time(made)


def _told(read: Any, text: str) -> object:
    try:
        return read(text)
    except RecordRefusal as refusal:
        return refusal.text
    except ValueError as error:  # what no pattern lets through
        return type(error)


@given(st.integers(MS_MIN, MS_MAX))
def test_parts_of_days_are_alike(ms: int) -> None:
    """An hour's folders are those of each moment in it."""
    year, month, day, hour, number = spans.day_parts(ms)
    assert spans.day_of_year(f"{year}{number}{hour}00000") == ms // spans.HOUR_MS * spans.HOUR_MS
    assert spans.digits(f"{year}{month}{day}{hour}") == ms // spans.HOUR_MS * spans.HOUR_MS


@given(
    st.sampled_from(("s3", "s3", "gs", "az", "S3", "s3a", "file")),
    st.text("abZ0._-", min_size=1, max_size=8),
    st.lists(
        st.sampled_from(("a", "Z0", "/", ".", "=+_-", "%20", "%C3%A9", "%", "?", "#", '"', "\\", " ", "é"))
    ),
)
@settings(deadline=None)
def test_plain_addresses_have_the_same_ids(scheme: str, bucket: str, key: list[str]) -> None:
    """What is plain needs no canonical form: its id is the same without."""
    uri = f"{scheme}://{bucket}/{''.join(key)}"
    if units.is_plain(uri):
        assert units.plain_wal_id("d-1", uri, 5) == units.wal_id("d-1", uri, 5)
        assert units.canonical_object_uri(uri) == uri
    with pytest.raises(UsageError):
        units.plain_wal_id("d-1", "s3://b/k", -(10**15))


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
        assert s3_fast.read_plain_message(minified({"Records": [record()]}).encode(), ()) is None
        assert json_bodies.read_plain(b"{}", 1) is json_bodies.DECLINED
    assert json_bodies.read_plain(b"{}", 1) == {}
