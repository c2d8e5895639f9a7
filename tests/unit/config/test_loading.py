"""Where settings come from, and what is remembered about it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kfm.config import loader
from kfm.config.loader import load, resolve_secret
from kfm.config.origins import public_document
from kfm.model.errors import ConfigError, ConfigNotFound, SecretNotFound, UsageError
from tests.unit.config.nonsense import GOOD


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kfm.yml").write_text(GOOD)
    return tmp_path


@pytest.mark.req("UPD-1")
def test_json_and_yaml_mean_the_same(project: Path) -> None:
    """The same configuration in either format gives equal settings."""
    import msgspec

    settings = load(environ={}).settings
    (project / "same.json").write_bytes(msgspec.json.encode(settings))
    assert load("same.json", environ={}).settings == settings


@pytest.mark.req("CLI-1")
def test_flag_beats_environment_beats_file(project: Path) -> None:
    """Each value says where it came from."""
    (project / "kfm.yml").write_text("environment: file\nlease: {seconds: 10}\n" + GOOD)
    environ = {"KFM_ENV": "shell", "KFM_LEASE_SECONDS": "20", "KFM_LIMITS_VERSIONS_KEPT": "3"}
    loaded = load(overrides={"lease.seconds": "30"}, environ=environ)
    assert loaded.settings.environment == "shell"
    assert loaded.settings.lease.seconds == 30
    assert loaded.settings.limits.versions_kept == 3
    origins = loaded.origins
    assert origins["environment"] == "environment KFM_ENV"
    assert origins["lease.seconds"] == "flag --set lease.seconds"
    assert origins["limits.versions_kept"] == "environment KFM_LIMITS_VERSIONS_KEPT"
    assert origins["sources[0].folder"] == "kfm.yml:8"
    assert origins["limits.run_bytes_max"] == "default"


def test_every_origin_belongs_to_a_shown_field(project: Path) -> None:
    """`config show --origin` leaves no value unexplained."""
    loaded = load(environ={})
    from kfm.config.origins import leaves

    assert [field for field, _ in leaves(loaded.settings)] == list(loaded.origins)


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        (
            "KFM_LEASE_SECONDS",
            "soon",
            "environment KFM_LEASE_SECONDS: `seconds` must be a number, not `soon`",
        ),
        ("KFM_LEASE_SECONDS", "0", "environment KFM_LEASE_SECONDS: `seconds` must be from 1 to 86400"),
        ("KFM_LIMITS_VERSIONS_KEPT", "1.5", "`versions_kept` must be a whole number, not `1.5`"),
        ("KFM_ENV", "my laptop", "environment KFM_ENV: the environment `my laptop` has characters"),
    ],
)
def test_a_wrong_variable_is_named(project: Path, variable: str, value: str, sentence: str) -> None:
    """A value from the environment is checked as one from the file is."""
    with pytest.raises(ConfigError) as caught:
        load(environ={variable: value})
    assert sentence in caught.value.message


def test_only_some_settings_can_come_from_outside(project: Path) -> None:
    """A flag for anything else is refused, with the nearest that would be right."""
    with pytest.raises(
        UsageError, match=r"`lease.second` can't be set from outside the file; did you mean `lease.seconds`"
    ):
        load(overrides={"lease.second": "1"}, environ={})


def test_the_file_is_looked_for_here_only(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No walk upwards: a configuration of a folder above is not taken by surprise."""
    inner = project / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    with pytest.raises(ConfigNotFound):
        load(environ={})
    assert load("../kfm.yml", environ={}).folder == str(project)
    assert load(environ={"KFM_CONFIG": "../kfm.yml"}).path == str(project / "kfm.yml")


