"""An SPDX 2.3 document of kfm and the installed distributions that it needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from kfm.model.canonical import canonical_bytes
from kfm.model.times import rfc3339
from kfm.release.distributions import ROOT, Installed

NO_ASSERTION = "NOASSERTION"
# Words that packages declare for want of an expression, where they can mean one licence only.
KNOWN_WORDS = {
    "mit": "MIT",
    "mit license": "MIT",
    "the mit license": "MIT",
    "apache-2.0": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "isc": "ISC",
    "isc license (iscl)": "ISC",
    "mpl-2.0": "MPL-2.0",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "psf-2.0": "PSF-2.0",
    "lgpl-3.0-only": "LGPL-3.0-only",
    "unlicense": "Unlicense",
    "zlib": "Zlib",
}
_EXPRESSION = re.compile(r"[A-Za-z0-9.+()-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+()-]+)*")


def sbom(packages: Sequence[Installed], created_ms: int, tool_version: str) -> dict[str, Any]:
    """The document. Its namespace follows from its content: other content, other name."""
    created = rfc3339(created_ms // 1000 * 1000)
    tool = f"Tool: kfm-{tool_version}"
    document: dict[str, Any] = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"kfm-{tool_version}",
        "documentNamespace": "",
        "creationInfo": {"created": created, "creators": [tool]},
        "packages": [_package(package, created, tool) for package in packages],
        "relationships": _relationships(packages),
    }
    digest = sha256(canonical_bytes(document)).hexdigest()
    return {**document, "documentNamespace": f"https://spdx.org/spdxdocs/kfm-{tool_version}-{digest}"}


def _id(name: str) -> str:
    return f"SPDXRef-{re.sub('[^A-Za-z0-9.-]', '-', name)}"


def _package(package: Installed, created: str, tool: str) -> dict[str, Any]:
    declared = _declared(package)
    document = {
        "SPDXID": _id(package.name),
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": False,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": declared,
        "copyrightText": NO_ASSERTION,
        "primaryPackagePurpose": "APPLICATION" if package.name == ROOT else "LIBRARY",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:pypi/{quote(package.name)}@{quote(package.version, safe='')}",
            }
        ],
        "annotations": [
            {
                "annotationType": "OTHER",
                "annotationDate": created,
                "annotator": tool,
                "comment": _files_comment(package),
            }
        ],
    }
    if declared == NO_ASSERTION and package.license:
        document["licenseComments"] = f"Declared as: {package.license}"
    if package.summary:
        document["summary"] = package.summary
    return document


def _files_comment(package: Installed) -> str:
    """Not a package checksum: that is of an archive, which is gone after the installation."""
    if package.files_sha256 is None:
        return "Installed in place, or without a list of its files."
    return (
        f"sha256:{package.files_sha256} over the names and hashes of the {package.files} files that the "
        "installed RECORD lists."
    )


def _declared(package: Installed) -> str:
    expression = package.expression or ""
    # A LicenseRef needs its text beside it, which an installed package may not have.
    if expression and _EXPRESSION.fullmatch(expression) and "LicenseRef" not in expression:
        return expression
    return KNOWN_WORDS.get((package.license or "").strip().lower(), NO_ASSERTION)


def _relationships(packages: Sequence[Installed]) -> list[dict[str, str]]:
    relationships = [("SPDXRef-DOCUMENT", "DESCRIBES", _id(ROOT))]
    for package in packages:
        relationships += [(_id(package.name), "DEPENDS_ON", _id(needed)) for needed in package.needs]
        relationships += [
            (_id(used), "OPTIONAL_DEPENDENCY_OF", _id(package.name)) for used in package.may_use
        ]
    return [
        {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
        for one, kind, other in relationships
    ]
