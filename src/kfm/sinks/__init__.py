"""Collectors of lineage, telemetry and notifications."""
