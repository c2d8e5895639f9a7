"""The shipped Cedar policies, and what a person's own may do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.errors import PolicyError
from kfm.model.gates import ForceRequest, combine
from kfm.model.settings import Care, DatasetSettings, Rights, Sovereignty
from kfm.policy.cedar import SHIPPED, CedarPolicies, licence, statements


@pytest.fixture(scope="module")
def policies() -> CedarPolicies:
    return CedarPolicies()


def _dataset(
    level: Any = "public", license: str = "CC0-1.0", sovereignty: Sovereignty | None = None
) -> DatasetSettings:
    rights = Rights(license=license, care=Care(label="Label", level=level), sovereignty=sovereignty)
    return DatasetSettings(id="ks", domain="hydrology", rights=rights)


@pytest.mark.req("UPD-9", "RET-9")
def test_shipped_fixtures_hold_and_name_every_forbid(policies: CedarPolicies) -> None:
    """Each shipped rule is shown denying something, and every shipped example goes as it says."""
    went = policies.evaluate_fixtures(SHIPPED / "fixtures.yaml")
    assert [(result.name, result.detail) for result in went if not result.passed] == []
    shown = {name for result in went for name in result.got_by}
    # The configuration's own schema refuses an unknown consent before Cedar can.
    assert set(policies.policy_ids) - shown == {"base.permit", "sovereignty.consent-unknown"}


@pytest.mark.req("UPD-9")
def test_one_result_per_gate(policies: CedarPolicies) -> None:
    """All gates answer, in a fixed order, and only CARE and sovereignty halt."""
    council = Sovereignty(authority="Council", consent="pending")
    answers = policies.decide("publish", _dataset("restricted", "nonsense", council), "ann", {})
    assert [result.gate for result in answers] == ["care", "sovereignty", "licence", "policy"]
    assert [result.allowed for result in answers] == [False, False, False, True]
    assert [result.halts for result in answers] == [True, True, False, False]
    assert not any(result.overridable for result in answers)
    assert answers[0].policy_ids == ("care.restricted-needs-approval",)


@pytest.mark.req("UPD-10")
@settings(max_examples=50, deadline=None)
@given(
    level=st.sampled_from(["review", "restricted", "blocked"]),
    action=st.sampled_from(["run", "publish"]),
    trigger=st.sampled_from(["cron", "manual", "webhook"]),
    approvals=st.lists(st.text(max_size=5).filter(lambda name: name != "ks"), max_size=2),
)
def test_care_is_never_forced(
    policies: CedarPolicies, level: str, action: str, trigger: str, approvals: list[str]
) -> None:
    """Without an approval of this dataset or a reviewed reason, no context and no force helps."""
    context = {"trigger": trigger, "approvals": approvals}
    answers = policies.decide(action, _dataset(level), "ann", context)
    assert not combine(answers, ForceRequest(actor="ann", rationale="now", ticket="T-1")).allowed


@pytest.mark.req("UPD-9")
def test_an_own_policy_may_forbid_more() -> None:
    """An own forbid is a denial of the gate `policy`, named by its id and with its own words."""
    own = (
        '@id("team.no-cron") @message("Not by the clock.") @lift("Ask Bo") '
        'forbid (principal, action, resource) when { context.trigger == "cron" };'
    )
    policies = CedarPolicies([("own.cedar", own)])
    denied = policies.decide("run", _dataset(), "ann", {"trigger": "cron"})[3]
    assert (denied.gate, denied.allowed, denied.policy_ids) == ("policy", False, ("team.no-cron",))
    assert (denied.code, denied.cause, denied.remedy) == ("rule", "Not by the clock.", "Ask Bo.")
    assert denied.reason == "Not by the clock. Ask Bo."
    assert all(result.allowed for result in policies.decide("run", _dataset(), "ann", {"trigger": "manual"}))


@pytest.mark.req("UPD-9", "CLI-1")
def test_the_command_of_a_rule_is_for_this_work() -> None:
    """What is known by name is filled in; without names the command shows what to fill in."""
    named = {"source": "wells", "window": "2026-01-01/2026-01-02"}
    policies = CedarPolicies()
    (care, *_) = policies.decide("run", _dataset("restricted"), "ann", {"named": named})
    command = "kfm approvals request --source wells --window 2026-01-01/2026-01-02 --rationale TEXT"
    assert care.command == command
    assert f"`{command}`" in str(care.remedy)
    (care, *_) = policies.decide("run", _dataset("restricted"), "ann", {})
    assert care.command == "kfm approvals request --source ID --window W --rationale TEXT"


@pytest.mark.req("UPD-9", "RET-9")
def test_an_own_permit_weakens_nothing() -> None:
    """A permit for everything does not open what a shipped rule forbids."""
    own = '@id("team.all") permit (principal, action, resource);'
    policies = CedarPolicies([("own.cedar", own)])
    assert not policies.decide("publish", _dataset("blocked"), "ann", {})[0].allowed


@pytest.mark.req("UPD-9")
def test_a_rule_that_cannot_be_evaluated_forbids() -> None:
    """Cedar would skip a failing policy; here every gate is closed."""
    own = '@id("team.overflow") forbid (principal, action, resource) when { 9223372036854775807 + 1 > 0 };'
    policies = CedarPolicies([("own.cedar", own)])
    answers = policies.decide("run", _dataset(), "ann", {})
    assert not any(result.allowed for result in answers)


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '// why\n\n@id("a")\npermit (principal, action, resource)\nwhen {\n  true ==\n};',
            "own.cedar:7: unexpected token",
        ),
        (
            '@id("a")\nforbid (principal, action, resource)\nwhen { resource.care.lvl == "x" };',
            "own.cedar:1: a: attribute `care.lvl`",
        ),
        (
            '\n@id("a") forbid (principal, action == Action::"runn", resource);',
            "own.cedar:2: a: unrecognized action",
        ),
        (
            "forbid (principal, action, resource);",
            'own.cedar:1: the policy has no name; write @id("team.rule")',
        ),
        (
            '@id("care.blocked") permit (principal, action, resource);',
            "own.cedar:1: there is already a policy",
        ),
        ('@id("a") @gate("cair") forbid (principal, action, resource);', "did you mean 'care'?"),
        ('@id("a") @mesage("x") forbid (principal, action, resource);', "did you mean @message?"),
        ("permit (principal == ?principal, action, resource);", "own.cedar:1: templates"),
        ("garbage", "own.cedar:1: unexpected end of input"),
        ('"open', "own.cedar:1: invalid token"),
        ("\x00", "own.cedar:1:"),
    ],
)
def test_a_faulty_policy_names_file_and_line(text: str, message: str) -> None:
    """A policy that can't be used says where, why and what was probably meant."""
    with pytest.raises(PolicyError) as raised:
        CedarPolicies([("own.cedar", text)])
    assert message in raised.value.message


