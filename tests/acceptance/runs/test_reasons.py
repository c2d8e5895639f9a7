"""What people give as reasons: kept for good, so never a secret, never a book, never for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside

HURT = """\
def publish(context):
    raise ConnectionError("https://bob:hunter-22@host.example/x?token=abcdefgh12345678 password=hunter-33")
"""
BROKEN = 'def publish(context):\n    raise ValueError("no such column")\n'
TOLD = "set password=hunter-22, as in https://bob:hunter-33@db.example/x, with AKIAIOSFODNN7EXAMPLE"
SECRETS = ("hunter-22", "hunter-33", "AKIAIOSFODNN7EXAMPLE", "abcdefgh12345678")
WINDOW = ("--source", "notes", "--window", "2026-01-01/P1D")


def with_pipeline(project: Inside, text: str) -> None:
    project.write("pipeline.py", text)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')


def nothing_of_it(project: Inside, *said: str) -> None:
    found = [*said, *(path.read_bytes().decode("latin-1") for path in files(project))]
    assert [secret for secret in SECRETS for text in found if secret in text] == []


def files(project: Inside) -> list[Path]:
    own = ("pipeline.py",)
    return [path for path in Path(project.folder).rglob("*") if path.is_file() and path.name not in own]


@pytest.mark.req("GOV-3")
def test_what_looks_like_a_secret_is_not_kept_as_a_reason(project: Inside) -> None:
    """A ledger that only grows can't give a password back: rationale, ticket and actor are masked."""
    with_pipeline(project, BROKEN)
    run = project.kfm("run", *WINDOW, "--json").result["run_id"]
    reasons = ("--rationale", TOLD, "--ticket", "token=abcdefgh12345678", "--actor", "AKIAIOSFODNN7EXAMPLE")
    said = [
        project.kfm("quarantine", "release", run, *reasons, "--json"),
        project.kfm("retry", run, *reasons, "--json"),
        project.kfm("switch", "set", "paused", "--all", *reasons, "--json"),
        project.kfm("switch", "set", "running", "--all", *reasons, "--json"),
        project.kfm("approve", "--json"),
        project.kfm("audit", "list", "--json"),
    ]
    nothing_of_it(project, *(each.out + each.err for each in said))
    assert "set password=***" in said[0].out, "the rest of the reason is there"


@pytest.mark.req("TRG-7")
def test_what_a_library_quotes_of_its_request_is_not_told(project: Inside) -> None:
    """Addresses with passwords in an exception's text reach neither the screen nor what is held."""
    with_pipeline(project, HURT)
    said = [project.kfm("run", *WINDOW, *form) for form in ((), ("--json",), ("--dry-run", "--json"))]
    assert all("ConnectionError: https://host.example/x" in each.out + each.err for each in said)
    nothing_of_it(project, *(each.out + each.err for each in said))


@pytest.mark.req("GOV-3")
def test_a_reason_has_a_limit(project: Inside) -> None:
    """Everybody who copies the ledger copies it, too: too long is refused, and nothing is written."""
    for option, chars in (("--rationale", 4001), ("--ticket", 201), ("--actor", 201)):
        ended = project.kfm("switch", "set", "paused", "--all", "--rationale", "storm", option, "x" * chars)
        assert (ended.code, f"{chars:,} characters" in ended.err) == (2, True), ended
    assert project.kfm("switch", "list", "--json").document["switches"] == []
    assert project.kfm("switch", "set", "paused", "--all", "--rationale", "x" * 4000).code == 0


@pytest.mark.req("GOV-3")
def test_only_what_can_be_approved_waits_for_an_approval(project: Inside) -> None:
    """After another failure the release that was asked for is another one: the old request is not shown."""
    with_pipeline(project, BROKEN)
    run = project.kfm("run", *WINDOW, "--json").result["run_id"]
    for _ in range(2):
        asked = project.kfm("quarantine", "release", run, "--rationale", "look " * 100, "--json")
        request_id = asked.document["request"]["request_id"]
        listed = project.kfm("approve", "--json").document["requests"]
        assert [one["request_id"] for one in listed] == [request_id]
        assert project.kfm("retry", run).code == 1
        assert project.kfm("approve").out == "nothing waits for an approval\n"


@pytest.mark.req("GOV-3")
def test_no_approval_is_asked_for_what_is_over(project: Inside) -> None:
    """A success resolves what was quarantined: the request for its release is shown, but not as open."""
    with_pipeline(project, BROKEN)
    run = project.kfm("run", *WINDOW, "--json").result["run_id"]
    project.kfm("quarantine", "release", run, "--rationale", "look again")
    shown = project.kfm("quarantine", "show", run).out
    assert "(waiting for approval: another account runs kfm approvals approve" in shown
    project.configure()
    assert project.kfm("run", *WINDOW).code == 0
    shown = project.kfm("quarantine", "show", run).out
    assert "look again (not approved before it was resolved)" in shown
    assert "kfm approvals approve" not in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("abcd", "--due"), "exclude each other"),
        (("abcd", "--list"), "exclude each other"),
        (("--watch",), "--watch goes with --due"),
        ((), "Say what to retry"),
        (("--due", "--rationale", "x", "--ticket", "T"), "--rationale, --ticket would be kept nowhere"),
        (("--list", "--actor", "x"), "--actor would be kept nowhere"),
    ],
)
def test_options_that_make_no_sense_are_refused(project: Inside, options: tuple[str, ...], said: str) -> None:
    """What would be ignored is said, not dropped."""
    ended = project.kfm("retry", *options)
    assert (ended.code, said in ended.err) == (2, True), ended
