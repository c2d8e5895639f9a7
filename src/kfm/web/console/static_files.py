"""Files that pages load: the style sheet and scripts, ours and vendored. Names change with the bytes."""

from __future__ import annotations

from base64 import b64encode
from gzip import compress
from hashlib import sha256, sha384
from importlib import resources
from typing import NamedTuple

HERE = "kfm.web.console"
STYLE = "console.css"
# In the order in which pages load them; `vendor/vendored.json` says where the foreign ones are from.
SCRIPTS = ("vendor/htmx.js", "vendor/idiomorph.js", "console.js")
# Of a page with a chart, which nothing updates by itself.
CHART_SCRIPTS = ("vendor/uplot.js", "console.js", "trend.js")
_TYPES = {"css": "text/css", "js": "text/javascript"}


class StaticFile(NamedTuple):
    name: str  # in addresses
    media_type: str
    data: bytes
    packed: bytes  # by gzip
    integrity: str  # as pages state it, so that a browser runs nothing else


def static_files() -> dict[str, StaticFile]:
    """Each by the name that it has here."""
    return {name: _read(name) for name in dict.fromkeys((STYLE, *SCRIPTS, *CHART_SCRIPTS))}


def _read(name: str) -> StaticFile:
    data = resources.files(HERE).joinpath("static", *name.split("/")).read_bytes()
    stem, _, ending = name.rpartition("/")[2].rpartition(".")
    return StaticFile(
        f"{stem}.{sha256(data).hexdigest()[:12]}.{ending}",
        _TYPES[ending],
        data,
        compress(data, mtime=0),
        f"sha384-{b64encode(sha384(data).digest()).decode()}",
    )
