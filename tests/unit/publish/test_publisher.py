"""Publishers: five operations, a trace, nothing visible."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest

from kfm.model.contracts import require_valid
from kfm.model.errors import (
    Cancelled,
    ConfigError,
    DryRunViolated,
    IllegalTransition,
    KfmError,
    LimitExceeded,
    PathConflict,
    SchemaViolation,
)
from kfm.model.records import Fetched, Found
from kfm.model.settings import Limits
from kfm.publish.publisher import MASKED, NoopPublisher, Publisher, StagingPublisher, Trace
from tests.unit.publish.stand_ins import MemoryObjects, sha

LIMITS = Limits(objects_per_run_max=2, object_bytes_max=10, run_bytes_max=15)


class Desk:
    """A publisher of either kind with what it writes to."""

    def __init__(self, dry_run: bool, *, restricted: bool = False, limits: Limits | None = None) -> None:
        self.lines: list[dict[str, Any]] = []
        self.objects = MemoryObjects()
        trace = Trace(
            lambda line: self.lines.append(msgspec.json.decode(line)),
            lambda: 1_700_000_000_000,
            "run-1",
            publisher="noop" if dry_run else "staging",
            dry_run=dry_run,
            restricted=restricted,
        )
        self.publisher: Publisher = (
            NoopPublisher(trace, scratch=self.objects, limits=limits)
            if dry_run
            else StagingPublisher(self.objects, trace, limits=limits)
        )


@pytest.mark.req("GOV-1")
def test_a_stopped_run_takes_nothing_in() -> None:
    """Every operation is refused, and a stream that arrives is cut short; nothing of it is kept."""
    stopped: list[KfmError] = []
    objects = MemoryObjects()

    def check() -> None:
        if stopped:
            raise stopped[0]

    class Endless:
        def read(self, _size: int) -> bytes:
            stopped.append(Cancelled("enough"))
            return b"bytes"

    trace = Trace(lambda _line: None, lambda: 0, "run-1", publisher="staging", dry_run=False)
    publisher = StagingPublisher(objects, trace, check=check)
    publisher.write_file("early.csv", b"early")
    with pytest.raises(Cancelled):
        publisher.write_file("stream.csv", Endless())
    for operation in (
        lambda: publisher.write_file("late.csv", b"late"),
        lambda: publisher.emit_event("late", {}),
        lambda: publisher.update_state("late", 1),
        lambda: publisher.publish_release({}),
    ):
        with pytest.raises(Cancelled):
            operation()
    staged = publisher.staged()
    assert [asset.path for asset in staged.assets] == ["early.csv"]
    assert (staged.events, staged.states, staged.release) == ((), (), None)


@pytest.fixture(params=[False, True], ids=["staging", "noop"])
def desk(request: pytest.FixtureRequest) -> Desk:
    return Desk(request.param)


def use(publisher: Publisher) -> None:
    publisher.write_file("b.csv", b"bytes", {"media_type": "text/csv"})
    publisher.write_file("a/stream.bin", io.BytesIO(b"streamed"))
    publisher.emit_event("dataset.refreshed", {"where": "38.9,-95.2", "weight": 1.5})
    publisher.update_state("watermark", "2026-01-01T00:00:00Z")
    publisher.update_state("watermark", "2026-01-02T00:00:00Z")
    publisher.publish_release({"notes": "secret words"})
    publisher.noop_guard()
    publisher.close()


@pytest.mark.req("UPD-6", "UPD-11")
def test_each_operation_leaves_one_valid_line(desk: Desk) -> None:
    """Every operation is in the trace, once, in order, and matches the schema."""
    use(desk.publisher)
    for line in desk.lines:
        require_valid("publisher-trace", line)
    assert [line["seq"] for line in desk.lines] == list(range(1, 9))
    assert [line["operation"] for line in desk.lines] == [
        "write_file",
        "write_file",
        "emit_event",
        "update_state",
        "update_state",
        "publish_release",
        "noop_guard",
        "close",
    ]


@pytest.mark.req("UPD-6", "UPD-7")
def test_both_publishers_want_the_same() -> None:
    """A dry-run collects exactly what the real run would have promoted."""
    real, dry = Desk(False), Desk(True)
    use(real.publisher)
    use(dry.publisher)
    assert real.publisher.staged() == dry.publisher.staged()
    staged = real.publisher.staged()
    assert [(one.path, one.sha256, one.size) for one in staged.assets] == [
        ("a/stream.bin", sha(b"streamed"), 8),
        ("b.csv", sha(b"bytes"), 5),
    ]
    assert [(one.state_key, one.value) for one in staged.states] == [("watermark", "2026-01-02T00:00:00Z")]
    assert real.objects.has(sha(b"bytes"))
    assert {line["outcome"] for line in dry.lines} == {"intended", "checked", "closed"}
    assert all(line["dry_run"] for line in dry.lines)


@pytest.mark.req("RS-13")
def test_payloads_are_not_in_the_trace(desk: Desk) -> None:
    """Events, states and releases are traced by hash: no coordinates, no content."""
    use(desk.publisher)
    text = msgspec.json.encode(desk.lines).decode()
    for secret in ("38.9", "secret words", "2026-01-02"):
        assert secret not in text


@pytest.mark.req("RS-13")
def test_paths_of_restricted_data_are_masked() -> None:
    """The trace of a restricted dataset names no file."""
    desk = Desk(False, restricted=True)
    desk.publisher.write_file("burial-sites.geojson", b"x")
    assert desk.lines[0]["path"] == MASKED


def test_after_the_run_nothing_can_be_published(desk: Desk) -> None:
    """A pipeline that kept its publisher can't use it after the run has ended."""
    desk.publisher.close()
    desk.publisher.close()
    for operation in (
        lambda: desk.publisher.write_file("a", b""),
        lambda: desk.publisher.emit_event("e", {}),
        lambda: desk.publisher.update_state("k", 1),
        lambda: desk.publisher.publish_release({}),
        lambda: desk.publisher.noop_guard(),
    ):
        with pytest.raises(IllegalTransition):
            operation()
    assert [line["operation"] for line in desk.lines] == ["close"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../b", "", "a//b", "a\x00b"])
def test_paths_that_lead_out_are_refused(desk: Desk, path: str) -> None:
    """No path leaves the dataset's folder; the refusal is traced and nothing is staged."""
    with pytest.raises(ConfigError):
        desk.publisher.write_file(path, b"x")
    assert desk.lines[-1]["outcome"] == "refused"
    assert desk.publisher.staged().assets == ()
    assert desk.objects.stored == {}


def test_one_path_is_written_once(desk: Desk) -> None:
    """A second write to a path is refused instead of silently winning."""
    desk.publisher.write_file("a", b"1")
    with pytest.raises(PathConflict):
        desk.publisher.write_file("a", b"2")
    assert desk.publisher.staged().assets[0].sha256 == sha(b"1")


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ([b"x" * 11], "object_bytes_max"),
        ([b"x" * 10, b"y" * 10], "run_bytes_max"),
        ([b"1", b"2", b"3"], "objects_per_run_max"),
    ],
)
def test_limits_hold(dry_run: bool, files: list[bytes], limit: str) -> None:
    """Files, their sizes and their sum are bounded, and the message names the limit."""
    desk = Desk(dry_run, limits=LIMITS)
    with pytest.raises(LimitExceeded, match=limit):
        for number, data in enumerate(files):
            desk.publisher.write_file(f"{number}", io.BytesIO(data))
    assert len(desk.publisher.staged().assets) == len(files) - 1


