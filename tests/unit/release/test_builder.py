"""Names, archives, what counts of the chain, and folders that appear whole."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from kfm.model import audit
from kfm.model.errors import UsageError
from kfm.model.records import GovernanceEntry
from kfm.release import release_folder
from kfm.release.builder import last_link
from kfm.release.release_folder import checked_version
from kfm.telemetry.aggregates import TimeBounds
from tests.unit.release.rows import ListLedger


@pytest.mark.parametrize("version", ["v1", "1.2", "v11.2.3", "1.2.3.4", "1.0.0-rc.1", "v1.0.0-rc-2+build.5"])
def test_versions(version: str) -> None:
    """What people call versions is a version."""
    assert checked_version(version) == version


@pytest.mark.parametrize(
    "version",
    [
        "",
        ".",
        "..",
        "../v1",
        "v1/..",
        "v1/x",
        "/v1",
        "v1\n",
        "v1 ",
        "latest",
        "1..2",
        "1.0-",
        "1.0-a..b",
        "v1\x00",
        "1.0.0-" + "a" * 64,
        "\uff11.0",
        "v1\\x",
        "-1",
    ],
)
def test_no_version(version: str) -> None:
    """A version is the name of one folder, and can't be anything else."""
    with pytest.raises(UsageError):
        checked_version(version)


def _chain(*kinds: str) -> ListLedger:
    ledger = ListLedger()
    entries = [
        GovernanceEntry(kind=kind, subject="s", actor="a", recorded_at_ms=number * 1000)
        for number, kind in enumerate(kinds, 1)
    ]
    ledger.links = list(audit.chained(entries))
    return ledger


@pytest.mark.parametrize(
    ("kinds", "until_ms", "number"),
    [
        ((), None, None),
        (("promotion",), None, 1),
        (("promotion", "release", "release"), None, 1),
        (("promotion", "release", "switch"), None, 3),
        (("release",), None, None),
        (("promotion", "switch", "force"), 3000, 2),
        (("promotion", *["release"] * 2500), None, 1),
    ],
)
def test_what_counts_of_the_chain(kinds: tuple[str, ...], until_ms: int | None, number: int | None) -> None:
    """The last entry that is not about releases: recording one must not change the next."""
    link = last_link(_chain(*kinds), TimeBounds(until_ms=until_ms))  # type: ignore[arg-type]
    assert (link.number if link else None) == number


def test_archives_of_equal_files_are_equal(tmp_path: Path) -> None:
    """Neither order nor times nor modes of the files show in the archive."""
    made = []
    for turn, order in enumerate(("ab", "ba")):
        members = {}
        for name in order:
            path = tmp_path / f"{turn}{name}"
            path.write_bytes(name.encode() * 1000)
            path.chmod(0o600 + turn * 0o44)
            os.utime(path, (turn * 1000, turn * 1000))
            members[f"in/{name}"] = str(path)
        release_folder.write_zip(str(tmp_path / f"{turn}.zip"), members)
        made.append((tmp_path / f"{turn}.zip").read_bytes())
    assert made[0] == made[1]
    with zipfile.ZipFile(tmp_path / "0.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["SHA256SUMS", "in/a", "in/b"]
        lines = archive.read("SHA256SUMS").decode().splitlines()
    assert [line.split("  ")[1] for line in lines] == ["in/a", "in/b"]


def test_a_folder_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """The second caller is told, and nothing of the first is touched."""
    made, target = tmp_path / "made", tmp_path / "target"
    for one in (made, target):
        one.mkdir()
        (one / "file").write_text(one.name)
    assert not release_folder.show(str(made), str(target))
    assert (target / "file").read_text() == "target"


def test_a_failed_exchange_puts_the_old_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replacement that can't be shown leaves what was there."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").write_text("old")

    def fails(made: str, target: str) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(release_folder, "show", fails)
    with pytest.raises(OSError, match="No space"):
        release_folder.exchange(str(tmp_path / "made"), str(target), str(tmp_path / "aside"))
    assert (target / "file").read_text() == "old"


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path) -> None:
    """A hidden folder of yesterday is removed with the next release; one of an hour ago may be at work."""

    def begun(at_ms: int) -> str:
        digits = f"{at_ms:012x}"
        return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"

    now_ms = 1_767_225_600_000
    old, young = tmp_path / f".v1.{begun(now_ms - 90_000_000)}", tmp_path / f".v1.{begun(now_ms - 3_600_000)}"
    for one in (old, young, tmp_path / "v0", tmp_path / ".git"):
        one.mkdir()
    with release_folder.workplace(str(tmp_path), "v1", begun(now_ms)) as work:
        assert os.path.isdir(work)
    assert sorted(os.listdir(tmp_path)) == sorted([young.name, ".git", "v0"])
