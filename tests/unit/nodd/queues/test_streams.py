"""Lines of a stream as messages."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.errors import BackendUnavailable
from kfm.nodd.queues.line_stream import CHUNK_BYTES, MESSAGE_BYTES_MAX, LineCutter, StreamQueue
from kfm.system import SystemClock
from tests.stand_ins import FakeClock


def test_a_pipe_is_not_waited_for() -> None:
    """What is there is handed out at once, without the rest of a line; at the end the rest is one."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as writer:
        queue = StreamQueue(stream, SystemClock())
        assert queue.receive(10, 0) == []
        assert not queue.ended, "silent, with nothing handed out, and still open"
        writer.write(b"1\n2\n3")
        assert [message.body for message in queue.receive(10, 60_000)] == [b"1", b"2"]
        assert queue.receive(10, 1) == []
        assert not queue.ended
        writer.close()
        (last,) = queue.receive(10, 60_000)
        assert last.body == b"3"
        queue.put_back([last.receipt])
        assert [message.receives for message in queue.receive(10, 0)] == [2]
        assert not queue.ended
        queue.acknowledge(["1", "2", last.receipt])
        assert queue.ended


def test_after_its_end_a_stream_is_waited_for_as_long_as_was_said() -> None:
    """Polling at the end is no busy loop; what is not acknowledged in time comes again."""
    clock = FakeClock()
    queue = StreamQueue(io.BytesIO(b"1"), clock, visibility_ms=700)
    assert len(queue.receive(10, 500)) == 1
    assert clock.slept == []
    assert queue.receive(10, 500) == []
    assert clock.slept == [500]
    assert not queue.ended
    assert queue.receive(10, 500) == []
    assert [message.body for message in queue.receive(10, 500)] == [b"1"]


def test_a_long_line_is_cut_and_the_next_is_whole() -> None:
    """No more of a line is held than is needed to say that it is too long."""
    lines = b"x" * (5 * MESSAGE_BYTES_MAX) + b"\n1\n" + b"y" * MESSAGE_BYTES_MAX + b"\n"
    queue = StreamQueue(io.BytesIO(lines), FakeClock())
    found = queue.receive(10, 0)
    assert [len(message.body) for message in found] == [MESSAGE_BYTES_MAX + 1, 1, MESSAGE_BYTES_MAX]


def test_a_stream_that_breaks_is_said() -> None:
    """A read error may hide messages, so it is not an end."""
    reading, writing = os.pipe()
    os.close(writing)
    stream = os.fdopen(reading, "rb")
    queue = StreamQueue(stream, FakeClock())
    stream.close()
    with pytest.raises(BackendUnavailable, match="can't be read"):
        queue.receive(1, 0)


@given(
    st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))),
    st.lists(st.integers(1, 20), min_size=1),
)
def test_lines_do_not_depend_on_chunks(lines: list[bytes], sizes: list[int]) -> None:
    """However a stream is cut into pieces, the lines in it are the same."""
    text, cutter, found = b"\n".join(lines), LineCutter(), []
    while text:
        size = sizes[len(text) % len(sizes)]
        found += cutter.cut(text[:size])
        text = text[size:]
    assert found + cutter.end() == [line for line in lines if line.strip()]
    assert CHUNK_BYTES < MESSAGE_BYTES_MAX
