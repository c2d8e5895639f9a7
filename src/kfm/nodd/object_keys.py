"""Keys of objects: decoded once, checked, and made into the one address that an object has."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from kfm.model.units import scheme_of
from kfm.nodd.messages.refusals import RecordRefusal

KEY_BYTES_MAX = 1024  # S3, Azure and Google agree
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN = re.compile(r"[A-Za-z0-9_.=+/-]+\Z")
_BUCKET = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,220}[A-Za-z0-9])?(?:/[$A-Za-z0-9][A-Za-z0-9-]{0,62})?\Z"
)
# Categories: controls, invisible formatting (bidi overrides), surrogates, private use, line ends.
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def decode_key(text: str) -> str:
    """S3 writes keys form-url-encoded: `+` is a blank, `%XX` a byte. Decoded exactly once."""
    if "%" not in text and "+" not in text:
        return text
    if _BAD_ESCAPE.search(text):
        raise RecordRefusal("KEY_ENCODING")
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")
    except UnicodeError:
        raise RecordRefusal("KEY_ENCODING", "They are no UTF-8.") from None


def check_key(key: str) -> str:
    """The key, if it is one that may be kept, shown and made into a path."""
    if _PLAIN.match(key) and len(key) <= KEY_BYTES_MAX and key[0] not in "/." and "/." not in key:
        return key  # nothing below could object to it
    if not key:
        raise RecordRefusal("RECORD_INVALID", "The key is empty.")
    try:
        size = len(key) if key.isascii() else len(key.encode("utf-8"))
    except UnicodeError:
        raise RecordRefusal("KEY_UNSAFE", "It holds half of a surrogate pair.") from None
    if size > KEY_BYTES_MAX:
        raise RecordRefusal("KEY_TOO_LONG", f"It has {size} bytes.")
    if _PLAIN.match(key) is None and any(unicodedata.category(char) in _UNSAFE for char in key):
        raise RecordRefusal("KEY_UNSAFE", "It holds characters that are not shown.")
    if key.startswith("/") or "\\" in key:
        raise RecordRefusal("KEY_UNSAFE", "It looks like a path of some machine.")
    segments = key.split("/")
    if "." in segments or ".." in segments:
        raise RecordRefusal("KEY_UNSAFE", "It leads out of its folder.")
    return key


@lru_cache(maxsize=1024)  # the good ones are few and short, and only those are kept
def check_bucket(bucket: str) -> str:
    """A bucket's name; for Azure `account/container`."""
    if _BUCKET.match(bucket) is None:
        raise RecordRefusal("RECORD_INVALID", "The bucket has no bucket's name.")
    return bucket


def object_uri(provider: str, bucket: str, key: str) -> str:
    """Scheme, bucket and decoded key."""
    return f"{scheme_of(provider)}://{bucket}/{key}"


def quoted_uri(provider: str, bucket: str, key: str) -> str:
    """The same address, escaped: `kfm.model.units` decodes it once, so that `?` and `%` in a key survive."""
    if _PLAIN.match(key) is not None:
        return object_uri(provider, bucket, key)
    return f"{scheme_of(provider)}://{bucket}/{quote(key, safe='/')}"
