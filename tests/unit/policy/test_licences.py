"""Licences: every one of the SPDX list, those that a configuration declares, and what is made of each."""

from __future__ import annotations

import json

import pytest

from kfm.model.settings import Care, DatasetSettings, LicenceTerms, Rights, Settings, with_declared_licences
from kfm.policy.cedar import SHIPPED, TERM_GROUPS, CedarPolicies, licence

pytestmark = pytest.mark.req("DAT-9")

REASONS = {"rationale": "agreed", "ticket": "T-1"}


@pytest.fixture(scope="module")
def policies() -> CedarPolicies:
    return CedarPolicies((), ".")


def dataset(name: str, terms: str | None = None) -> DatasetSettings:
    made = DatasetSettings(id="d", rights=Rights(license=name, care=Care(label="Public")))
    if terms is None:
        return made
    declared = {name: LicenceTerms(name="Ours", terms=terms)}  # type: ignore[arg-type]
    return with_declared_licences(Settings(datasets=(made,), licences=declared)).datasets[0]


def allowed(policies: CedarPolicies, one: DatasetSettings, **context: str) -> bool:
    return all(result.allowed for result in policies.decide("publish", one, "ann", context))


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("CC-BY-3.0-IGO", "open"),
        ("CC-BY-SA-2.1-JP", "open"),
        ("CC-BY-NC-SA-3.0-IGO", "conditional"),
        ("CC-BY-ND-2.5", "conditional"),
        ("EUPL-1.2", "open"),
        ("C-UDA-1.0", "unclassified"),
        ("cc-by-3.0-igo", "open"),
    ],
)
def test_every_licence_of_the_spdx_list_is_known(name: str, group: str) -> None:
    """Ports and versions, in any case, are in the group of their terms."""
    assert licence(name).groups == (group,)


def test_no_licence_is_in_two_groups() -> None:
    """The list has each identifier once; nothing with NC or ND is open."""
    listed = json.loads((SHIPPED / "licences.json").read_text())
    every = [name for group in ("open", "conditional", "unclassified") for name in listed[group]]
    assert len(every) == len(set(every)) > 700
    assert not [name for name in listed["open"] if "-NC" in name or "-ND" in name]
    assert "spdx.org" in listed["source"]


@pytest.mark.parametrize("terms", sorted(TERM_GROUPS))
def test_declared_terms_decide(policies: CedarPolicies, terms: str) -> None:
    """Open terms are published, conditional ones with reasons, closed ones never."""
    one = dataset("LicenseRef-city", terms)
    group = TERM_GROUPS[terms]
    assert allowed(policies, one) == (group == "open")
    assert allowed(policies, one, **REASONS) == (group != "closed")


def test_what_is_not_classified_needs_reasons(policies: CedarPolicies) -> None:
    """A listed licence that kfm does not know as open is published with a rationale and a ticket only."""
    assert not allowed(policies, dataset("C-UDA-1.0"))
    assert allowed(policies, dataset("C-UDA-1.0"), **REASONS)


@pytest.mark.parametrize(("name", "meant"), [("CC-BY-3.0-IG", "CC-BY-3.0-IGO"), ("OGL-UK-3", "OGL-UK-3.0")])
def test_a_near_miss_is_told(policies: CedarPolicies, name: str, meant: str) -> None:
    """What is almost a name of the list is refused with that name."""
    reasons = " ".join(one.reason for one in policies.decide("run", dataset(name), "ann", REASONS))
    assert f"did you mean '{meant}'?" in reasons


def test_an_undeclared_licence_is_refused(policies: CedarPolicies) -> None:
    """`LicenseRef-…` without terms says nothing about what is allowed."""
    assert not allowed(policies, dataset("LicenseRef-city"), **REASONS)
