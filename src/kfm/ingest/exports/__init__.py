"""The catalogue as files for others: a tree of STAC documents, and stac-geoparquet."""
