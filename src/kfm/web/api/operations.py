"""What an operation is. One table of them makes the routes, their description and the tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from kfm.model.errors import UsageError
from kfm.model.roles import Identity, Role
from kfm.model.times import parse_rfc3339
from kfm.web.problems import JSON

if TYPE_CHECKING:
    from kfm.web.api.visible_names import VisibleNames
    from kfm.web.context import WebContext

LIMIT_MAX = 1000
LIMIT_DEFAULT = 50
# Printed characters of ASCII: an id with others is nobody's, and no database is asked about it.
ID = r"[!-~]{1,300}"
NAME = r"[A-Za-z0-9][A-Za-z0-9 ._:/@+~-]{0,199}"
CURSOR = r"[0-9]{1,15}~[A-Za-z0-9._-]{1,100}"
NUMBER = r"[0-9]{1,15}"
_DAY = r"[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"([01][0-9]|2[0-3])(:[0-5][0-9]){2}(\.[0-9]{1,9})?"
TIME = rf"{_DAY}T{_CLOCK}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"


class ApiCall(NamedTuple):
    """One request that may be answered: by whom it comes, what it names and says."""

    context: WebContext
    app: Any  # wiring's App, as whoever asks uses it
    identity: Identity
    names: VisibleNames
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None
    key: str | None = None  # Idempotency-Key
    said: str = ""  # hash of what was asked for, address and body
    base: str = ""  # the address of the API, without a name


class Reply(NamedTuple):
    """An answer that is more than a document with the operation's usual status."""

    document: Any
    headers: Mapping[str, str] = {}


class Parameter(NamedTuple):
    """One parameter of an address, and how its text is read."""

    name: str
    about: str
    schema: Mapping[str, Any]
    read: Callable[[str], Any]
    default: Any = None


class Operation(NamedTuple):
    """One thing that can be asked for."""

    method: Literal["GET", "POST"]
    path: str
    name: str
    about: str
    tag: str
    role: Role | None  # None: anybody, it tells nothing
    work: Callable[[ApiCall], Any]
    answer: str  # the schema of its document
    parameters: tuple[Parameter, ...] = ()
    body: type[msgspec.Struct] | None = None
    status: int = 200
    # How a POST is done once: its request has the key, or the ledger remembers the answer.
    once: Literal["request", "answer"] = "answer"
    media_type: str = JSON

    @property
    def fields(self) -> tuple[str, ...]:
        """What the address has to name."""
        return tuple(re.findall(r"{(\w+)(?::path)?}", self.path))

    @property
    def shown_path(self) -> str:
        """As descriptions write it."""
        return self.path.replace(":path}", "}")


# --- parameters ----------------------------------------------------------------------


def text(name: str, about: str, pattern: str = NAME) -> Parameter:
    def read(said: str) -> str:
        if re.fullmatch(pattern, said) is None:
            raise UsageError(f"`{name}` is not what it can be: {pattern}")
        return said

    return Parameter(name, about, {"type": "string", "pattern": f"^{pattern}$"}, read)


def choice(name: str, values: tuple[str, ...], about: str, default: str | None = None) -> Parameter:
    def read(said: str) -> str:
        if said not in values:
            raise UsageError(f"`{name}` is one of {', '.join(values)}.")
        return said

    schema: dict[str, Any] = {"type": "string", "enum": list(values)}
    return Parameter(name, about, schema | ({"default": default} if default else {}), read, default)


def flag(name: str, about: str) -> Parameter:
    def read(said: str) -> bool:
        if said not in ("true", "false"):
            raise UsageError(f"`{name}` is true or false.")
        return said == "true"

    return Parameter(name, about, {"type": "boolean", "default": False}, read, False)


def moment(name: str, about: str) -> Parameter:
    def read(said: str) -> int:
        if re.fullmatch(TIME, said) is None:
            raise UsageError(f"`{name}` is an RFC 3339 time such as 2026-01-01T00:00:00Z.")
        return parse_rfc3339(said)

    return Parameter(name, about, {"type": "string", "format": "date-time", "pattern": f"^{TIME}$"}, read)


def _read_limit(said: str) -> int:
    if re.fullmatch(r"[0-9]{1,4}", said) is None or not 1 <= int(said) <= LIMIT_MAX:
        raise UsageError(f"`limit` is a whole number from 1 to {LIMIT_MAX}.")
    return int(said)


LIMIT = Parameter(
    "limit",
    "At most so many.",
    {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
    _read_limit,
    LIMIT_DEFAULT,
)
AFTER = text("cursor", "`next` of the page before.", CURSOR)
AFTER_NUMBER = text("cursor", "`next` of the page before.", NUMBER)


def cursor_position(cursor: str | None) -> tuple[int, str] | None:
    """Where the page before has ended."""
    if cursor is None:
        return None
    at_ms, _, name = cursor.partition("~")
    return int(at_ms), name


def read_query(
    pairs: list[tuple[str, str]], parameters: tuple[Parameter, ...], chars_max: int = 500
) -> dict[str, Any]:
    """The values of all parameters; what is odd is refused, by name."""
    known = {parameter.name: parameter for parameter in parameters}
    found: dict[str, Any] = {}
    for name, said in pairs:
        if name not in known:
            understood = ", ".join(sorted(known)) or "no parameters"
            raise UsageError(f"`{name[:64]}` is not understood here. Understood are {understood}.")
        if name in found:
            raise UsageError(f"`{name}` is there twice.")
        if len(said) > chars_max:
            raise UsageError(f"`{name}` is too long.")
        found[name] = known[name].read(said)
    return {name: found.get(name, parameter.default) for name, parameter in known.items()}
