"""Documents of inputs, as they are kept: what has the name of a secret, or looks like one, is masked.

The hash is of the document as it was; what is kept beside it only serves to explain.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kfm.core.redact import shapeless, within
from kfm.core.secret_names import SECRET_WORDS, is_secret_name

MASK = "***"
# Nearly all documents have none of this, and a pass has many documents.
_SUSPICIOUS = re.compile(
    rf'{SECRET_WORDS}|"(?:key|sig|sas|auth|pass)"|://|bearer|basic', re.IGNORECASE
).search


def hushed(document: str) -> str:
    if _SUSPICIOUS(document) is None:
        return document
    masked = within(_masked(msgspec.json.decode(document)), shapeless)
    return msgspec.json.encode(masked).decode()


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: MASK if is_secret_name(name) else _masked(each) for name, each in value.items()}
    return [_masked(each) for each in value] if isinstance(value, list) else value