def test_a_broken_stream_leaves_nothing(desk: Desk) -> None:
    """When the data can't be read to its end, the staged part is given up."""

    class Broken:
        def read(self, size: int, /) -> bytes:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        desk.publisher.write_file("a", Broken())
    assert desk.publisher.staged().assets == ()
    assert desk.objects.aborted == 1


def test_what_is_fetched_is_not_copied_again(desk: Desk) -> None:
    """A fetched object is published by its hash, with what discovery knew of it."""
    name = desk.objects.add(b"fetched")
    found = Found(uri="https://example.org/a.csv", path="a.csv", media_type="text/csv", modified_ms=7)
    one = desk.publisher.write_file("a.csv", Fetched(found=found, sha256=name, size=7))
    assert (one.sha256, one.size, one.media_type, one.source_uri, one.modified_ms) == (
        name,
        7,
        "text/csv",
        "https://example.org/a.csv",
        7,
    )


def test_unknown_metadata_is_refused(desk: Desk) -> None:
    """A misspelt metadata field is an error, not something that is dropped."""
    with pytest.raises(SchemaViolation, match="mediatype"):
        desk.publisher.write_file("a", b"x", {"mediatype": "text/csv"})


def test_a_run_has_one_release(desk: Desk) -> None:
    """A second release of one run is refused."""
    desk.publisher.publish_release({"a": 1})
    with pytest.raises(IllegalTransition):
        desk.publisher.publish_release({"a": 2})


@pytest.mark.req("UPD-7")
def test_the_guard_notices_a_change() -> None:
    """In a dry-run the guard raises if what it watches is not as it was."""
    state = {"rows": 1}
    trace = Trace(lambda line: None, lambda: 0, "r", publisher="noop", dry_run=True)
    publisher = NoopPublisher(trace, fingerprint=lambda: dict(state))
    publisher.write_file("a", b"x")
    publisher.noop_guard()
    state["rows"] = 2
    with pytest.raises(DryRunViolated):
        publisher.noop_guard()


def test_errors_of_the_publisher_are_kfm_errors() -> None:
    """A dry-run violation has a code and a way out like every other error."""
    assert issubclass(DryRunViolated, KfmError)
    assert DryRunViolated().as_document()["code"] == "KFM608"
