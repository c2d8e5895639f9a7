"""`kfm backup`, `kfm restore`, `kfm store copy`: a project moves, and its readers do not notice."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from kfm.cli.command_line import kfm as entry
from kfm.db.queries import applied, migrate, migration_files
from kfm.db.sqlite import SqliteDatabase
from kfm.system import SystemClock
from tests import services
from tests.acceptance.cli.conftest import Called

pytestmark = pytest.mark.req("GRO-4")

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]


@pytest.fixture
def published(kfm: Kfm, project: Path) -> Path:
    """A project with one version."""
    (project / "incoming" / "a.csv").write_text("gauge,level\na,1\n")
    assert kfm("run", "--source", "daily").code == 0
    assert kfm("audit", "anchor").code == 0
    return project


def change(kfm: Kfm, project: Path, number: int) -> None:
    (project / "incoming" / "a.csv").write_text(f"gauge,level\na,{number}\n")
    called = kfm("run", "--source", "daily")
    assert called.code == 0, called.err


def shown(project: Path) -> str:
    return os.readlink(project / "published" / "levels" / "current").rpartition("/")[2][:8]


def set_store(project: Path, line: str) -> None:
    text = (project / "kfm.yml").read_text()
    (project / "kfm.yml").write_text(f"{line}\n{text}")


def test_a_project_moves_to_postgresql_and_goes_on(
    kfm: Kfm, published: Path, valid: Valid, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned, copied, refused at the old place, and the next version has the next number at the same
    target; no message holds the password."""
    monkeypatch.setenv("NEW_STORE", postgres_database)
    password = postgres_database.split(":")[2].split("@")[0]
    planned = kfm("store", "copy", "--to", "env:NEW_STORE", "--dry-run", "--json")
    valid("store-copy", planned.document)
    assert not planned.document["resumes"]
    moved = kfm("store", "copy", "--to", "env:NEW_STORE", "--rationale", "a second machine", "--json")
    assert moved.code == 0, moved.err
    valid("store-copy", moved.document)
    old = kfm("run", "--source", "daily")
    assert old.code == 4
    assert "KFM412" in old.err
    assert "postgresql://127.0.0.1" in old.err
    set_store(published, "store: env:NEW_STORE")
    change(kfm, published, 2)
    assert shown(published) == "00000002"
    assert kfm("audit", "verify").code == 0
    listed = kfm("audit", "list", "--json")
    assert "a second machine" in listed.out
    everything = planned.out + moved.out + moved.err + old.err + listed.out
    assert password not in everything
    assert password.encode() not in (published / ".kfm" / "kfm.db").read_bytes()


def test_the_way_out_of_a_move_is_named(kfm: Kfm, published: Path) -> None:
    """A file that is no database is refused without a trace; an address that lacks is named with its whole
    command; what has moved says where to, and gives no advice that ends where it began."""
    before = sorted(os.listdir(published))
    refused = kfm("store", "copy", "--to", "sqlite:kfm.yml")
    assert (refused.code, "is no SQLite database" in refused.err) == (2, True)
    assert "not there yet" in refused.err
    assert sorted(os.listdir(published)) == before
    assert kfm("store", "copy", "--to", "sqlite:new.db").code == 0
    for again in (["--to", "sqlite:new.db", "--abandon"], ["--to", "sqlite:new.db"]):
        moved = kfm("store", "copy", *again)
        assert (moved.code, "KFM412" in moved.err) == (4, True)
        assert f"has moved to sqlite:{published / 'new.db'}" in moved.err
        assert "--abandon" not in moved.err


def test_a_dry_run_leaves_no_trace(kfm: Kfm, published: Path) -> None:
    """Neither a file at the other place nor a copy that is under way."""
    assert kfm("store", "copy", "--to", "sqlite:other/kfm.db", "--dry-run").code == 0
    assert not (published / "other").exists()
    assert "under way" in kfm("store", "copy", "--to", "sqlite:other/kfm.db", "--abandon").err


def test_a_dry_run_leaves_an_older_ledger_as_it_is(kfm: Kfm, project: Path) -> None:
    """It is not brought up to date: that is said, with who does it."""
    path = project / ".kfm" / "kfm.db"
    path.parent.mkdir(exist_ok=True)
    database = SqliteDatabase(str(path), SystemClock())
    migrate(database, "sqlite", 0, [one for one in migration_files() if one[0] < 39])
    database.close()
    looked = kfm("store", "copy", "--to", "sqlite:other.db", "--dry-run")
    assert looked.code == 2
    assert "older kfm" in looked.err
    database = SqliteDatabase(str(path), SystemClock())
    assert max(applied(database.session)) == 38
    database.close()


