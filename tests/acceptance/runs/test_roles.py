"""Who may do what, and what needs two: as people meet it, with real tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.crash.project import Ended, finish

ANN = "kfm-ann-3f9c1e7ab25d4806b1c7e0a9d4f2856e"
BOB = "kfm-bob-81d2f6c03e9b4a57920f4d1be86c7a35"
RESTRICTED = "{license: CC0-1.0, care: {label: Restricted, level: restricted}}"
BLOCKED = "{license: CC0-1.0, care: {label: Sacred, level: blocked}}"
SLOW = 'def publish(context):\n    raise TimeoutError("no answer")\n'
FINE = """\
def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""


def digest(token: str) -> str:
    return "sha256:" + sha256(token.encode()).hexdigest()


PEOPLE = f"""\
people:
  - {{subject: ann, roles: [operate], accounts: [ann-os], tokens: ["{digest(ANN)}"]}}
  - {{subject: bob, roles: [approve], accounts: [bob-os], tokens: ["file:bob.sha256"]}}
  - {{subject: cy, roles: [read], accounts: [cy-os]}}
  - {{subject: dee, roles: [operate, approve], accounts: [dee, dee-adm]}}
"""


class Office(Inside):
    """A project that several people use, each as himself."""

    account: Callable[[str], None]

    def as_(self, who: str, *arguments: str) -> Ended:
        """By account, or with a token in the environment."""
        self.env.pop("KFM_TOKEN", None)
        if who.startswith("kfm-"):
            self.env["KFM_TOKEN"] = who
            self.account("runner")
        else:
            self.account(who)
        return self.kfm(*arguments)


@pytest.fixture
def office(project: Inside, monkeypatch: pytest.MonkeyPatch) -> Office:
    return make_office(project, monkeypatch)


