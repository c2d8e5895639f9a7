"""Names that tell of a value that it is a secret."""

from __future__ import annotations

import re

SECRET_WORDS = (
    r"(?:token|secret|signature|password|passwd|passphrase|pwd|credentials?|authorization"
    r"|(?:api|access|account|subscription|private|shared|signing|storage|client|auth)[_-]?key(?:[_-]?id)?)"
)
# Whole words of a name: `api_key`, `X-Amz-Signature`, `sig`, `key`, `userToken`; but not `keyword`, `monkey`.
_SECRET_NAME = re.compile(
    rf"(?:^|.*[^a-z]|.*[a-z](?=[A-Z])){SECRET_WORDS}s?$|^(?:key|sig|sas|auth|pass)$", re.IGNORECASE
)


def is_secret_name(name: str) -> bool:
    """Would a value of this name be a secret?"""
    return _SECRET_NAME.match(name) is not None
