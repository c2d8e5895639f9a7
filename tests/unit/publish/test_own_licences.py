"""Licences of one's own in catalogues."""

from __future__ import annotations

import msgspec
import pytest

from kfm.model.settings import Care, LicenceTerms, Rights
from kfm.publish.catalogue.dcat import license_node
from kfm.publish.catalogue.stac_collection import license_url, rights_fields, stac_license

pytestmark = pytest.mark.req("DAT-9")
CARE = Care(label="Public")
TERMS = LicenceTerms(name="Terms of the city", terms="attribution", url="https://city.example/terms")


def test_a_licence_of_ones_own_is_told_by_its_address() -> None:
    """STAC has no identifier for it, so it says `other` and links; DCAT names the address."""
    rights = Rights(license="LicenseRef-city", care=CARE, terms=TERMS)
    assert stac_license(rights) == "other"
    assert license_url(rights) == TERMS.url
    assert rights_fields(rights)["kfm:license"] == "LicenseRef-city"
    assert license_node(rights) == {"@id": TERMS.url}


def test_without_an_address_it_is_told_by_its_name() -> None:
    """A licence document with the declared name, and no link that leads nowhere."""
    terms = LicenceTerms(name="Terms of the city", terms="attribution")
    rights = Rights(license="LicenseRef-city", care=CARE, terms=terms)
    assert license_url(rights) is None
    assert license_node(rights) == {
        "@type": "dcterms:LicenseDocument",
        "dcterms:title": "Terms of the city",
    }


def test_a_listed_licence_is_written_as_before() -> None:
    """An identifier of the SPDX list stays what it is, and rights without terms have the same bytes."""
    rights = Rights(license="CC-BY-3.0-IGO", care=CARE)
    assert stac_license(rights) == "CC-BY-3.0-IGO"
    assert license_node(rights) == {"@id": "https://spdx.org/licenses/CC-BY-3.0-IGO"}
    assert b"terms" not in msgspec.json.encode(rights)