def make_office(project: Inside, monkeypatch: pytest.MonkeyPatch) -> Office:
    project.__class__ = Office
    assert isinstance(project, Office)
    project.account = lambda name: monkeypatch.setattr("kfm.config.loader.actor", lambda: name)
    project.write("bob.sha256", digest(BOB) + "\n")
    project.configure(more=PEOPLE)
    return project


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No person is at the terminal: what needs an approval is refused, and asked for with a command."""
    from kfm.cli.session import CommandSession

    monkeypatch.setattr(CommandSession, "by_person", False)


def refused(ended: Ended, code: str = "KFM312") -> None:
    assert (ended.code, ended.document["code"]) == (3, code), ended


@pytest.mark.req("GOV-3")
@pytest.mark.parametrize(
    "command",
    [
        ("run", "--source", "notes"),
        ("retry", "--due"),
        ("switch", "set", "paused", "--all", "--rationale", "storm"),
        ("breaker", "reset", "x", "--rationale", "well"),
        ("quarantine", "release", "abcd", "--rationale", "again"),
        ("request", "--source", "notes", "--rationale", "please"),
        ("project",),
        ("audit", "seal"),
        ("audit", "anchor"),
        ("release", "v1"),
        ("lineage", "deliver"),
    ],
)
def test_whatever_changes_something_needs_operate(office: Office, command: tuple[str, ...]) -> None:
    """Reading and approving are not enough; the refusal names who could, and nothing happens."""
    for who in ("cy-os", BOB, "stranger", "kfm-" + "0" * 40):
        ended = office.as_(who, *command, "--json")
        refused(ended)
        assert "ann, dee" in ended.document["remedy"]
    if office.state.exists() and command != ("audit", "anchor"):
        entries = office.governance("role-refused")
        assert [entry["actor"] for entry in entries] == ["cy", "bob", "stranger", "unknown"]
        assert {entry["subject"] for entry in entries} == {"kfm " + " ".join(word(command))}
    assert not office.published.exists()
    for table in ("runs", "switches", "approvals", "invocations"):
        if office.state.exists():
            assert office.rows(f"SELECT * FROM {table}") == []


def word(command: tuple[str, ...]) -> tuple[str, ...]:
    groups = ("switch", "breaker", "quarantine", "audit", "lineage")
    return command[:2] if command[0] in groups else command[:1]


@pytest.mark.req("GOV-3")
def test_operating_is_not_approving(office: Office) -> None:
    """An operator runs what he may, and is refused as an approver; the other way round, too."""
    assert office.as_("ann-os", "run").code == 0
    assert office.as_(ANN, "run").code == 0
    refused(office.as_(ANN, "approve", "x", "--rationale", "fine", "--json"))
    refused(office.as_("bob-os", "run", "--json"))
    assert office.rows("SELECT DISTINCT actor FROM invocations") == [("ann",)]


@pytest.mark.req("GOV-3")
def test_reading_asks_for_a_role_only_where_a_token_is_shown(office: Office) -> None:
    """A person who can read the files may look; with a token that belongs to no person not even that."""
    assert office.as_("ann-os", "run").code == 0
    for who in ("stranger", "cy-os", ANN, BOB):
        assert office.as_(who, "status").code == 0, who
        assert office.as_(who, "runs", "--json").code == 0, who
    refused(office.as_("kfm-" + "0" * 40, "status", "--json"))
    refused(office.as_("kfm-" + "0" * 40, "runs", "--json"))


@pytest.mark.req("GOV-3", "CLI-1")
@pytest.mark.parametrize(
    ("who", "subject", "known_by", "roles", "declared"),
    [
        ("ann-os", "ann", "account", ["read", "operate"], True),
        (ANN, "ann", "token", ["read", "operate"], True),
        (BOB, "bob", "token", ["read", "approve"], True),
        ("stranger", "stranger", "account", [], False),
        ("kfm-" + "0" * 40, "unknown", "token", [], False),
    ],
)
def test_whoami(
    office: Office,
    valid: Callable[[str, Any], None],
    who: str,
    subject: str,
    known_by: str,
    roles: list[str],
    declared: bool,
) -> None:
    """Identity, roles, and where they come from; never the token."""
    ended = office.as_(who, "whoami", "--json")
    valid("cli-whoami", ended.document)
    found = ended.document
    assert (found["subject"], found["known_by"], found["roles"]) == (subject, known_by, roles)
    assert (found["from"] is not None) == declared
    told = office.as_(who, "whoami")
    assert subject in told.out
    assert who not in told.out + told.err or not who.startswith("kfm-")


@pytest.mark.req("GOV-3")
def test_without_people_nothing_has_changed(project: Inside, valid: Callable[[str, Any], None]) -> None:
    """Every account may do everything; a token that happens to be set is ignored, and whoami says so."""
    project.env["KFM_TOKEN"] = ANN
    assert project.run().code == 0
    ended = project.kfm("whoami", "--json")
    valid("cli-whoami", ended.document)
    assert ended.document["roles"] == ["read", "operate", "approve"]
    assert "KFM_TOKEN" in ended.document["note"]


@pytest.mark.req("GOV-3", "CLI-2")
@pytest.mark.parametrize(
    ("person", "said"),
    [
        ("{subject: ann, roles: [operate], accounts: [x]}\n  - {subject: x, roles: [approve], accounts: [y]}",
         "one person is one entry"),
        ("{subject: ann, roles: [operate], accounts: [x]}\n  - {subject: b, roles: [read], accounts: [x]}",
         "one person is one entry"),
        (f"{{subject: ann, roles: [operate], tokens: [{ANN}]}}", "a token itself is never written here"),
        ("{subject: ann, roles: [operate]}", "no person can act as it"),
        ("{subject: ann, roles: [], accounts: [x]}", "at least one role"),
        ("{subject: kfm, roles: [read], accounts: [x]}", "what kfm calls itself"),
        ("{subject: ann, roles: [aprove], accounts: [x]}", "approve"),
    ],
)  # fmt: skip
def test_a_wrong_list_of_people_is_told(project: Inside, person: str, said: str) -> None:
    """With file and line, and without repeating a token that a person wrote there."""
    project.configure(more=f"people:\n  - {person}")
    ended = project.kfm("config", "check")
    assert ended.code == 2, ended
    assert said in ended.err
    assert "kfm.yml:" in ended.err
    assert ANN not in ended.err + ended.out


@pytest.mark.req("GOV-3", "RET-9", "UPD-9")
@pytest.mark.usefixtures("machine")
def test_restricted_data_takes_two_for_each_attempt(
    office: Office, valid: Callable[[str, Any], None]
) -> None:
    """Refused with the command that asks; asked, approved by another, made once, on record everywhere."""
    office.configure(more=PEOPLE, rights=RESTRICTED)
    first = office.as_(ANN, "run", "--window", "2026-01-01/P1D", "--json")
    refused_by_gate(first)
    (command,) = re.findall(r"`kfm (approvals request [^`]*)`", first.result["error"]["remedy"])
    words = [word if word != "TEXT" else "yearly review" for word in command.split()]
    asked = office.as_(ANN, *words, "--json")
    assert asked.code == 3, asked
    valid("cli-request", asked.document)
    request = asked.document["request"]["request_id"]
    refused_by_gate(office.as_(ANN, "run", "--window", "2026-01-01/P1D", "--json"))
    listed = office.as_("cy-os", "approve", "--json")
    valid("cli-approve-list", listed.document)
    approved = office.as_(BOB, "approve", request, "--rationale", "council agreed", "--json")
    assert approved.code == 0, approved
    valid("cli-approve", approved.document)
    assert office.as_("cy-os", "diff", "--window", "2026-01-01/P1D").code == 0
    refused_by_gate(office.as_(ANN, "run", "--window", "2026-01-02/P1D", "--json"))  # other work
    done = office.as_(ANN, "run", "--window", "2026-01-01/P1D", "--json")
    assert done.result["word"] == "published", done
    valid("cli-run", done.document)
    assert request in next(gate["reason"] for gate in done.result["gates"] if gate["gate"] == "approval")
    run = done.result["run_id"]
    explained = office.as_("cy-os", "explain", run).out
    assert "approved by bob" in explained
    assert "asked for by ann" in explained
    assert '"approval"' in office.as_("cy-os", "lineage", "show", run, "--events", "--json").out
    assert office.as_("ann-os", "project").code == 0
    refused_by_gate(office.as_(ANN, "run", "--window", "2026-01-01/P1D", "--json"))
    kinds = [("approval-requested", "ann"), ("approval", "bob"), ("approved-attempt", "ann")]
    for kind, actor in kinds:
        assert [entry["actor"] for entry in office.governance(kind)] == [actor], kind
    assert office.as_("cy-os", "audit", "verify").code == 0
    assert office.as_("cy-os", "compliance").code == 0


def refused_by_gate(ended: Ended) -> None:
    assert ended.code == 3, ended
    assert ended.result["error"]["code"] == "KFM301", ended
    assert "care.restricted-needs-approval" in str(ended.result["gates"])


@pytest.mark.req("GOV-3")
def test_an_account_and_a_token_are_one_person(office: Office) -> None:
    """A person who may do both still needs another for their own request, by account or by token."""
    office.configure(more=PEOPLE, rights=RESTRICTED)
    asked = office.as_("dee-adm", "request", "--source", "notes", "--rationale", "mine", "--json")
    request = asked.document["request"]["request_id"]
    for name in ("dee", "dee-adm"):
        own = office.as_(name, "approve", request, "--rationale", "mine", "--actor", "bob", "--json")
        refused(own, "KFM311")
    office.configure(rights=RESTRICTED)  # no person is declared any more
    for name in ("dee", "dee-adm"):
        refused(office.as_(name, "approve", request, "--rationale", "mine", "--json"), "KFM311")
    office.configure(more=PEOPLE, rights=RESTRICTED)
    assert office.as_("bob-os", "approve", request, "--rationale", "theirs").code == 0


@pytest.mark.req("RET-9", "GOV-3")
def test_restricted_data_is_not_retried_by_itself(office: Office) -> None:
    """A passing error ends the approved attempt; another attempt needs another approval."""
    office.write("pipeline.py", SLOW)
    source = 'pipeline: "pipeline.py:publish", output_version: "1"'
    office.configure(more=PEOPLE, rights=RESTRICTED, extra=source)
    window = ("--source", "notes", "--window", "2026-01-01/P1D")

    def allow() -> None:
        asked = office.as_(ANN, "request", *window, "--rationale", "needed", "--json")
        request = asked.document["request"]["request_id"]
        assert office.as_(BOB, "approve", request, "--rationale", "fine").code == 0

    allow()
    failed = office.as_(ANN, "run", *window, "--json")
    assert failed.code == 1, failed
    assert failed.result["next_step"]["code"] == "request-approval"
    assert failed.result["next_step"]["command"].startswith("kfm approvals request --run ")
    assert office.rows("SELECT fate, reason FROM retry_states") == [("spent", "needs-approval")]
    office.write("pipeline.py", FINE)
    assert office.as_(ANN, "retry", "--due", "--json").document["results"] == []
    run = failed.result["run_id"]
    refused_by_gate(office.as_(ANN, "retry", run, "--json"))
    held = office.as_(ANN, "quarantine", "release", run, "--rationale", "again", "--json")
    request = held.document["request"]["request_id"]
    assert office.as_(BOB, "approve", request, "--rationale", "fine").code == 0
    assert office.as_(ANN, "retry", "--due", "--json").document["results"] == []  # a release is no approval
    allow()
    assert office.as_(ANN, "retry", run, "--json").result["word"] == "published"


@pytest.mark.req("RET-9", "GOV-3")
def test_what_no_approval_lifts_can_not_be_asked_for(office: Office) -> None:
    """Blocked data and withdrawn consent: no request, and none that was made before is approved."""
    office.configure(more=PEOPLE, rights=RESTRICTED)
    asked = office.as_(ANN, "request", "--source", "notes", "--rationale", "needed", "--json")
    request = asked.document["request"]["request_id"]
    withdrawn = (
        "{license: CC0-1.0, care: {label: R, level: restricted}, "
        "sovereignty: {authority: Council, consent: withdrawn}}"
    )
    for rights in (BLOCKED, withdrawn):
        office.configure(more=PEOPLE, rights=rights)
        refused(office.as_(ANN, "request", "--source", "notes", "--rationale", "x", "--json"), "KFM311")
        refused(office.as_(BOB, "approve", request, "--rationale", "x", "--json"), "KFM311")
    office.configure(more=PEOPLE, rights=RESTRICTED.replace("Restricted", "Changed"))
    refused(office.as_(BOB, "approve", request, "--rationale", "x", "--json"), "KFM311")


@pytest.mark.req("GOV-3", "CLI-2")
def test_a_token_is_written_nowhere(office: Office) -> None:
    """Not into an output, a log, an artifact, a database or a cache, right or wrong, in a real process."""
    wrong = "kfm-wrong-" + "5" * 40
    office.configure(more=PEOPLE, rights=RESTRICTED)
    told = ""
    for token, arguments in (
        (ANN, ("run", "--window", "2026-01-01/P1D", "--verbose", "--json")),
        (ANN, ("request", "--source", "notes", "--window", "2026-01-01/P1D", "--rationale", f"with {ANN}")),
        (BOB, ("approve", "nonsense", "--rationale", BOB)),
        (wrong, ("run", "--verbose")),
        (ANN, ("run", "--window", "2026-01-01/P1D", "--verbose", "--rationale", ANN, "--ticket", ANN)),
        (ANN, ("whoami", "--json")),
        (ANN, ("config", "show", "--origin")),
        (ANN, ("doctor",)),
    ):
        office.env["KFM_TOKEN"] = token
        ended = finish(office.start(*arguments))
        assert ended.code in (0, 1, 2, 3), ended
        told += ended.out + ended.err
    for token in (ANN, BOB, wrong):
        assert token not in told
        for path in office.folder.rglob("*"):
            if path.is_file():
                assert token.encode() not in path.read_bytes(), path


def _asked_for(office: Office) -> str:
    office.configure(more=PEOPLE, rights=RESTRICTED)
    words = (
        "approvals",
        "request",
        "--source",
        "notes",
        "--window",
        "2026-01-01/P1D",
        "--rationale",
        "please",
    )
    asked = office.as_(ANN, *words, "--json")
    assert asked.code == 3, asked
    return str(asked.document["request"]["request_id"])


@pytest.mark.req("GOV-3")
@pytest.mark.usefixtures("machine")
def test_what_was_rejected_cant_be_approved(office: Office, valid: Callable[[str, Any], None]) -> None:
    """An approver's no is durable, has a reason in the audit log, and only a new request helps."""
    request = _asked_for(office)
    no = office.as_(BOB, "approvals", "reject", request[:8], "--rationale", "not this year", "--json")
    assert no.code == 0, no
    valid("cli-request", no.document)
    told = no.document["request"]
    assert (told["state"], told["rejected_by"], told["rejection_rationale"]) == (
        "rejected",
        "bob",
        "not this year",
    )
    for word in ("approve", "reject"):
        late = office.as_(BOB, "approvals", word, request, "--rationale", "after all", "--json")
        refused(late, "KFM311")
        assert "bob has rejected it: not this year" in late.document["message"]
    refused_by_gate(office.as_(ANN, "run", "--window", "2026-01-01/P1D", "--json"))
    assert office.as_("cy-os", "approvals", "list", "--json").document["requests"] == []
    listed = office.as_("cy-os", "approvals", "list", "--state", "rejected", "--json")
    valid("cli-approve-list", listed.document)
    assert [one["request_id"] for one in listed.document["requests"]] == [request]
    shown = office.as_("cy-os", "approvals", "show", request[:6])
    assert "rejected" in shown.out
    assert "by bob: not this year" in shown.out
    entries = office.as_("cy-os", "audit", "list", "--kind", "rejection", "--json").document["entries"]
    assert [(one["actor"], one["rationale"]) for one in entries] == [("bob", "not this year")]
    again = _asked_for(office)
    assert again != request
    assert office.as_(BOB, "approvals", "approve", again, "--rationale", "now", "--json").code == 0