def test_a_backup_is_restored_where_nothing_is_left(kfm: Kfm, published: Path, valid: Valid) -> None:
    """Ledger, objects and anchors; a second backup copies only what is new; the next version goes on; what
    was done after the backup shows in the targets that are ahead, with the way out."""
    made = kfm("backup", "safe", "--json")
    assert made.code == 0, made.err
    valid("backup", made.document)
    change(kfm, published, 2)
    again = kfm("backup", "safe", "--json").document
    assert (again["there"], again["copied"]) == (made.document["objects"], again["objects"] - again["there"])
    change(kfm, published, 3)
    refused = kfm("restore", "safe")
    assert refused.code == 2
    assert "never replaces" in refused.err
    (published / ".kfm").rename(published / "lost")
    (published / "audit-anchors.jsonl").rename(published / "lost" / "audit-anchors.jsonl")
    looked = kfm("restore", "safe", "--dry-run", "--json")
    valid("restore", looked.document)
    assert not (published / ".kfm").exists()
    restored = kfm("restore", "safe", "--rationale", "the disk died", "--json")
    assert restored.code == 0, restored.err
    valid("restore", restored.document)
    assert restored.document["backup_id"] == again["backup_id"]
    assert restored.document["anchors"] == "restored"
    assert restored.document["ahead"] == [
        {"target": "local", "dataset_id": "levels", "shows": 3, "ledger_at": 2, "withdrawn": []}
    ]
    assert "kfm project" in restored.err
    assert kfm("audit", "verify").code == 0
    assert "the disk died" in kfm("audit", "list", "--json").out
    (published / "published" / "levels" / "current").unlink()
    assert kfm("project").code == 0
    assert shown(published) == "00000002"


def test_what_was_withdrawn_after_the_backup_is_named(kfm: Kfm, published: Path, valid: Valid) -> None:
    """The target knows of it and the restored ledger does not: said before anything is published again; and
    the way out of the page leads to a target without it."""
    assert kfm("backup", "safe").code == 0
    change(kfm, published, 2)
    why = ("--yes", "--rationale", "consent was withdrawn")
    assert kfm("withdraw", "levels", "--purge", *why).code == 0
    for name in (".kfm", "audit-anchors.jsonl"):
        (published / name).rename(published / f"lost-{name}")
    restored = kfm("restore", "safe", "--json")
    valid("restore", restored.document)
    (ahead,) = restored.document["ahead"]
    assert [one["reason"] for one in ahead["withdrawn"]] == ["consent was withdrawn"]
    assert "first withdraw again" in restored.err
    again = kfm("withdraw", "levels", "--purge", *why)
    assert "KFM406" in again.out + again.err, "the target is ahead still"
    (published / "published" / "levels" / "current").unlink()
    assert kfm("project").code == 0
    shows = published / "published" / "levels" / "current"
    assert (shows / "withdrawn.json").exists()
    assert not list(shows.rglob("a.csv"))


def test_a_restore_says_which_targets_show_less(kfm: Kfm, published: Path) -> None:
    """Where they are to be made again, what to do next is said; where they show the head, or do not take the
    dataset, nothing is."""
    with (published / "kfm.yml").open("a") as file:
        file.write("  - {kind: local, name: other, path: other, care: [restricted]}\n")
    assert kfm("backup", "safe").code == 0
    shutil.rmtree(published / ".kfm")
    assert "kfm project" not in kfm("restore", "safe").err
    shutil.rmtree(published / ".kfm")
    (published / "published").rename(published / "lost")
    assert "next: `kfm project`; local shows less" in kfm("restore", "safe").err
    assert kfm("project").code == 0
    assert shown(published) == "00000001"


@pytest.mark.parametrize(
    "place", [".kfm", ".kfm/safe", ".kfm/objects", "published/safe", "published/levels/safe", "link/safe"]
)
def test_a_place_that_goes_with_the_state_or_is_published_is_refused(
    kfm: Kfm, published: Path, place: str
) -> None:
    """Also behind a link: a backup is lost with the state there, or read by those whom data was kept from."""
    (published / "link").symlink_to(published / "published")
    before = sorted((published / "published").rglob("*"))
    refused = kfm("backup", place)
    assert refused.code == 2
    assert "Name a place apart from it" in refused.err
    assert sorted((published / "published").rglob("*")) == before
    assert not (published / place / "backups").exists()