@pytest.mark.req("CLI-2")
@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_a_policy_or_a_clear_error(text: str) -> None:
    """Nothing that a file may hold escapes as another kind of error."""
    complaint = "own.cedar:"
    try:
        CedarPolicies([("own.cedar", text)])
    except PolicyError as error:
        complaint = error.message
    assert "own.cedar:" in complaint


def test_statements_end_at_semicolons_of_their_own() -> None:
    """A semicolon in text or in a comment ends nothing, and lines are those of the first word."""
    text = (
        '// one; two\npermit (principal, action, resource) // a;\nwhen { "x;\\";" == "y" };\n\n'
        "forbid (principal, action, resource);\n// end;"
    )
    assert [line for line, _ in statements(text)] == [2, 5]


def test_files_globs_and_folders(tmp_path: Path) -> None:
    """Own policies are found by path, by glob and by folder; a pattern without a file is an error."""
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "a.cedar").write_text(
        '@id("a") forbid (principal, action, resource) when { context.isDryRun };'
    )
    for pattern in (
        "policies/a.cedar",
        "policies/*.cedar",
        "policies",
        str(folder / "a.cedar"),
        str(folder / "*.cedar"),
    ):
        assert "a" in CedarPolicies([pattern], tmp_path).policy_ids
    with pytest.raises(PolicyError, match="no such file"):
        CedarPolicies(["policies/none.cedar"], tmp_path)
    (folder / "bad.cedar").write_bytes(b"permit\n(\xff)")
    with pytest.raises(PolicyError, match=r"bad\.cedar:2: not UTF-8"):
        CedarPolicies(["policies/bad.cedar"], tmp_path)


