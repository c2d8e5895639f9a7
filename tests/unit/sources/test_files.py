"""Files of a folder: chosen by pattern, known by content, never from outside."""

from __future__ import annotations

import hashlib
import os

import pytest

from kfm.model.errors import ConfigError, LimitExceeded, PathConflict, UpstreamUnavailable
from kfm.model.records import Window
from kfm.model.settings import Limits, SourceSettings
from kfm.sources.files import FilesSource
from kfm.sources.placement import PathPattern, media_type
from tests.stand_ins import START_MS

DAY = Window(start_ms=START_MS, end_ms=START_MS + 86_400_000, spec="P1D")


@pytest.fixture
def folder(tmp_path):
    incoming = tmp_path / "incoming"
    for name in (
        "b.csv",
        "a.csv",
        "deep/er/c.csv",
        "2026-01-01/d.csv",
        "2026-01-02/d.csv",
        ".hidden/e.csv",
        ".f.csv",
    ):
        path = incoming / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    return incoming


def make(folder, limits=Limits(), **settings):  # noqa: B008
    return FilesSource(
        SourceSettings(
            id="src", dataset="ds", kind="files", folder="incoming", **{"mode": "replace", **settings}
        ),
        str(folder),
        limits,
    )


def paths(source):
    return [found.path for found in source.discover(DAY)]


@pytest.mark.req("RS-6")
def test_content_is_the_identity(folder):
    """A file is known by its hash, not its times; no path of this machine shows."""
    source = make(folder, pattern="*.csv")
    first = source.discover(DAY)
    assert [one.uri for one in first] == ["file:incoming/a.csv", "file:incoming/b.csv"]
    assert first[0].checksum == f"sha256:{hashlib.sha256(b'content of a.csv').hexdigest()}"
    os.utime(folder / "a.csv", (0, 0))
    assert source.discover(DAY) == first
    (folder / "a.csv").write_text("other")
    assert source.discover(DAY) != first


def test_reading(folder):
    """Files are read from any offset."""
    source = make(folder, pattern="a.csv")
    [found] = source.discover(DAY)
    with source.open(found, 8) as download:
        assert (download.offset, b"".join(download.chunks())) == (8, b"of a.csv")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**/*", ["2026-01-01/d.csv", "2026-01-02/d.csv", "a.csv", "b.csv", "deep/er/c.csv"]),
        ("*", ["a.csv", "b.csv"]),
        ("**/c.csv", ["deep/er/c.csv"]),
        ("[!a].csv", ["b.csv"]),
        ("deep/*/*.csv", ["deep/er/c.csv"]),
        ("deep/**", ["deep/er/c.csv"]),
        ("{window.start:date}/*.csv", ["2026-01-01/d.csv"]),
        ("*.nc", []),
    ],
)
def test_patterns(folder, pattern, expected):
    """Patterns choose by segment, the window may be part of them, hidden files are ignored."""
    assert paths(make(folder, pattern=pattern)) == expected


@pytest.mark.req("GRO-3")
@pytest.mark.parametrize(
    "name",
    [
        "a.csv",
        "none.csv",
        "deep/er/c.csv",
        "deep/er",
        "deep/none/c.csv",
        "a.csv/b.csv",
        ".f.csv",
        ".hidden/e.csv",
        "inside.csv",
        "nowhere.csv",
        "looped",
        "looped/a.csv",
        "twice.csv",
        "pipe.csv",
        "x" * 300,
    ],
)
def test_a_pattern_that_names_one_file_is_one_look(folder, name, monkeypatch):
    """It finds, or refuses, what a walk by a pattern would, without reading the folders; unless a file has
    other names, which are looked for."""
    (folder / "inside.csv").symlink_to("a.csv")
    (folder / "nowhere.csv").symlink_to("gone")
    (folder / "looped").symlink_to(folder)
    (folder / "twice.csv").hardlink_to(folder / "b.csv")
    os.mkfifo(folder / "pipe.csv")
    folder.chmod(0o775)  # a name that others may have made is looked into

    def outcome(pattern):
        try:
            return make(folder, pattern=pattern).discover(DAY)
        except UpstreamUnavailable as error:
            return error.detail

    walked, listed, scandir = outcome(f"[{name[0]}]{name[1:]}"), [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda at: listed.append(at) or scandir(at))
    assert outcome(name) == walked
    assert bool(listed) is (name == "twice.csv")


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a//b", "", "./x"])
def test_patterns_stay_inside(folder, pattern):
    """A pattern can't leave the folder."""
    with pytest.raises(ConfigError):
        make(folder, pattern=pattern).discover(DAY)