@pytest.mark.parametrize("place", ["s3://bucket/store/safe", "s3://bucket/readers", "s3://bucket"])
def test_a_part_of_a_bucket_that_is_in_use_is_refused(kfm: Kfm, published: Path, place: str) -> None:
    """The object store itself, a place whose objects would be the store's own, and one that readers see."""
    objects = "objects" if place == "s3://bucket" else "store"
    text = (published / "kfm.yml").read_text()
    (published / "kfm.yml").write_text(
        f"objects: s3://bucket/{objects}\n{text}  - {{kind: s3, url: 's3://bucket/readers'}}\n"
    )
    refused = kfm("backup", place)
    assert "Name a place apart from it" in refused.err
    assert refused.code == 2


@pytest.mark.parametrize(
    "place", ["file:///tmp/x", "postgresql://ada:secret@db/kfm", "s3:/typo/x", "s3://", "sqlite:x.db"]
)
def test_what_is_neither_a_folder_nor_a_bucket_is_refused(kfm: Kfm, published: Path, place: str) -> None:
    """By each command that takes a place, with what it takes; nothing is made."""
    before = sorted(published.iterdir())
    for command in (("backup", place), ("restore", place), ("store", "copy", "--objects", "--to", place)):
        refused = kfm(*command)
        assert refused.code == 2
        assert "neither a folder nor a bucket" in refused.err
        assert "s3://NAME/PREFIX" in refused.err
        assert "secret" not in refused.err
    assert sorted(published.iterdir()) == before


def test_who_stops_one_is_not_told_of_a_run(
    kfm: Kfm, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command that copies, interrupted: exit status 130, and what was stopped is the command."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kfm.storage.backup.copy_objects", stop)
    monkeypatch.setattr("kfm.storage.objects_copy.copy_objects", stop)
    monkeypatch.setattr("kfm.storage.ledger_copy.copy_tables", stop)
    commands = (
        ("backup", str(published / "safe")),
        ("store", "copy", "--to", "sqlite:new.db"),
        ("store", "copy", "--objects", "--to", "new"),
    )
    for command in commands:
        stopped = kfm(*command)
        assert stopped.code == 130
        assert "error KFM930: The command was cancelled." in stopped.err


def test_a_backup_is_for_its_owner_alone(kfm: Kfm, published: Path) -> None:
    """Folders and files, as the state folder: what readers may not see is in it."""
    assert kfm("backup", "safe/of/kfm").code == 0
    for path in (published / "safe", *(published / "safe").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_half_a_backup_is_refused(kfm: Kfm, published: Path, how: str) -> None:
    """Each kind of file, missing or with one byte changed: nothing is restored."""
    backup = published / "safe" / "backups" / kfm("backup", "safe", "--json").document["backup_id"]
    shutil.move(published / ".kfm", published / "lost")
    (published / "audit-anchors.jsonl").unlink()
    one_object = next((published / "safe" / "objects" / "sha256").glob("*/*"))
    for file in (*sorted(backup.iterdir()), one_object):
        whole = file.read_bytes()
        file.unlink()
        if how == "changed":
            data = bytearray(whole)
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        refused = kfm("restore", "safe")
        assert refused.code != 0, file
        assert "error" in refused.err
        assert not (published / ".kfm" / "kfm.db").exists(), file
        file.write_bytes(whole)
    assert kfm("restore", "safe").code == 0


@pytest.mark.parametrize("name", ["objects.txt", "anchors.jsonl"])
def test_a_list_that_lost_a_line_is_refused(kfm: Kfm, published: Path, name: str) -> None:
    """A shorter list of objects or anchors reads well and restores less: only its hash tells."""
    backup = published / "safe" / "backups" / kfm("backup", "safe", "--json").document["backup_id"]
    shutil.move(published / ".kfm", published / "lost")
    (published / "audit-anchors.jsonl").unlink()
    file = backup / name
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))
    refused = kfm("restore", "safe")
    assert refused.code != 0
    assert f"{name} of the backup is not as it was written" in refused.err
    assert not (published / ".kfm" / "kfm.db").exists()


