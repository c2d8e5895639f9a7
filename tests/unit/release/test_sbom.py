"""The bill of materials: what is installed of what kfm needs, in a form that others read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kfm.release.distributions import Installed, applies, here, installed, parse_requirement
from kfm.release.sbom import NO_ASSERTION, sbom

LINUX: Mapping[str, str] = {
    "python_version": "3.11",
    "python_full_version": "3.11.9",
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "implementation_name": "cpython",
    "implementation_version": "3.11.9",
    "platform_release": "6",
    "platform_version": "1",
}
MARKERS = {
    "": True,
    'python_version < "3.13"': True,
    'python_version >= "3.8"': True,  # by number: 3.11 is more than 3.8
    "python_version<'3.9'": False,
    'python_full_version == "3.11.9"': True,
    'python_full_version < "3.11.10"': True,
    'python_version == "3.*"': True,
    'python_version ~= "3.10"': True,
    'python_version ~= "4.0"': False,
    'sys_platform == "win32" or os_name == "posix"': True,
    'sys_platform == "win32" and os_name == "posix"': False,
    '(sys_platform == "win32" or os_name == "posix") and python_version > "3"': True,
    'sys_platform == "linux" or (os_name == "nt" and python_version > "3")': True,
    'platform_machine in "x86_64 arm64"': True,
    'platform_machine not in "arm64"': True,
    "'linux' in sys_platform": True,
    'extra == "aws"': False,
    "nonsense == 1": False,
    "python_version": False,
}


@pytest.mark.parametrize("marker", MARKERS)
def test_markers(marker: str) -> None:
    """A requirement counts where its marker is true here; one that can't be read does not count."""
    assert applies(marker, LINUX) is MARKERS[marker]


def test_markers_agree_with_the_reference() -> None:
    """Where `packaging` is there, it says the same of every requirement that is installed."""
    packaging = pytest.importorskip("packaging.markers")
    from importlib.metadata import distributions

    environment = here()
    seen = 0
    for dist in distributions():
        for text in dist.requires or ():
            _, _, marker = parse_requirement(text)
            if marker:
                expected = packaging.Marker(marker).evaluate({"extra": ""})
                assert applies(marker, environment) is expected, text
                seen += 1
    assert seen > 20


def test_extras() -> None:
    """An extra's requirement counts for a package that asked for the extra, however it is spelt."""
    name, extras, marker = parse_requirement("psycopg[binary, pool] >=3.2,<4 ; extra == 'Post_gres'")
    assert (name, extras) == ("psycopg", frozenset({"binary", "pool"}))
    assert applies(marker, LINUX, frozenset({"post-gres"}))
    assert not applies(marker, LINUX, frozenset({"aws"}))


def test_what_kfm_needs_is_listed() -> None:
    """kfm, its requirements and theirs; nothing that only its developers need."""
    found = {package.name: package for package in installed()}
    assert {"kfm-kernel", "kfm-lint", "apsw", "click", "httpx", "httpcore", "ruamel-yaml"} <= set(found)
    assert not {"pytest", "mypy", "ruff", "hypothesis"} & set(found)
    assert "httpcore" in found["httpx"].needs
    assert found["click"].files > 5
    assert found["click"].files_sha256
    for package in found.values():
        assert {*package.needs, *package.may_use} <= set(found)


@pytest.mark.req("REL-1")
def test_the_document_is_valid_spdx(tmp_path: Path) -> None:
    """The SPDX project's own tools find nothing to complain about."""
    pytest.importorskip("spdx_tools.spdx.parser.parse_anything")
    from spdx_tools.spdx.parser.parse_anything import parse_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    path = tmp_path / "sbom.spdx.json"
    path.write_text(json.dumps(sbom(installed(), 1_767_225_600_123, "1.2.3")))
    document = parse_file(str(path))
    assert validate_full_spdx_document(document) == []
    assert document.creation_info.created.isoformat() == "2026-01-01T00:00:00"


def _package(**changes: object) -> Installed:
    values: dict[str, object] = {
        "name": "kfm-kernel",
        "version": "1",
        "license": None,
        "expression": None,
        "summary": None,
        "files": 0,
        "files_sha256": None,
        "needs": (),
    }
    return Installed(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("license_text", "expression", "declared"),
    [
        ("MIT", "MIT", "MIT"),
        (
            "MPL-2.0 AND (Apache-2.0 OR MIT)",
            "MPL-2.0 AND (Apache-2.0 OR MIT)",
            "MPL-2.0 AND (Apache-2.0 OR MIT)",
        ),
        ("Apache License 2.0", None, "Apache-2.0"),
        ("BSD License", None, NO_ASSERTION),  # which of them?
        ("LicenseRef-Mine", "LicenseRef-Mine", NO_ASSERTION),
        (None, None, NO_ASSERTION),
    ],
)
def test_licences_are_told_as_declared(
    license_text: str | None, expression: str | None, declared: str
) -> None:
    """What can't mean one licence only is not asserted; the words are kept beside it."""
    (package,) = sbom([_package(license=license_text, expression=expression)], 0, "1")["packages"]
    assert package["licenseDeclared"] == declared
    told = package.get("licenseComments", "")
    assert (license_text or "") in told if declared == NO_ASSERTION else not told


def test_namespace_follows_from_content() -> None:
    """Other content, other name; same content, same name."""
    one, same, other = (
        sbom([_package(version=version)], 0, "1")["documentNamespace"] for version in ("1", "1", "2")
    )
    assert one == same != other


def test_no_checksum_is_claimed_for_an_archive_that_is_not_there() -> None:
    """The digest over RECORD is an annotation that says what it is."""
    (package,) = sbom([_package(files=3, files_sha256="ab" * 32)], 0, "1")["packages"]
    assert "checksums" not in package
    assert package["filesAnalyzed"] is False
    assert "3 files" in package["annotations"][0]["comment"]
