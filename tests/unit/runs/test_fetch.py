"""Fetching: bounded, verified, resumable, stoppable."""

from __future__ import annotations

import contextlib
import hashlib
import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.calls.guard import guarded
from kfm.model.errors import ChecksumMismatch, LimitExceeded, LostLease, UpstreamUnavailable
from kfm.model.records import Found
from kfm.model.settings import Limits
from kfm.objects.local import LocalObjects
from kfm.objects.scratch import ScratchObjects
from kfm.runs.fetch import fetch_all, resume_key
from tests.power import PowerCutFiles
from tests.stand_ins import CountedIds, FakeClock, FixedRng

BODY = bytes(range(256)) * 40
SHA256 = hashlib.sha256(BODY).hexdigest()
CUT = UpstreamUnavailable("cut", transient=True)


class ScriptedDownload:
    def __init__(self, offset, found, chunks):
        self.offset, self.found, self._chunks = offset, found, chunks

    def chunks(self):
        return self._chunks


class ScriptedSource:
    """Serves one body; each opening may break off after some bytes."""

    def __init__(self, body=BODY, cuts=(), ranges=True, on_chunk=lambda: None, step=1000):
        self.body, self.cuts, self.ranges, self.on_chunk, self.step = body, list(cuts), ranges, on_chunk, step
        self.offsets = []

    @contextlib.contextmanager
    def open(self, found, offset):
        self.offsets.append(offset)
        begin = offset if self.ranges else 0
        yield ScriptedDownload(begin, found, self._chunks(begin))

    def _chunks(self, begin):
        cut = self.cuts.pop(0) if self.cuts else None
        sent = 0
        for at in range(begin, len(self.body), self.step):
            if cut is not None and sent >= cut:
                raise CUT
            self.on_chunk()
            chunk = self.body[at : at + self.step]
            sent += len(chunk)
            yield chunk


def found(**more):
    fields = {"uri": "http://h/a.bin", "path": "a.bin", "media_type": "x/y", "etag": '"1"', "size": len(BODY)}
    return Found(**{**fields, **more})


def local(files=None):
    return LocalObjects(files or PowerCutFiles(random.Random(1)), "/o", CountedIds())


def run(source, things, objects=None, limits=Limits(), check=lambda: None, clock=None, progress=None):  # noqa: B008
    clock = clock or FakeClock()
    return fetch_all(
        source,
        things,
        objects or local(),
        clock=clock,
        guard=partial(guarded, clock=clock, rng=FixedRng()),
        limits=limits,
        on_progress=progress or (lambda amount, path: None),
        check=check,
    )


def stored(objects, sha256):
    reader = objects.open(sha256)
    return b"".join(iter(lambda: reader.read(4096), b""))


def test_bytes_arrive_under_their_hash():
    """What was fetched is in the object store, whole, under its hash; progress adds up to its size."""
    objects, seen = local(), []
    [fetched] = run(ScriptedSource(), [found()], objects, progress=lambda amount, path: seen.append(amount))
    assert (fetched.sha256, fetched.size) == (SHA256, len(BODY))
    assert stored(objects, SHA256) == BODY
    assert sum(seen) == len(BODY)


@pytest.mark.req("RET-3")
def test_broken_download_is_resumed():
    """Each new attempt asks only for what is missing, and the result is the whole."""
    objects, source, seen = local(), ScriptedSource(cuts=[3000, 2000, 0]), []
    [fetched] = run(source, [found()], objects, progress=lambda amount, path: seen.append(amount))
    assert source.offsets == [0, 3000, 5000, 5000]
    assert stored(objects, fetched.sha256) == BODY
    assert sum(seen) == len(BODY)


@settings(deadline=None, max_examples=40)
@given(cuts=st.lists(st.integers(0, len(BODY)), max_size=4), ranges=st.booleans(), step=st.integers(1, 5000))
def test_any_cuts_give_the_same_object(cuts, ranges, step):
    """Wherever the connection breaks, whether or not ranges are supported: the same bytes in the end."""
    objects = local()
    [fetched] = run(ScriptedSource(cuts=cuts, ranges=ranges, step=step), [found()], objects)
    assert fetched.sha256 == SHA256
    assert stored(objects, SHA256) == BODY


def test_next_process_resumes():
    """A run that failed leaves its bytes to the next one."""
    files = PowerCutFiles(random.Random(1))
    with pytest.raises(UpstreamUnavailable):
        run(ScriptedSource(cuts=[2000] * 5), [found()], local(files))
    source = ScriptedSource()
    [fetched] = run(source, [found()], local(files.another()))
    assert source.offsets == [10_000]
    assert fetched.sha256 == SHA256