def test_two_files_are_one_too_many(project: Path) -> None:
    """Which of two was meant is not guessed."""
    (project / "kfm.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"There are two: kfm\.yml and kfm\.json"):
        load(environ={})


@pytest.mark.parametrize("name", ["none.yml", ".", "kfm.yml/x"])
def test_a_file_that_is_not_there(project: Path, name: str) -> None:
    """A missing file is its own error, with the way to make one."""
    with pytest.raises(ConfigNotFound) as caught:
        load(name, environ={})
    assert "kfm init" in caught.value.way_out


def test_too_large_a_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the limit is not read into memory."""
    monkeypatch.setattr(loader, "CONFIG_BYTES_MAX", 10)
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        load(environ={})


def test_paths_are_seen_from_the_file_or_from_here(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file says is beside the file; what the environment says is beside us."""
    inner = project / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert load("../kfm.yml", environ={}).resolve(".kfm") == f"{project}/.kfm"
    assert load("../kfm.yml", environ={"KFM_STATE": "here"}).settings.state == f"{inner}/here"


# --- the cache -----------------------------------------------------------------------


def _cached(project: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(project / "cache")}


def test_an_unchanged_file_is_not_parsed_again(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second load gives equal settings and origins without the parser."""
    first = load(environ=_cached(project))
    monkeypatch.setattr("kfm.config.document.read_document", None)
    second = load(environ=_cached(project))
    assert second.settings == first.settings
    assert second.origins == first.origins
    folder = project / "cache" / "kfm"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [entry.stat().st_mode & 0o777 for entry in folder.iterdir()] == [0o600]


def test_a_changed_file_is_parsed_again(project: Path) -> None:
    """Same size, same time, other bytes: the cache is not fooled."""
    before = load(environ=_cached(project))
    facts = (project / "kfm.yml").stat()
    (project / "kfm.yml").write_text(GOOD.replace("daily", "dairy"))
    os.utime(project / "kfm.yml", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert before.settings.sources[0].id == "daily"
    assert load(environ=_cached(project)).settings.sources[0].id == "dairy"
    assert len(list((project / "cache" / "kfm").iterdir())) == 1


@pytest.mark.parametrize("damage", ["garbage", "truncated", "link", "writable by others", "other release"])
def test_a_cache_that_is_not_ours_is_ignored(project: Path, damage: str) -> None:
    """Whatever stands in the cache, the file decides."""
    load(environ=_cached(project))
    (entry,) = (project / "cache" / "kfm").iterdir()
    lying = entry.read_bytes().replace(b'"incoming"', b'"elsewhere"')
    assert lying != entry.read_bytes()
    if damage == "garbage":
        entry.write_bytes(b"\0" * 100)
    elif damage == "truncated":
        entry.write_bytes(lying[:-20])
    elif damage == "link":
        entry.rename(project / "moved")
        (project / "moved").write_bytes(lying)
        entry.symlink_to(project / "moved")
    elif damage == "writable by others":
        entry.write_bytes(lying)
        entry.chmod(0o666)
    else:
        entry.write_bytes(lying.replace(b'"kfm_version":"', b'"kfm_version":"9'))
    assert load(environ=_cached(project)).settings.sources[0].folder == "incoming"


def test_no_cache_is_no_failure(project: Path) -> None:
    """A cache folder that can't be made is done without."""
    (project / "cache").write_text("a file")
    assert load(environ=_cached(project)).settings.sources


# --- secrets -------------------------------------------------------------------------


@pytest.mark.req("CLI-2")
def test_secrets_come_from_environment_or_file(project: Path) -> None:
    """A reference is resolved when it is used; other text is itself."""
    (project / "secret").write_text("s3cr3t\n")
    assert resolve_secret("env:NAME", environ={"NAME": "s3cr3t"}) == "s3cr3t"
    assert resolve_secret("file:secret", str(project)) == "s3cr3t"
    assert resolve_secret("text/csv") == "text/csv"
    assert resolve_secret("file:///data") == "file:///data"


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("env:NONE", "The environment variable NONE is not set."),
        ("file:none", "The file none can't be read: no such file or directory."),
        ("file:blank", "The file blank is empty."),
        ("file:binary", "The file binary is not UTF-8 text."),
        ("file:huge", "The file huge is too large to be a secret."),
    ],
)
def test_a_secret_that_is_not_there(project: Path, reference: str, sentence: str) -> None:
    """The error names the reference, never a value."""
    (project / "blank").write_text("\n")
    (project / "binary").write_bytes(b"\xff")
    (project / "huge").write_bytes(b"x" * 70_000)
    with pytest.raises(SecretNotFound) as caught:
        resolve_secret(reference, str(project), {})
    assert caught.value.detail == sentence


@pytest.mark.req("CLI-2")
def test_an_address_with_a_password_stays_in_the_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KFM_STORE may hold a password: settings hold the reference, and nothing prints the value."""
    environ = {"KFM_STORE": "postgresql://me:s3cr3t@host/db"}
    loaded = load(environ=environ)
    assert loaded.settings.store == "env:KFM_STORE"
    monkeypatch.setenv("KFM_STORE", environ["KFM_STORE"])
    assert loaded.store == environ["KFM_STORE"]
    assert "s3cr3t" not in repr(public_document(loaded.settings))
    assert "s3cr3t" not in repr(loaded.settings)


def test_an_address_without_a_password_is_plain(project: Path) -> None:
    """Nothing to hide, nothing hidden; a path is seen from here."""
    assert load(environ={"KFM_STORE": "postgresql://host/db"}).settings.store == "postgresql://host/db"
    assert load(environ={"KFM_STORE": "sqlite:x.db"}).settings.store == f"sqlite:{project}/x.db"
    assert load(environ={}).store is None


# --- what else the environment tells -------------------------------------------------


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize(
    ("choice", "is_tty", "environ", "wanted"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", False, {"FORCE_COLOR": "0"}, False),
        ("auto", True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour(choice: str, is_tty: bool, environ: dict[str, str], wanted: bool) -> None:
    """The flag beats NO_COLOR, which beats FORCE_COLOR, which beats the terminal."""
    assert loader.wants_colour(choice, is_tty, environ) is wanted


@pytest.mark.req("GOV-3")
def test_the_actor_is_the_account_not_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment variable changes who asked."""
    truth = loader.actor()
    for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.setenv(name, "another-account")
    assert loader.actor() == truth != "another-account"


