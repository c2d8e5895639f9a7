"""Lineage and provenance: OpenLineage events, PROV-O documents, delivery to collectors."""
