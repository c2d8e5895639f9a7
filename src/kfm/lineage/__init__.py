"""Lineage events (OpenLineage) and provenance (PROV-O)."""
