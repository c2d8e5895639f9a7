"""Files that are gone, damaged or can't be written: noticed, named, and told with the way out."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm import system
from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]


@pytest.fixture
def published(kfm: Kfm, project: Path) -> Path:
    (project / "incoming" / "levels.csv").write_text("station,level\na,1\n")
    assert kfm("run", "--source", "daily").code == 0
    return project


def findings(called: Called, name: str) -> list[dict[str, Any]]:
    return [check for check in called.document["checks"] if check["name"] == name]


def stored(project: Path) -> Path:
    (found,) = (path for path in (project / ".kfm" / "objects" / "sha256").rglob("*") if path.is_file())
    return found


# --- a published tree ----------------------------------------------------------------------


@pytest.mark.req("UPD-6")
def test_a_published_tree_that_is_gone_is_noticed(kfm: Kfm, published: Path, valid: Valid) -> None:
    """Removed by hand: `status` is not all clear, `doctor` fails, and `kfm project` brings it back."""
    assert kfm("status").out.startswith("all clear")
    assert findings(kfm("doctor", "--offline", "--json"), "targets")[0]["state"] == "ok"
    shutil.rmtree(published / "published")
    status = kfm("status")
    behind = "behind: target local does not show version 1 of dataset levels: try `kfm project`"
    assert status.out.splitlines()[0] == behind
    assert "levels on local: shows nothing, promoted is 1; make it with `kfm project`" in status.out
    valid("status", kfm("status", "--json").document)
    called = kfm("doctor", "--offline", "--json")
    (told,) = findings(called, "targets")
    assert (told["state"], told["fix"]) == ("fail", "kfm project")
    assert told["message"] == "local: it does not show version 1 of levels"
    assert called.code == 1
    assert kfm("project").code == 0
    assert kfm("status").out.startswith("all clear")
    assert findings(kfm("doctor", "--offline", "--json"), "targets")[0]["state"] == "ok"


@pytest.mark.req("UPD-6")
def test_a_dataset_that_left_the_configuration_is_not_missed(kfm: Kfm, published: Path) -> None:
    """What is not configured any more stays where it was shown; that it went is no trouble."""
    settings = (published / "kfm.yml").read_text()
    (published / "kfm.yml").write_text(settings.replace("levels", "depths"))
    shutil.rmtree(published / "published")
    assert "behind" not in kfm("status").out.splitlines()[0]


# --- stored objects ------------------------------------------------------------------------


@pytest.mark.req("RS-3", "CLI-1")
@pytest.mark.parametrize("damaged", [b"station,level\na,2\n", b"st"], ids=["same size", "cut"])
def test_a_damaged_object_is_named_and_mended(
    kfm: Kfm, published: Path, valid: Valid, damaged: bytes
) -> None:
    """`doctor --deep` reads every object, names the damaged one with its item and the command that brings its
    bytes back; that command does."""
    path = stored(published)
    whole = kfm("doctor", "--offline", "--deep", "--json")
    valid("doctor", whole.document)
    assert findings(whole, "objects")[-1]["state"] == "ok"
    path.write_bytes(damaged)
    assert not findings(kfm("doctor", "--offline", "--json"), "objects")  # without --deep none is read
    called = kfm("doctor", "--offline", "--deep", "--json")
    (told, _) = findings(called, "objects")
    assert (called.code, told["state"]) == (4, "fail")
    assert "levels, item " in told["message"]
    assert path.parent.name + path.name in told["message"]
    assert (
        "kfm run --source daily --window none --force" in told["fix"]
        or "kfm run --source daily" in told["fix"]
    )
    again = ("run", "--source", "daily", "--force", "--rationale", "damaged", "--ticket", "T-1")
    assert kfm(*again).code == 0
    assert path.read_bytes() == b"station,level\na,1\n"
    assert findings(kfm("doctor", "--offline", "--deep", "--json"), "objects")[-1]["state"] == "ok"


@pytest.mark.req("RS-3")
def test_objects_that_are_missing_or_not_needed(kfm: Kfm, published: Path) -> None:
    """One that a version needs and is not there is named; a damaged one that none needs can be removed."""
    path = stored(published)
    path.unlink()
    stray = path.parent.parent / "ab" / ("c" * 62)
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"stray")
    found = findings(kfm("doctor", "--offline", "--deep", "--json"), "objects")
    assert [check["state"] for check in found] == ["fail", "fail", "warn"]
    assert f"remove {stray}" in found[0]["fix"]
    assert "is not in the object store" in found[1]["message"]
    assert found[2]["message"].endswith("1 damaged, 1 missing")


FLOW = """\
import kfm
soil = kfm.Pipeline("soil")

