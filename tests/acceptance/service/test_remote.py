"""`kfm --server`: commands on a laptop, carried out by a real service."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import click
import pytest

from kfm.cli.command_line import kfm as group
from kfm.cli.remote import Server, find_server
from kfm.cli.remote_commands import REASON, REMOTE, STAYS, Remote, why_it_stays
from kfm.cli.remote_text import document_lines
from kfm.model.errors import ConfigError, UsageError
from kfm.web.api.operation_table import OPERATIONS
from kfm.web.console.actions import ACTIONS
from tests.acceptance.runs.conftest import Ended, Inside
from tests.acceptance.service.served import Served, serving
from tests.integration.service.project import make

TOKEN = "t" * 40
PEOPLE = """\
people:
  - {subject: service, roles: [operate], accounts: ["%s"]}
  - {subject: ann, roles: [read, operate, approve], tokens: ["sha256:%s"]}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("remote") / "project"
    make(folder)
    with (folder / "kfm.yml").open("a") as file:
        file.write(PEOPLE % (getpass.getuser(), sha256(TOKEN.encode()).hexdigest()))
    with serving(folder) as running:
        yield running


class Laptop:
    """A folder without a project."""

    def __init__(self, folder: Path, served: Served) -> None:
        folder.mkdir()
        self._inside, self._url = Inside(folder), served.url
        self._inside.env["KFM_TOKEN"] = TOKEN

    def kfm(self, *arguments: str, token: str = TOKEN) -> Ended:
        self._inside.env["KFM_TOKEN"] = token
        return self._inside.kfm("--server", self._url, *arguments)


@pytest.fixture
def laptop(tmp_path: Path, served: Served) -> Laptop:
    return Laptop(tmp_path / "laptop", served)


def test_an_update_is_asked_for_and_followed(laptop: Laptop, served: Served) -> None:
    """A person without the project starts an update, sees it end, and finds it in every list."""
    asked = laptop.kfm("run", "--source", "river", "--rationale", "new gauges", "--json")
    assert asked.code == 0, asked.err
    request = json.loads(asked.out)["request"]
    served.settled(request["request_id"], {"Authorization": f"Bearer {TOKEN}"})
    shown = laptop.kfm("requests", "show", request["request_id"][:13], "--json")
    ended = json.loads(shown.out)["request"]
    assert (ended["state"], ended["rationale"]) == ("done", "new gauges")
    for words in (("runs",), ("requests", "list"), ("audit", "list"), ("status",), ("coverage",)):
        text, document = laptop.kfm(*words), laptop.kfm(*words, "--json")
        assert (text.code, document.code) == (0, 0), text.err + document.err
        assert json.loads(document.out)
        assert text.out


def test_what_goes_wrong_is_the_same_error_as_here(laptop: Laptop) -> None:
    """The same codes and exit codes; the token is never shown; nothing is dropped without a word."""
    unknown = laptop.kfm("status", token="x" * 40)
    assert (unknown.code, "KFM312" in unknown.err, "x" * 40 in unknown.err) == (3, True, False)
    assert laptop.kfm("show", "nothing").code == 2
    assert laptop.kfm("switch", "set", "paused", "--all").code == 3
    assert laptop.kfm("switch", "set", "paused", "--all", "--rationale", "TEXT").code == 3
    assert laptop.kfm("run", "--rationale", "no source").code == 2
    assert (
        "--force does not work" in laptop.kfm("run", "--source", "river", "--force", "--rationale", "x").err
    )
    assert "works on the machine" in laptop.kfm("doctor").err
    assert laptop.kfm("retry", "--rationale", "which one").code == 2


def test_a_change_is_made_once_and_kept(laptop: Laptop) -> None:
    """What is changed from afar has the person's name in the audit log."""
    why = ("--rationale", "maintenance until noon")
    assert laptop.kfm("switch", "set", "paused", "--dataset", "rivers", *why).code == 0
    assert laptop.kfm("switch", "set", "running", "--dataset", "rivers", *why).code == 0
    entries = json.loads(laptop.kfm("audit", "list", "--kind", "switch", "--json").out)["entries"]
    assert [one["entry"]["actor"] if "entry" in one else one["actor"] for one in entries] == ["ann", "ann"]


@pytest.mark.parametrize(
    "wanted",
    ["ftp://example.org", "https://", "http://example.org", "https://u:p@example.org", "no-such-profile"],
)
def test_an_address_that_is_none(tmp_path: Path, wanted: str) -> None:
    """No token goes to a place that is not a service's, nor over a line that others can read."""
    with pytest.raises(UsageError):
        find_server(wanted, {"XDG_CONFIG_HOME": str(tmp_path), "KFM_TOKEN": "secret"})