def test_without_its_manifest_there_is_no_backup(kfm: Kfm, published: Path) -> None:
    """A backup that was interrupted is none: the one before it is the newest."""
    first = kfm("backup", "safe", "--json").document["backup_id"]
    second = kfm("backup", "safe", "--json").document["backup_id"]
    (published / "safe" / "backups" / second / "manifest.json").unlink()
    shutil.move(published / ".kfm", published / "lost")
    assert kfm("restore", "safe", "--dry-run", "--json").document["backup_id"] == first
    assert kfm("restore", "safe", "--backup", second).code == 2


def test_objects_and_backups_go_to_a_bucket_and_back(
    kfm: Kfm, published: Path, valid: Valid, s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hash, verified; the second time nothing is copied; the project goes on with the bucket, and a backup
    in it is restored."""
    monkeypatch.setenv("S3_SECRET", services.S3_SECRET_KEY)
    given = {
        "endpoint": s3_endpoint,
        "region": services.S3_REGION,
        "access_key_id": services.S3_ACCESS_KEY,
        "secret_access_key": "env:S3_SECRET",
    }
    options = [text for name, value in given.items() for text in ("--option", f"{name}={value}")]
    copied = kfm("store", "copy", "--objects", "--to", f"s3://{s3_bucket}/objects", *options, "--json")
    assert copied.code == 0, copied.err
    valid("store-copy", copied.document)
    assert copied.document["copied"] > 0
    again = kfm("store", "copy", "--objects", "--to", f"s3://{s3_bucket}/objects", *options, "--json")
    assert (again.document["copied"], again.document["there"]) == (0, copied.document["copied"])
    assert kfm("backup", f"s3://{s3_bucket}/safe", *options).code == 0
    shutil.rmtree(published / ".kfm")
    (published / "audit-anchors.jsonl").unlink()
    lines = "\n".join(f"  {name}: {value}" for name, value in given.items())
    set_store(published, f"objects: s3://{s3_bucket}/objects\nobjects_options:\n{lines}")
    restored = kfm("restore", f"s3://{s3_bucket}/safe", *options, "--json")
    assert restored.code == 0, restored.err
    assert restored.document["copied"] == 0  # they are in the bucket already
    change(kfm, published, 2)
    assert shown(published) == "00000002"


def test_objects_need_no_fence(
    kfm: Kfm, published: Path, s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stages into the old store after the last copy loses nothing: what the new store lacks is
    found by name, the old store has it still, and the same copy brings it."""
    monkeypatch.setenv("S3_SECRET", services.S3_SECRET_KEY)
    given = {
        "endpoint": s3_endpoint,
        "region": services.S3_REGION,
        "access_key_id": services.S3_ACCESS_KEY,
        "secret_access_key": "env:S3_SECRET",
    }
    options = [text for name, value in given.items() for text in ("--option", f"{name}={value}")]
    copy = ("store", "copy", "--objects", "--to", f"s3://{s3_bucket}/objects", *options, "--json")
    assert kfm(*copy).document["copied"] > 0
    change(kfm, published, 2)  # by a machine that has not seen the new setting
    old = (published / "kfm.yml").read_text()
    lines = "\n".join(f"  {name}: {value}" for name, value in given.items())
    set_store(published, f"objects: s3://{s3_bucket}/objects\nobjects_options:\n{lines}")
    lacking = kfm("doctor", "--deep")
    assert lacking.code != 0
    assert "is not in the object store" in lacking.out + lacking.err
    new = (published / "kfm.yml").read_text()
    (published / "kfm.yml").write_text(old)
    assert kfm(*copy).document["copied"] == 1
    (published / "kfm.yml").write_text(new)
    assert kfm("doctor", "--deep").code == 0
    change(kfm, published, 3)


def test_every_command_of_the_page_is_understood() -> None:
    """Each line of the how-to has the words and options that the command takes."""
    page = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "back-up-and-move.md"
    lines = [line.strip()[6:] for line in page.read_text().splitlines() if line.strip().startswith("$ kfm ")]
    assert len(lines) == 11
    for line in lines:
        at: Any = click.Context(entry)
        found, words = entry, shlex.split(line, comments=True)
        while isinstance(found, click.Group):
            name, found, words = found.resolve_command(at, words)  # type: ignore[assignment]
            at = click.Context(found, parent=at, info_name=name)
        found.make_context(name, words, parent=at)
