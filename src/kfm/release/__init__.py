"""Releases: telemetry, SBOM and attestation over a span of time."""
