"""What a dataset is called in lineage: the names that OpenLineage's readers already use.

Other tools give the same object the same name, so that their lineage and ours meet. A name never holds
a query, a user or a password.
"""

from __future__ import annotations

import re
from hashlib import sha256

NAME_CHARS_MAX = 2048
POSTGRES_PORT = 5432
_DEFAULT_PORTS = {"http": 80, "https": 443}
_BUCKETS = frozenset({"s3", "gs", "az", "abfs", "abfss", "wasb", "wasbs"})
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "postgresql": "postgres"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)


def dataset_name(uri: str, folder: str = "") -> tuple[str, str]:
    """Namespace and name of what a URI leads to. Relative files are seen from a folder."""
    from urllib.parse import unquote, urlsplit  # late: most passes name no dataset

    from kfm.model.redaction import redact

    match = _SCHEME.match(uri)
    if match is None:
        return _bounded("file" if uri.startswith("/") else "kfm", redact(uri) or "/")
    scheme = match[1].lower()
    scheme = _ALIASES.get(scheme, scheme)
    try:
        parts = urlsplit(uri)
        authority = _authority(parts.netloc, scheme)
    except ValueError:  # no address at all, such as a bracket that is never closed
        return _bounded("kfm", redact(uri))
    if scheme == "file":
        path = unquote(parts.path) or "/"
        return _bounded("file", f"{folder}/{path}" if folder and not path.startswith("/") else path)
    if not authority:
        rest = match[2].partition("?")[0].partition("#")[0]
        return _bounded(scheme, redact(rest) or "/")
    if scheme in _BUCKETS:
        return _bounded(f"{scheme}://{authority}", unquote(parts.path).removeprefix("/") or "/")
    if scheme == "postgres":
        return _bounded(f"postgres://{authority}", parts.path.strip("/").replace("/", ".") or "/")
    return _bounded(f"{scheme}://{authority}", redact(parts.path) or "/")


def object_name(object_uri: str) -> tuple[str, str]:
    """Namespace and name of an object by its canonical address, whose key is taken as it is."""
    scheme, separator, rest = object_uri.partition("://")
    authority, _, key = rest.partition("/")
    if not separator or scheme not in _BUCKETS or not authority:
        return dataset_name(object_uri)
    return _bounded(f"{scheme}://{authority}", key or "/")


def below(dataset: tuple[str, str], path: str) -> tuple[str, str]:
    """The name of a file of a dataset."""
    namespace, name = dataset
    return _bounded(namespace, f"{name.rstrip('/')}/{path}" if name else path)


def source_uri(namespace: str) -> str:
    """An address for a namespace: the namespace itself, where it is one."""
    if namespace == "file":
        return "file:///"
    from urllib.parse import quote

    if "://" in namespace:
        return quote(namespace, safe=":/@[]%~+-._!$&'()*,;=", errors="replace")
    return f"urn:kfm:namespace:{quote(namespace, safe='', errors='replace')}"


def _authority(netloc: str, scheme: str) -> str:
    host, port = netloc.rpartition("@")[2], ""
    if scheme in _BUCKETS:
        return host  # the letters of a bucket's name count
    if not host.endswith("]"):
        head, colon, tail = host.rpartition(":")
        if colon and (tail.isdecimal() or not tail):
            host, port = head, tail
    if scheme == "postgres":
        return f"{host.lower()}:{port or POSTGRES_PORT}" if host else ""
    if port and int(port) != _DEFAULT_PORTS.get(scheme):
        return f"{host.lower()}:{port}"
    return host.lower()


def _bounded(namespace: str, name: str) -> tuple[str, str]:
    """A name too long to be carried is cut; its hash keeps it apart from its neighbours."""
    return _cut(namespace), _cut(name)


def _cut(text: str) -> str:
    if len(text) <= NAME_CHARS_MAX:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[: NAME_CHARS_MAX - 17]}~{digest}"