@pytest.mark.req("GOV-3")
def test_who_may_reject(office: Office) -> None:
    """As for an approval: the role approve, a reason, never the requester; what was approved stays so."""
    request = _asked_for(office)
    refused(office.as_("ann-os", "approvals", "reject", request, "--rationale", "x", "--json"))
    assert office.as_(BOB, "approvals", "reject", request).code == 3  # a reason is missing
    own = office.as_(
        "dee",
        "approvals",
        "request",
        "--source",
        "notes",
        "--window",
        "2026-01-02/P1D",
        "--rationale",
        "x",
        "--json",
    ).document["request"]["request_id"]
    refused(office.as_("dee-adm", "approvals", "reject", own, "--rationale", "x", "--json"), "KFM311")
    assert office.as_(BOB, "approvals", "approve", request, "--rationale", "yes").code == 0
    late = office.as_("dee", "approvals", "reject", request, "--rationale", "no", "--json")
    refused(late, "KFM311")
    assert (
        office.as_("cy-os", "approvals", "show", request, "--json").document["request"]["state"] == "approved"
    )


@pytest.mark.req("CLI-1")
def test_older_spellings_go_on_working(office: Office) -> None:
    """`kfm request`, `kfm approve` and `kfm quarantine release` do what they did, and no help shows them."""
    office.configure(more=PEOPLE, rights=RESTRICTED)
    asked = office.as_(ANN, "request", "--source", "notes", "--rationale", "please", "--json")
    assert asked.code == 3, asked
    request = asked.document["request"]["request_id"]
    old, new = office.as_("cy-os", "approve", "--json"), office.as_("cy-os", "approvals", "list", "--json")
    assert old.document == new.document
    assert office.as_(BOB, "approve", request, "--rationale", "yes").code == 0
    assert office.as_(ANN, "quarantine", "release", "abcd", "--rationale", "x").code == 2  # there is none
    shown = office.as_("cy-os", "--help").out
    assert "  approvals " in shown
    assert "  approve " not in shown
    assert "  request " not in shown
    assert "release" not in office.as_("cy-os", "quarantine", "--help").out