def test_the_bundle_id_follows_the_texts() -> None:
    """Equal texts have equal ids, wherever they lie; any change changes the id."""
    own = '@id("a") forbid (principal, action, resource) when { context.isDryRun };'
    one = CedarPolicies([("x.cedar", own)])
    assert one.bundle_id == CedarPolicies([("y.cedar", own)]).bundle_id
    assert one.bundle_id != CedarPolicies().bundle_id
    assert one.bundle_id != CedarPolicies([("x.cedar", own + " ")]).bundle_id
    assert len(one.bundle_id) == 64


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize(
    ("written", "known", "groups"),
    [
        ("cc-by-4.0", "CC-BY-4.0", ("open",)),
        ("https://creativecommons.org/licenses/by/4.0/legalcode", "CC-BY-4.0", ("open",)),
        ("US-PD", "public-domain", ("open",)),
        ("CC-BY-NC-4.0", "CC-BY-NC-4.0", ("conditional",)),
        ("proprietary", "proprietary", ()),
    ],
)
def test_licence_names(written: str, known: str, groups: tuple[str, ...]) -> None:
    """Identifiers in any case, everyday names and addresses mean the same licence."""
    found = licence(written)
    assert (found.id, found.groups) == (known, groups)


@pytest.mark.req("CLI-2")
def test_an_unknown_licence_names_the_nearest(policies: CedarPolicies) -> None:
    """A misspelt licence is refused with the right word."""
    answer = policies.decide("run", _dataset(license="CC-BY-4"), "ann", {})[2]
    assert not answer.allowed
    assert "did you mean 'CC-BY-4.0'?" in answer.reason


def test_unknown_actions_and_contexts_are_mistakes(policies: CedarPolicies) -> None:
    """A misspelt fact must not be a fact that no rule sees."""
    with pytest.raises(PolicyError, match="no action"):
        policies.decide("publsh", _dataset(), "ann", {})
    with pytest.raises(PolicyError, match="aprovals"):
        policies.decide("run", _dataset(), "ann", {"aprovals": ["ks"]})


@pytest.mark.parametrize("name", ['a"b', "a\nb", "é\u0000", "x" * 5000, "-"])
def test_names_are_data(policies: CedarPolicies, name: str) -> None:
    """No name of a person or a dataset can break out of its place."""
    dataset = DatasetSettings(id=name, domain=name, rights=_dataset("restricted").rights)
    answers = policies.decide(
        "publish", dataset, name, {"approvals": [name], "rationale": name, "ticket": name}
    )
    assert all(result.allowed for result in answers)


def test_text_that_is_not_unicode_forbids(policies: CedarPolicies) -> None:
    """Half a character in any fact closes the gates instead of breaking them."""
    half = "\ud800"
    for dataset, person, context in (
        (_dataset(), half, {}),
        (_dataset(), "ann", {"rationale": half}),
        (_dataset(), "ann", {"approvals": [half]}),
        (DatasetSettings(id=half, rights=_dataset().rights), "ann", {}),
        (_dataset(license=half), "ann", {}),
    ):
        assert not any(result.allowed for result in policies.decide("run", dataset, person, context))


def test_a_decision_is_cheap(policies: CedarPolicies) -> None:
    """A decision costs well under a millisecond, so that it can be asked twice a run."""
    dataset = _dataset()
    policies.decide("run", dataset, "ann", {})
    started = time.perf_counter()
    for _ in range(100):
        policies.decide("run", dataset, "ann", {"trigger": "cron"})
    assert (time.perf_counter() - started) / 100 < 0.005