@soil.node("soil.samples")
def samples(ctx):
    open("ran", "a").write("samples ")
    ctx.publisher.write_file("a.txt", b"1 2 6")

@soil.node("soil.mean")
def mean(samples):
    open("ran", "a").write("mean ")
    return open(samples["a.txt"].path).read()
"""


@pytest.fixture
def flow(project: Path) -> Path:
    (project / "flow.py").write_text(FLOW)
    return project


def object_of(flow: Path, body: bytes) -> Path:
    (found,) = (
        path
        for path in (flow / ".kfm" / "objects" / "sha256").rglob("*")
        if path.is_file() and path.read_bytes() == body
    )
    return found


@pytest.mark.req("RS-3")
def test_a_damaged_result_is_made_again(kfm: Kfm, flow: Path) -> None:
    """Damage of another size is seen by every run, of the same size by --verify; the node that made it runs
    again, and its bytes are whole."""
    assert kfm("pipeline", "run", "flow.py").code == 0
    path = object_of(flow, b"1 2 6")
    for damaged, options in ((b"1 2", ()), (b"1 2 7", ("--verify",))):
        path.write_bytes(damaged)
        (flow / "ran").unlink()
        assert kfm("pipeline", "run", "flow.py", *options).code == 0
        assert (flow / "ran").read_text() == "samples "
        assert path.read_bytes() == b"1 2 6"


@pytest.mark.req("RS-3")
def test_a_reader_never_gets_damaged_bytes(kfm: Kfm, flow: Path) -> None:
    """Also not by a path, which only the function itself reads: the run fails with KFM405 and its way out."""
    assert kfm("pipeline", "run", "flow.py").code == 0
    object_of(flow, b"1 2 6").write_bytes(b"1 2 7")
    called = kfm("pipeline", "run", "flow.py", "--force", "soil.mean")
    assert called.code != 0
    assert "KFM405" in called.err + called.out
    assert kfm("pipeline", "run", "flow.py", "--force", "soil.mean", "--verify").code == 0


# --- disks ---------------------------------------------------------------------------------


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize(
    ("number", "said", "way"),
    [
        (
            errno.ENOSPC,
            "is full: {file} can't be written before there is space.",
            "Free some space on {disk}",
        ),
        (errno.EROFS, "is read-only: {file} can't be written before it is mounted", "remount,rw {disk}"),
    ],
    ids=["full", "read-only"],
)
def test_a_full_or_read_only_disk_is_named(
    kfm: Kfm, published: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str, way: str
) -> None:
    """Whichever file could not be written is named with its disk, and with what helps there: of a run in the
    ledger, too, of any other command with its way out."""
    (published / "incoming" / "levels.csv").write_text("station,level\na,2\n")
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(published))
    real = os.write

    def refuse(descriptor: int, data: bytes) -> int:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if "/objects/tmp/" in name or "/.versions/" in name:
            raise OSError(number, os.strerror(number))
        return real(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr(system.os, "write", refuse)
        called = kfm("run", "--source", "daily")
    assert called.code == 4
    told = f"The disk {published} " + said.format(file=f"{published}/.kfm/objects/tmp/")[:30]
    assert told in called.err
    assert told in kfm("status", "--json").document["needs_attention"][0]["error_message"]
    shutil.rmtree(published / "published")
    with monkeypatch.context() as patched:
        patched.setattr(system.os, "write", refuse)
        shown = kfm("project")
    assert shown.code == 4
    assert f"The disk {published} is " in shown.err
    assert f"{published}/published/levels/.versions/.building-" in shown.err
    assert way.format(disk=published) in shown.err


@pytest.mark.req("CLI-1")
def test_a_file_without_a_name_is_a_temporary_one() -> None:
    """A descriptor tells no name; what has none is in the folder for temporary files."""
    trouble = system.os_trouble(OSError(errno.ENOSPC, "No space left on device"))
    assert trouble.text.startswith("The disk /")
    assert " is full: /" in trouble.text
    assert system.os_trouble(OSError(errno.EACCES, "Permission denied", "/a")) == (
        "Permission denied (/a).",
        None,
    )
