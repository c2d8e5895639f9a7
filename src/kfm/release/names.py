"""What a release and its files are called."""

from __future__ import annotations

import re

from kfm.core.errors import UsageError

SBOM = "sbom.spdx.json"
MANIFEST = "manifest.zip"
CHECKSUMS = "SHA256SUMS"
ATTESTATION = "attestation.intoto.json"
SIGNATURE = f"{ATTESTATION}.sig"
LEDGER = "ledger/"  # where the manifest keeps what was exported from the ledger

# The schema of each document that has one.
SCHEMAS = {
    "updater-telemetry.json": "telemetry-updater",
    "patterns-telemetry.json": "telemetry-patterns",
    "focus-telemetry.json": "telemetry-focus",
    "nodd-sns-telemetry.json": "telemetry-nodd-sns",
    "energy.json": "energy",
    "carbon.json": "carbon",
    ATTESTATION: "release-attestation",
}
VERSION_CHARS_MAX = 64
_PART = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"v?\d+(?:\.\d+){{0,3}}(?:-{_PART})?(?:\+{_PART})?", re.ASCII)


def checked_version(text: str) -> str:
    """The version, which is also the name of a folder."""
    if len(text) > VERSION_CHARS_MAX or not _VERSION.fullmatch(text):
        raise UsageError(
            f"`{text[:VERSION_CHARS_MAX]}` is not a version.",
            remedy="Write it as v1.2.3, 1.2.3-rc.1 or 1.2.3+build.5.",
        )
    return text
