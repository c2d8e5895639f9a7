"""Query parameters, and searches of STAC by parameters or by a body of JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.exceptions import HTTPException

from kfm.model.catalogue import Search
from kfm.model.errors import UsageError
from kfm.nodd.catalogue import search as searching
from kfm.nodd.catalogue.geometry import Shape

BODY_BYTES_MAX = 1 << 20
VALUE_CHARS_MAX = 100_000
ITEMS_FIELDS = ("bbox", "datetime", "limit", "token", "collections", "ids")
SEARCH_FIELDS = (*ITEMS_FIELDS, "intersects")


def read_parameters(
    pairs: Sequence[tuple[str, str]], known: Collection[str], chars_max: int
) -> dict[str, str]:
    """The parameters of a query; an unknown, repeated or too long one is refused by name."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise _unknown(name, known)
        if name in found:
            raise UsageError(f"`{name}` is there twice.")
        if len(value) > chars_max:
            raise UsageError(f"`{name}` is too long.")
        found[name] = value
    return found


class Query(NamedTuple):
    """A search, with its parameters or its body, from which the link to the next page is made."""

    search: Search
    shape: Shape | None
    pairs: Sequence[tuple[str, str]] = ()
    body: dict[str, Any] | None = None


def from_text(
    pairs: Sequence[tuple[str, str]], fields: Sequence[str], collection_id: str | None = None
) -> Query:
    """A search by query parameters."""
    plain: dict[str, Any] = {}
    for name, text in read_parameters(pairs, fields, VALUE_CHARS_MAX).items():
        if name in ("bbox", "collections", "ids"):
            plain[name] = text.split(",") if text else []
        elif name == "intersects":
            plain[name] = _json(text.encode("utf-8", "surrogatepass"), "`intersects`")
        else:
            plain[name] = text
    search, shape = _search(plain)
    if collection_id is not None:
        if search.collections not in ((), (collection_id,)):  # pystac-client names it again
            raise UsageError("`collections` can't be used. The address names the collection already.")
        search = msgspec.structs.replace(search, collections=(collection_id,))
    return Query(search, shape, pairs=tuple(pairs))


def from_body(content_type: str, data: bytes) -> Query:
    """A search by a body of JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise HTTPException(415, "Send the search as application/json.")
    body = _json(data, "The body")
    if not isinstance(body, dict):
        raise UsageError("The body is not a JSON object.")
    for name in body:
        if name not in SEARCH_FIELDS:
            raise _unknown(name, SEARCH_FIELDS)
    kept = {name: value for name, value in body.items() if value is not None}
    search, shape = _search(kept)
    return Query(search, shape, body=kept)


def _search(plain: dict[str, Any]) -> tuple[Search, Shape | None]:
    if "bbox" in plain and "intersects" in plain:
        raise UsageError("`bbox` and `intersects` exclude each other.")
    lists = {name: plain.get(name, []) for name in ("bbox", "collections", "ids")}
    for name, value in lists.items():
        if not isinstance(value, list):
            raise UsageError(f"`{name}` is not a list.")
    moment = plain.get("datetime")
    if moment is not None and not isinstance(moment, str):
        raise UsageError("`datetime` is not a text.")
    from_ms, until_ms = (None, None) if moment is None else searching.parse_datetime(moment)
    search = Search(
        collections=searching.parse_names("collections", lists["collections"]),
        ids=searching.parse_names("ids", lists["ids"]),
        bbox=searching.parse_bbox(lists["bbox"]) if "bbox" in plain else None,
        from_ms=from_ms,
        until_ms=until_ms,
        after=searching.parse_token(plain["token"]) if "token" in plain else None,
        limit=searching.parse_limit(plain.get("limit", searching.LIMIT_DEFAULT)),
    )
    return search, Shape(plain["intersects"]) if "intersects" in plain else None


def _json(data: bytes, what: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise UsageError(f"{what} is not JSON.") from None


def _unknown(name: str, known: Collection[str]) -> UsageError:
    return UsageError(
        f"`{name[:64]}` is not a parameter here. Parameters: {', '.join(sorted(known)) or 'none'}."
    )