def test_profiles(tmp_path: Path) -> None:
    """A name stands for an address and a token in a file; the token of the environment goes first."""
    (tmp_path / "kfm").mkdir()
    (tmp_path / "token").write_text("from a file\n")
    (tmp_path / "kfm" / "servers.toml").write_text(
        f'[prod]\nurl = "https://kfm.example.org/api/v1"\ntoken_file = "{tmp_path}/token"\n'
    )
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    found = find_server("prod", environ)
    assert found == Server("https://kfm.example.org", "from a file")
    assert "from a file" not in repr(found)
    assert find_server("prod", {**environ, "KFM_TOKEN": "own"}).token == "own"
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError):
        find_server("prod", environ)


@pytest.mark.parametrize("name", sorted(REMOTE))
def test_every_remote_command_is_an_operation(name: str) -> None:
    """Its address is one of the API, its options are those of the command, its fields those of the body."""
    command: click.Command = group
    with click.Context(group) as context:
        for word in name.split():
            assert isinstance(command, click.Group)
            found = command.get_command(context, word)
            assert found is not None
            command = found
    options = {one.name for one in command.params}
    for remote in (REMOTE[name], *REMOTE[name].instead.values()):
        _require_operation(name, remote, options)


def _require_operation(name: str, remote: Remote, options: set[str | None]) -> None:
    given = {option or "": "x" for option in options} | {"dataset": "", "everything": True, "lift": False}
    for domain in ("domain", "replays"):
        given[domain] = ""
    path = remote.path if isinstance(remote.path, str) else remote.path(given)
    known = {_shape(one.path): one for one in OPERATIONS if one.method == remote.method}
    operation = known[_shape(path.replace("/switches/all", "/switches/{scope}"))]
    assert {*remote.sends, *remote.ignores} - set(REASON) <= options
    assert {*re.findall(r"{(\w+)}", path)} <= options
    if remote.or_path:
        assert _shape(remote.or_path) in known
    fields = (
        operation.body.__struct_fields__ if operation.body else [one.name for one in operation.parameters]
    )
    if name != "coverage":  # it is two operations
        assert set(remote.sends.values()) - set(REASON) <= set(fields) | {"source"}


def test_every_other_command_says_why_not() -> None:
    """A command is carried out by a service, or there is a reason why it is not; reasons are for commands."""
    commands = set(_names(group))
    assert all(any(_begins(one, begin) for one in commands) for begin in STAYS)
    assert not set(STAYS) & set(REMOTE)
    for name in commands - set(REMOTE):
        assert any(_begins(name, begin) for begin in STAYS), name
    assert "files" in why_it_stays("pipeline run")
    assert "operation" in why_it_stays("diff")


def _begins(name: str, begin: str) -> bool:
    return name == begin or name.startswith(f"{begin} ")


def _names(parent: click.Group, path: str = "") -> Iterator[str]:
    with click.Context(parent) as context:
        for name in parent.list_commands(context):
            found = parent.get_command(context, name)
            if isinstance(found, click.Group):
                yield from _names(found, f"{path}{name} ")
            else:
                yield f"{path}{name}"


def _shape(path: str) -> str:
    return re.sub(r"{[^}]*}", "{}", path)


def test_what_a_form_prints_can_be_pasted_with_a_server() -> None:
    """Every command that the console prints beside a change has a remote form."""
    values = {name: "x" for one in ACTIONS.values() for name in one.operation.fields} | {"scope": "all"}
    for action in ACTIONS.values():
        words = action.command(values)[1:]
        assert any(" ".join(words[:length]) in REMOTE for length in (1, 2, 3)), words


def test_documents_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids are short, and no two columns have one name; tables fit a terminal, a pipe gets every column."""
    rows = [
        {
            "run_id": "989834af-379d-899f-9f67-5ed35394a9ec",
            "version": 1,
            "version_id": "sha256:aa",
            "by": None,
        }
    ]
    lines = document_lines({"runs": rows, "more": True, "next": "c"})
    assert lines[1].split() == ["RUN", "VERSION", "VERSION", "ID"]
    assert lines[2].split() == ["989834af-379d", "1", "sha256:aa"]
    assert lines[-1] == "there are more: --limit shows them"
    assert document_lines({"runs": []}) == ["no runs"]
    wide = {"rows": [{f"field{number}": "x" * 20 for number in range(12)}]}
    assert "FIELD11" in document_lines(wide)[1]
    monkeypatch.setattr("kfm.cli.output.terminal_columns", lambda: 80)
    assert max(map(len, document_lines(wide))) <= 80
    assert document_lines({"inner": wide})
    assert max(map(len, document_lines({"inner": wide}))) <= 80