def test_many_stars_are_quick():
    """No pattern makes matching explode."""
    assert not PathPattern("/".join(["**", "*a*a*a*"] * 10 + ["z"])).matches("/".join(["aaaaaaaaab"] * 60))


def test_links(folder, tmp_path):
    """A link inside is followed, one that leads out is an error, a linked folder is not entered."""
    (tmp_path / "secret.csv").write_text("secret")
    (folder / "inside.csv").symlink_to("a.csv")
    (folder / "looped").symlink_to(folder)
    assert paths(make(folder, pattern="inside.csv")) == ["inside.csv"]
    assert not any(path.startswith("looped") for path in paths(make(folder)))
    (folder / "out.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(UpstreamUnavailable, match="leads out"):
        make(folder, pattern="out.csv").discover(DAY)


def test_link_that_appears_between(folder, tmp_path):
    """A file that became a link to elsewhere after discovery is not read."""
    source = make(folder, pattern="a.csv")
    [found] = source.discover(DAY)
    (folder / "a.csv").unlink()
    (folder / "a.csv").symlink_to("/etc/passwd")
    with pytest.raises(UpstreamUnavailable), source.open(found, 0):
        pass


@pytest.mark.req("RS-6")
def test_links_by_way_of_others(folder, tmp_path):
    """A link in a link, upwards or by its whole path, is followed inside and nowhere else."""
    (folder / "deep/up.csv").symlink_to("../2026-01-01/d.csv")
    (folder / "again.csv").symlink_to("deep/up.csv")
    (folder / "whole.csv").symlink_to(folder / "a.csv")
    (folder / "round.csv").symlink_to("round.csv")
    (folder / "out.csv").symlink_to("deep/../../secret.csv")
    (tmp_path / "secret.csv").write_text("secret")
    (folder / "way").symlink_to(tmp_path)
    for name, content in (("again.csv", "2026-01-01/d.csv"), ("whole.csv", "a.csv")):
        [found] = make(folder, pattern=name).discover(DAY)
        assert found.checksum == f"sha256:{hashlib.sha256(f'content of {content}'.encode()).hexdigest()}"
    with pytest.raises(UpstreamUnavailable, match="leads out"):
        make(folder, pattern="out.csv").discover(DAY)
    with pytest.raises(UpstreamUnavailable, match="symbolic links"):
        make(folder, pattern="round.csv").discover(DAY)


@pytest.mark.req("RS-6")
def test_a_folder_that_becomes_a_link_on_the_way(folder, tmp_path, monkeypatch):
    """Whatever is renamed between two steps, nothing outside the folder is opened, and the error is ours."""
    outside = tmp_path / "outside/er"
    outside.mkdir(parents=True)
    (outside / "c.csv").write_text("secret")
    real, seen = os.open, []

    def swapping(path, flags, *rest, **more):
        # Before each step the folder `deep` is swapped for a link, or put back.
        if (folder / "aside").exists():
            (folder / "deep").unlink()
            (folder / "aside").rename(folder / "deep")
        else:
            (folder / "deep").rename(folder / "aside")
            (folder / "deep").symlink_to(tmp_path / "outside")
        descriptor = real(path, flags, *rest, **more)
        seen.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        return descriptor

    source = make(folder, pattern="**/c.csv")
    [found] = source.discover(DAY)
    monkeypatch.setattr(os, "open", swapping)
    for _ in range(9):
        try:
            with source.open(found, 0) as download:
                assert b"".join(download.chunks()) == b"content of deep/er/c.csv"
        except UpstreamUnavailable:
            pass
    assert seen
    assert not [path for path in seen if path.startswith(str(tmp_path / "outside"))]


@pytest.mark.req("RS-6")
def test_hard_links_to_what_is_elsewhere(folder, tmp_path):
    """A second name outside is fine where only the folder's owner writes, and refused where others do."""
    (tmp_path / "secret.csv").write_text("secret")
    os.link(tmp_path / "secret.csv", folder / "linked.csv")
    folder.chmod(0o755)
    assert paths(make(folder, pattern="linked.csv")) == ["linked.csv"]
    folder.chmod(0o775)
    with pytest.raises(UpstreamUnavailable, match="is also a file outside of incoming") as caught:
        make(folder, pattern="linked.csv").discover(DAY)
    assert "copy" in caught.value.way_out
    os.link(folder / "a.csv", folder / "deep/twin.csv")
    (folder / "deep").chmod(0o777)
    assert paths(make(folder, pattern="**/twin.csv")) == ["deep/twin.csv"]


@pytest.mark.req("RS-6")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_hard_links_to_what_belongs_to_another(folder, tmp_path):
    """A link whose file is not the folder owner's was perhaps made by an account that can't read it."""
    (tmp_path / "secret.csv").write_text("secret")
    os.link(tmp_path / "secret.csv", folder / "linked.csv")
    folder.chmod(0o755)
    os.chown(folder, 12345, 12345)
    with pytest.raises(UpstreamUnavailable, match="is also a file outside"):
        make(folder, pattern="linked.csv").discover(DAY)


def test_what_is_no_file(folder):
    """A pipe is refused at once instead of being waited for."""
    os.mkfifo(folder / "pipe.csv")
    with pytest.raises(UpstreamUnavailable, match="regular"):
        make(folder, pattern="pipe.csv").discover(DAY)


def test_names_that_are_not_utf8(folder):
    """A name that records can't hold is refused with the name as far as it can be read; others go on."""
    with open(os.fsencode(folder) + b"/caf\xe9.csv", "w") as file:
        file.write("x")
    with pytest.raises(UpstreamUnavailable, match=r"caf\ufffd\.csv is not UTF-8") as caught:
        make(folder, pattern="*.csv").discover(DAY)
    assert caught.value.message.encode()
    assert "Rename" in caught.value.way_out
    assert paths(make(folder, pattern="a.csv")) == ["a.csv"]


def test_bounds(folder):
    """Too many or too large files are an error that names the limit."""
    with pytest.raises(LimitExceeded, match="objects_per_run_max"):
        make(folder, limits=Limits(objects_per_run_max=2)).discover(DAY)
    with pytest.raises(LimitExceeded, match="object_bytes_max"):
        make(folder, limits=Limits(object_bytes_max=3)).discover(DAY)


def test_missing_folder(folder):
    """A folder that is not there is upstream being away."""
    with pytest.raises(UpstreamUnavailable, match="incoming"):
        make(folder / "nowhere").discover(DAY)


def test_published_paths(folder):
    """The template decides where files stand; two at one place are refused."""
    assert paths(make(folder, pattern="*.csv", path="{window.start:date}/{name}")) == [
        "2026-01-01/a.csv",
        "2026-01-01/b.csv",
    ]
    with pytest.raises(PathConflict):
        make(folder, path="{name}").discover(DAY)


def test_media_types():
    """Suffixes of geospatial data are known; otherwise what was declared, if it is a type at all."""
    assert media_type("x.GeoJSON") == "application/geo+json"
    assert media_type("a.grib2") == "application/wmo-GRIB2"
    assert media_type("noext", "text/csv; charset=utf-8") == "text/csv"
    assert media_type("noext", "nonsense") == media_type("x.unknown") == "application/octet-stream"


@pytest.mark.req("TRG-4")
def test_windows_that_add_up_do_not_meet(folder):
    """Without a path template, each window of a merging source has a folder of its own."""
    source = make(folder, pattern="*.csv", mode="merge")
    next_day = Window(start_ms=DAY.end_ms, end_ms=2 * DAY.end_ms - DAY.start_ms, spec="P1D")
    today, tomorrow = ({found.path for found in source.discover(day)} for day in (DAY, next_day))
    assert today
    assert not today & tomorrow
    hour = Window(start_ms=DAY.start_ms, end_ms=DAY.start_ms + 3_600_000, spec="PT1H")
    assert {found.path.split("/")[0] for found in source.discover(hour)} == {"2026-01-01T000000Z"}
