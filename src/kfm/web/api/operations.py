"""Operations of the API: paths, parameters, bodies, roles."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from kfm.model.errors import UsageError
from kfm.model.roles import Identity, Role
from kfm.model.times import parse_rfc3339
from kfm.web.problems import JSON
from kfm.web.query_params import read_parameters

if TYPE_CHECKING:
    from kfm.web.request_context import WebContext
    from kfm.web.visibility import Visibility

LIMIT_MAX = 1000
LIMIT_DEFAULT = 50
VALUE_CHARS_MAX = 500
# Printed characters of ASCII: other ids are refused before the database is read.
ID = r"[!-~]{1,300}"
NAME = r"[A-Za-z0-9][A-Za-z0-9 ._:/@+~-]{0,199}"
CURSOR = r"[0-9]{1,15}~[A-Za-z0-9._:-]{1,200}"
NUMBER = r"[0-9]{1,15}"
LIST = r"[A-Za-z0-9._:/@+~,-]*"
SPAN = r"[A-Za-z0-9:.+/-]{1,100}"
_DAY = r"[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"([01][0-9]|2[0-3])(:[0-5][0-9]){2}(\.[0-9]{1,9})?"
TIME = rf"{_DAY}T{_CLOCK}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"


class ApiCall(NamedTuple):
    """One authorized request: its identity, parameters and body."""

    context: WebContext
    app: Any  # App, with the identity of the caller
    identity: Identity
    visibility: Visibility
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None
    key: str | None = None  # Idempotency-Key
    digest: str = ""  # of the operation, path and body
    base: str = ""  # the path of the API


class Reply(NamedTuple):
    """An answer with headers."""

    document: Any
    headers: Mapping[str, str] = {}
    status: int | None = None  # None: that of the operation


class Parameter(NamedTuple):
    """One query parameter, and how its text is read."""

    name: str
    about: str
    schema: Mapping[str, Any]
    read: Callable[[str], Any]
    default: Any = None
    required: bool = False
    chars_max: int = VALUE_CHARS_MAX


class Operation(NamedTuple):
    """One operation of the API."""

    method: Literal["GET", "POST"]
    path: str
    name: str
    about: str
    tag: str
    role: Role | None  # None: no role is needed
    work: Callable[[ApiCall], Any]
    answer: str  # the schema of its document
    parameters: tuple[Parameter, ...] = ()
    body: type[msgspec.Struct] | None = None
    status: int = 200
    # How a POST is done once: its request has the key, or the ledger remembers the answer.
    once: Literal["request", "answer"] = "answer"
    media_type: str = JSON
    more: tuple[int, ...] = ()  # further statuses of its answers

    @property
    def fields(self) -> tuple[str, ...]:
        """The parameters of the path."""
        return tuple(re.findall(r"{(\w+)(?::path)?}", self.path))

    @property
    def shown_path(self) -> str:
        """The path as OpenAPI writes it."""
        return self.path.replace(":path}", "}")


# --- parameters ----------------------------------------------------------------------


def text(name: str, about: str, pattern: str = NAME) -> Parameter:
    def read(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise UsageError(f"`{name}` does not match {pattern}")
        return value

    return Parameter(name, about, {"type": "string", "pattern": f"^{pattern}$"}, read)


def whole_number(name: str, about: str, *, required: bool = True) -> Parameter:

    def read(value: str) -> int:
        if re.fullmatch(NUMBER, value) is None or int(value) < 1:
            raise UsageError(f"`{name}` is a whole number from 1 on.")
        return int(value)

    return Parameter(name, about, {"type": "integer", "minimum": 1}, read, required=required)


def names(name: str, about: str, chars_max: int = VALUE_CHARS_MAX) -> Parameter:
    """Names or ids between commas."""
    return text(name, about, rf"{LIST}")._replace(chars_max=chars_max)


def choice(name: str, values: tuple[str, ...], about: str, default: str | None = None) -> Parameter:
    def read(value: str) -> str:
        if value not in values:
            raise UsageError(f"`{name}` is one of {', '.join(values)}.")
        return value

    schema: dict[str, Any] = {"type": "string", "enum": list(values)}
    return Parameter(name, about, schema | ({"default": default} if default else {}), read, default)


def flag(name: str, about: str) -> Parameter:
    def read(value: str) -> bool:
        if value not in ("true", "false"):
            raise UsageError(f"`{name}` is true or false.")
        return value == "true"

    return Parameter(name, about, {"type": "boolean", "default": False}, read, False)


def moment(name: str, about: str) -> Parameter:
    def read(value: str) -> int:
        if re.fullmatch(TIME, value) is None:
            raise UsageError(f"`{name}` is an RFC 3339 time such as 2026-01-01T00:00:00Z.")
        return parse_rfc3339(value)

    return Parameter(name, about, {"type": "string", "format": "date-time", "pattern": f"^{TIME}$"}, read)


def _read_limit(value: str) -> int:
    if re.fullmatch(r"[0-9]{1,4}", value) is None or not 1 <= int(value) <= LIMIT_MAX:
        raise UsageError(f"`limit` is a whole number from 1 to {LIMIT_MAX}.")
    return int(value)


LIMIT = Parameter(
    "limit",
    "Page size.",
    {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
    _read_limit,
    LIMIT_DEFAULT,
)
AFTER = text("cursor", "`next` of the page before.", CURSOR)
AFTER_NUMBER = text("cursor", "`next` of the page before.", NUMBER)
AFTER_NAME = text("cursor", "`next` of the page before.", NAME)
AFTER_ID = text("cursor", "`next` of the page before.", r"[A-Za-z0-9._:/@+~-]{1,300}")
AFTER_RANKED = text("cursor", "`next` of the page before.", r"[0-9]{1,15}~[!-~]{1,300}")
ALL = LIMIT._replace(schema={**LIMIT.schema, "default": LIMIT_MAX}, default=LIMIT_MAX)


def cursor_position(cursor: str | None) -> tuple[int, str] | None:
    """The position after which a page starts."""
    if cursor is None:
        return None
    at_ms, _, name = cursor.partition("~")
    return int(at_ms), name


def read_query(pairs: Sequence[tuple[str, str]], parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The values of all parameters."""
    known = {parameter.name: parameter for parameter in parameters}
    found = read_parameters(pairs, known, max((one.chars_max for one in parameters), default=VALUE_CHARS_MAX))
    for name, value in found.items():
        if len(value) > known[name].chars_max:
            raise UsageError(f"`{name}` is too long.")
    for name, parameter in known.items():
        if parameter.required and name not in found:
            raise UsageError(f"`{name}` is needed: {parameter.about}")
    return {
        name: parameter.read(found[name]) if name in found else parameter.default
        for name, parameter in known.items()
    }