def test_misspelt_variables_are_found() -> None:
    """A variable that begins with KFM_ and means nothing is reported."""
    assert loader.unknown_variables({"KFM_STROE": "x", "KFM_STORE": "y", "HOME": "/"}) == ["KFM_STROE"]


@pytest.mark.req("CLI-1")
def test_an_error_has_its_file_and_line_as_fields() -> None:
    """A program reads where the mistake is from fields; the first of several is named."""
    from kfm.config.document import gathered, read_document

    with pytest.raises(ConfigError) as raised:
        read_document("kfm.yml", b"version: 1\nversion: 2\n")
    assert (raised.value.file, raised.value.line) == ("kfm.yml", 2)
    assert raised.value.as_document()["line"] == 2
    both = gathered([ConfigError.at("a.yml", 3, "no"), ConfigError.at("a.yml", 9, "neither")])
    assert (both.file, both.line) == ("a.yml", 3)
    assert "line" not in ConfigError("There are two.").as_document()


def test_an_error_about_a_whole_file_names_it_in_a_field() -> None:
    """A file that is empty has no line to name; its name is a field all the same."""
    from kfm.config.document import read_document

    with pytest.raises(ConfigError) as raised:
        read_document("kfm.yml", b"  \n")
    document = raised.value.as_document()
    assert (document["file"], "line" in document) == ("kfm.yml", False)


def test_current_settings_are_read_again_only_where_the_file_changed(tmp_path: Path) -> None:
    """The same bytes are the same settings; other bytes are read with the flags of the first time."""
    path = tmp_path / "kfm.yml"
    path.write_text("version: 1\nenvironment: one\ndatasets: []\nsources: []\n")
    loaded = load(str(path), {"lease.seconds": "7"}, {})
    assert loaded.current() is loaded.settings
    path.write_text("version: 1\nenvironment: two\ndatasets: []\nsources: []\n")
    now = loaded.current()
    assert (now.environment, now.lease.seconds) == ("two", 7)
    assert loaded.current() is now
    assert loaded.settings.environment == "one"


def test_current_settings_of_a_broken_file_are_an_error_that_passes(tmp_path: Path) -> None:
    """A file that is being edited is no reason to give up, and none to go on with what it said before."""
    path = tmp_path / "kfm.yml"
    path.write_text("version: 1\ndatasets: []\nsources: []\n")
    loaded = load(str(path), {}, {})
    for broken in ("datasets: [", None):
        path.unlink()
        if broken is not None:
            path.write_text(broken)
        with pytest.raises(ConfigError) as raised:
            loaded.current()
        assert raised.value.facts["transient"] is True
        path.write_text("version: 1\ndatasets: []\nsources: []\n")
        assert loaded.current() == loaded.settings


def test_configuration_from_a_pipe_is_read_once(tmp_path: Path) -> None:
    """What can't be read twice stays as it was."""
    pipe = tmp_path / "kfm.yml"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("version: 1\ndatasets: []\nsources: []\n",))
    writer.start()
    loaded = load(str(pipe), {}, {})
    writer.join(10)
    assert loaded.current() is loaded.settings


@pytest.mark.req("UPD-1")
@pytest.mark.parametrize(
    "directive", ["%YAML 1.1", "%YAML 1.3", "%TAG ! tag:example.org,2000:", "# why\n\n%WORD x"]
)
def test_a_directive_that_changes_what_words_mean_is_refused(project: Path, directive: str) -> None:
    """Under another version of YAML `yes` would be true, and was read as false without a word."""
    (project / "kfm.yml").write_text(f"{directive}\n---\n{GOOD}")
    with pytest.raises(ConfigError, match=r"kfm\.yml:[13]: not YAML: a directive other than `%YAML 1\.2`"):
        load(environ={})
    (project / "kfm.yml").write_text(f"%YAML 1.2\n---\n{GOOD}")
    assert load(environ={}).settings.datasets


@pytest.mark.req("UPD-1")
@pytest.mark.parametrize("opener", ["[", "{", "[{", "- ", "? ", "- [", "{a: "])
def test_deep_nesting_is_refused_where_it_begins(project: Path, opener: str) -> None:
    """Ten kilobytes of brackets take no longer to refuse than a slip of the pen."""
    import time

    (project / "kfm.yml").write_text("a: " * (opener[0] not in "-?") + opener * 10_000)
    began = time.process_time()
    with pytest.raises(ConfigError, match="nested more than 64 levels deep"):
        load(environ={})
    assert time.process_time() - began < 1
