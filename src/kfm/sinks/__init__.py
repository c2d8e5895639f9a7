"""Sinks: OpenLineage collectors, incident hooks, external STAC APIs."""
