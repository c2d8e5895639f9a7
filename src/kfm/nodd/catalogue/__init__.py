"""The STAC catalogue of announced objects: facts, items, search, exports."""
