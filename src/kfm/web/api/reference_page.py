"""The page of the API for people: each operation, what it takes, and who may ask for it."""

from __future__ import annotations

import re
from functools import cache
from html import escape

from kfm import __version__
from kfm.web.api.operation_table import OPERATIONS, TAGS
from kfm.web.api.operations import Operation
from kfm.web.console.static_files import STYLE, static_files

_CODE = re.compile("`([^`]+)`")
HTML = "text/html; charset=utf-8"
POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@cache
def reference_page(base: str) -> bytes:
    """`base`: the path of the API, beside which the console is."""
    style = static_files()[STYLE]
    root = base.rpartition("/api/")[0]
    groups = "".join(_group(tag, about) for tag, about in TAGS.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex, nofollow">
<title>API · kfm {__version__}</title>
<link rel="stylesheet" href="{escape(root)}/console/static/{style.name}" integrity="{style.integrity}">
</head>
<body>
<header class="top"><div class="wide">
<p class="brand"><a href="{escape(root)}/console/"><b>kfm</b></a></p>
</div></header>
<main id="main" class="wide">
<h1>API</h1>
<p>Addresses begin with <code>{escape(base)}</code>. A token is sent as <code>Authorization: Bearer …</code>.
Every change has a <code>rationale</code>, and is made once under an <code>Idempotency-Key</code>. For
programs that write clients: <a href="{escape(base)}/openapi.json">openapi.json</a>.</p>
{groups}</main>
</body>
</html>
""".encode()


def _group(tag: str, about: str) -> str:
    rows = "".join(_row(one) for one in OPERATIONS if one.tag == tag)
    return f"""<h2 id="{escape(tag)}">{escape(about)}</h2>
<div class="scroll" role="group" tabindex="0" aria-labelledby="{escape(tag)}"><table>
<thead><tr><th scope="col">Operation</th><th scope="col">Does</th><th scope="col">Takes</th>\
<th scope="col">Role</th></tr></thead>
<tbody>{rows}</tbody></table></div>
"""


def _row(one: Operation) -> str:
    names = [parameter.name for parameter in one.parameters]
    names += one.body.__struct_fields__ if one.body is not None else ()
    takes = " ".join(f"<code>{escape(name)}</code>" for name in names)
    about = _CODE.sub(r"<code>\1</code>", escape(one.about))
    return (
        f'<tr id="{escape(one.name)}"><th scope="row"><code>{one.method} {escape(one.shown_path)}</code></th>'
        f"<td>{about}</td><td>{takes}</td><td>{escape(str(one.role))}</td></tr>\n"
    )
