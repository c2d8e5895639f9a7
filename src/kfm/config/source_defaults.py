"""Fields that `source_defaults` gives to every source that does not have them itself."""

from __future__ import annotations

from kfm.config.checks import OWN, WITHOUT_PROVIDER
from kfm.config.document import Document
from kfm.model.settings import SourceDefaults

FIELDS = SourceDefaults.__struct_fields__


def apply_source_defaults(document: Document) -> None:
    """Give each source the defaults that fit its kind, with their lines: what is wrong is wrong there."""
    values = document.values
    defaults, sources = values.get("source_defaults"), values.get("sources")
    if not isinstance(defaults, dict) or not isinstance(sources, list):
        return  # the shape is checked later
    for index, source in enumerate(sources):
        if not isinstance(source, dict):
            continue
        kind = source.get("kind", defaults.get("kind"))
        for field in FIELDS:
            if field in defaults and field not in source and _fits(kind, field):
                source[field] = defaults[field]
                _copy_lines(document, f"source_defaults.{field}", f"sources[{index}].{field}")


def _fits(kind: object, field: str) -> bool:
    """Does a source of this kind have the field? Of an unknown kind it is not known."""
    if field == "provider":
        return kind not in WITHOUT_PROVIDER
    owners = [name for name, fields in OWN.items() if field in fields]
    return not owners or kind in owners or kind not in OWN


def _copy_lines(document: Document, here: str, there: str) -> None:
    for path, line in list(document.lines.items()):
        if path == here or path.startswith((f"{here}.", f"{here}[")):
            document.lines[there + path[len(here) :]] = line