def test_complete_partial_needs_no_request():
    """Where only the commit was missing, nothing is asked again."""
    files = PowerCutFiles(random.Random(1))
    staging, _ = local(files).stage(resume_key(found()))
    staging.write(BODY)
    staging.keep_partial()
    source = ScriptedSource()
    [fetched] = run(source, [found()], local(files.another()))
    assert (source.offsets, fetched.sha256) == ([], SHA256)


def test_no_proof_no_resume():
    """Without a strong validator kept bytes are not trusted."""
    assert resume_key(found(etag=None)) is None
    assert resume_key(found(etag='W/"1"')) is None
    assert resume_key(found(etag='"2"')) != resume_key(found())
    source = ScriptedSource(cuts=[3000])
    [fetched] = run(source, [found(etag=None)])
    assert (source.offsets, fetched.sha256) == ([0, 0], SHA256)


def test_announced_checksum_is_verified():
    """Other bytes than were announced are an error, not an object of the run."""
    assert run(ScriptedSource(), [found(checksum=f"sha256:{SHA256}")])[0].sha256 == SHA256
    with pytest.raises(ChecksumMismatch) as caught:
        run(ScriptedSource(), [found(checksum="sha256:" + "0" * 64)])
    assert caught.value.facts == {"transient": False, "retryable": True}


def test_wrong_kept_bytes_are_found_out():
    """A resumed object whose kept part is wrong is begun anew, once."""
    files = PowerCutFiles(random.Random(1))
    announced = found(checksum=f"sha256:{SHA256}")
    staging, _ = local(files).stage(resume_key(announced))
    staging.write(b"wrong" * 100)
    staging.keep_partial()
    source = ScriptedSource()
    [fetched] = run(source, [announced], local(files.another()))
    assert (source.offsets, fetched.sha256) == ([500, 0], SHA256)


def test_announced_size_is_verified():
    """Too few bytes are a broken connection, too many are another object."""
    with pytest.raises(UpstreamUnavailable, match="ended after"):
        run(ScriptedSource(), [found(size=len(BODY) + 1)])
    with pytest.raises(ChecksumMismatch):
        run(ScriptedSource(), [found(size=len(BODY) - 1)])


def test_limits_of_object_and_run():
    """Nothing larger than the limits is fetched, whether or not upstream told its size."""
    source = ScriptedSource()
    for limits in (Limits(object_bytes_max=5000), Limits(run_bytes_max=5000)):
        with pytest.raises(LimitExceeded):
            run(source, [found()], limits=limits)
    assert len(source.offsets) <= 1
    for limits, which in (
        (Limits(object_bytes_max=5000), "object_bytes_max"),
        (Limits(run_bytes_max=len(BODY) + 5000), "run_bytes_max"),
    ):
        things = [found(size=None), found(size=None, uri="http://h/b", path="b")]
        with pytest.raises(LimitExceeded, match=which):
            run(ScriptedSource(), things, limits=limits)
    with pytest.raises(LimitExceeded, match="objects_per_run_max"):
        run(ScriptedSource(), [found()] * 3, limits=Limits(objects_per_run_max=2))


def test_oversized_object_leaves_nothing():
    """What exceeded a limit is not kept to be resumed."""
    files = PowerCutFiles(random.Random(1))
    with pytest.raises(LimitExceeded):
        run(ScriptedSource(), [found(size=None)], local(files), limits=Limits(object_bytes_max=5000))
    assert files.tree() == {}


def test_lost_lease_stops_between_chunks():
    """A run that lost its lease stops at the next chunk, and its bytes serve its successor."""
    files = PowerCutFiles(random.Random(1))
    left = [5]

    def check():
        left[0] -= 1
        if left[0] < 0:
            raise LostLease

    with pytest.raises(LostLease):
        run(ScriptedSource(), [found()], local(files), check=check)
    source = ScriptedSource()
    run(source, [found()], local(files.another()))
    assert source.offsets == [4000]


def test_trickle_is_cut_off():
    """A body that comes too slowly to ever end is given up, and resumed like any other failure."""
    clock = FakeClock()

    def slowly():
        clock.passed_ms += 50_000

    source = ScriptedSource(step=10, on_chunk=slowly)
    with pytest.raises(UpstreamUnavailable, match="too slow"):
        run(source, [found()], clock=clock)
    assert len(source.offsets) == 5
    assert source.offsets == sorted(source.offsets)


@pytest.mark.req("UPD-7")
def test_dry_run_bytes_have_no_name(tmp_path):
    """Scratch objects hold the same bytes and leave no file to be seen."""
    objects = ScratchObjects(str(tmp_path))
    [fetched] = run(ScriptedSource(cuts=[3000]), [found()], objects)
    assert stored(objects, fetched.sha256) == stored(objects, SHA256) == BODY
    assert list(objects.all()) == [SHA256]
    assert list(tmp_path.iterdir()) == []
    assert objects.local_path(SHA256) is None
    objects.close()
