"""Fields in braces: the one renderer of `{window.start}` and its like, and what a published path may be.

{window.start} {window.end}      RFC 3339 in UTC
{window.start:date}              YYYY-MM-DD in the source's zone
{window.start:%Y/%m/%d}          digits only: %Y %m %d %H %M %S %j %y, in the source's zone
{name} {relpath}                 file name, and path below the source's folder or prefix
{source} {dataset} {partition}
{{ }}                            a brace
"""

import re
import unicodedata
from collections.abc import Iterator

import msgspec

from kfm.model.errors import ConfigError
from kfm.model.patterns import late
from kfm.model.quantities import suggest
from kfm.model.records import Window
from kfm.model.times import rfc3339

PATH_BYTES_MAX = 1024
SEGMENT_BYTES_MAX = 255
TEMPLATE_CHARS_MAX = 4096

WINDOW_FIELDS = ("window.start", "window.end")
PLACE_FIELDS = (
    *WINDOW_FIELDS,
    "source",
    "dataset",
    "partition",
)  # url, params, prefix, pattern
PATH_FIELDS = (*PLACE_FIELDS, "name", "relpath")  # the published path

# Digits alone: names of months and days would depend on the machine's language.
_DIRECTIVES = {
    "Y": "%04d",
    "m": "%02d",
    "d": "%02d",
    "H": "%02d",
    "M": "%02d",
    "S": "%02d",
    "j": "%03d",
    "y": "%02d",
}
_PIECE = late(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
# Controls, what turns or joins text, what has no glyph: two names that differ in it look the same.
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp", "Cn"}
_WITHOUT_GLYPH = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, 0xFFA0))
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """What a template may speak of. None: not to be had here."""

    window: Window
    time_zone: str
    source: str
    dataset: str
    partition: str | None = None
    name: str | None = None
    relpath: str | None = None


def render(template: str, fields: Fields) -> str:
    """The template with its fields filled in; ConfigError names an unknown one and the nearest right word."""
    allowed = PATH_FIELDS if fields.name is not None else PLACE_FIELDS
    return "".join(
        text if field is None else _value(template, field, fields, allowed)
        for text, field in _pieces(template)
    )


def template_problem(template: str, *, allowed: tuple[str, ...] = PLACE_FIELDS) -> str | None:
    """What is wrong with a template, without rendering it; None if nothing is."""
    try:
        for _, field in _pieces(template):
            if field is not None:
                _known(template, field, allowed)
    except ConfigError as error:
        return error.detail
    return None


PATH_REMEDY = "Give the source a `path` template that makes a plain relative path, such as {name}."


def safe_path(path: str, remedy: str = PATH_REMEDY) -> str:
    """The path in NFC, if it can be published anywhere: relative, plain and bounded. ConfigError if not."""
    path = unicodedata.normalize("NFC", path)
    problem = _path_problem(path)
    if problem:
        raise ConfigError(
            f"The path {path[:200]!r} can't be published: {problem}.",
            remedy=remedy,
        )
    return path


def _path_problem(path: str) -> str | None:
    if not path:
        return "it is empty"
    if path.startswith("/"):
        return "it is absolute"
    for character in path:
        if character == "\\":
            return "it has a backslash"
        if unicodedata.category(character) in _UNSEEN or character in _WITHOUT_GLYPH:
            return f"it has the unprintable character U+{ord(character):04X}"
    if len(path.encode()) > PATH_BYTES_MAX:
        return f"it is longer than {PATH_BYTES_MAX} bytes"
    for segment in path.split("/"):
        if not segment:
            return "it has an empty segment"
        if segment.startswith("."):
            return f"its segment {segment!r} begins with a dot"
        if segment != segment.strip():
            return f"its segment {segment!r} begins or ends with a space"
        if len(segment.encode()) > SEGMENT_BYTES_MAX:
            return f"a segment is longer than {SEGMENT_BYTES_MAX} bytes"
    return None


_UNITS_MS = {
    "S": 1_000,
    "M": 60_000,
    "H": 3_600_000,
    "d": 86_400_000,
    "j": 86_400_000,
    "m": 31 * 86_400_000,
    "Y": 366 * 86_400_000,
    "y": 366 * 86_400_000,
}


def named_unit_ms(template: str) -> int | None:
    """How long a span the start of a window names here, at most: a day for a date. None: it is not named by a
    date alone, as where its end is named, too."""
    fields = [field.partition(":") for _, field in _pieces(template) if field is not None]
    if any(name == "window.end" for name, *_ in fields):
        return None
    starts = (form for name, _, form in fields if name == "window.start")
    forms = [form.replace("%%", "").replace("date", "%d") for form in starts]
    found = [_UNITS_MS[code] for form in forms for code in _UNITS_MS if f"%{code}" in form]
    return min(found, default=None)


def _pieces(template: str) -> Iterator[tuple[str, str | None]]:
    """(text, None) and ("", field), in order."""
    if len(template) > TEMPLATE_CHARS_MAX:
        raise ConfigError(f"A template is longer than {TEMPLATE_CHARS_MAX} characters: {template[:40]!r}…")
    at = 0
    for match in _PIECE.finditer(template):
        yield template[at : match.start()], None
        at = match.end()
        if match[1] is not None:
            yield "", match[1]
        elif len(match[0]) == 2:
            yield match[0][0], None
        else:
            raise ConfigError(f"A brace stands alone in {template!r}: write {{{{ or }}}} for a brace itself.")
    yield template[at:], None


def _known(template: str, field: str, allowed: tuple[str, ...]) -> tuple[str, str]:
    """The field's name and format, if there are such."""
    name, _, form = field.partition(":")
    if name not in allowed:
        raise ConfigError(f"{{{name}}} in {template!r} means nothing here.{_nearest(name, allowed)}")
    if ":" in field and not name.startswith("window."):
        raise ConfigError(f"{{{name}}} takes no format, but has one in {template!r}.")
    if ":" in field and form != "date":
        if "%" not in form:
            raise ConfigError(
                f"`{form}` in {template!r} is no way to write a time.{_nearest(form, ('date', '%Y-%m-%d'))}"
            )
        for directive in re.findall(r"%(.?)", form):
            if directive not in _DIRECTIVES and directive != "%":
                raise ConfigError(f"`%{directive}` in {template!r} is not one of %{' %'.join(_DIRECTIVES)}.")
    return name, form


def _value(template: str, field: str, fields: Fields, allowed: tuple[str, ...]) -> str:
    name, form = _known(template, field, allowed)
    if name.startswith("window."):
        at_ms = fields.window.start_ms if name == "window.start" else fields.window.end_ms
        return _time(at_ms, form, fields.time_zone)
    value: str | None = getattr(fields, name)
    if value is None:
        raise ConfigError(f"{{{name}}} in {template!r} has no value: source `{fields.source}` declares none.")
    return value


def _time(at_ms: int, form: str, zone: str) -> str:
    if not form:
        return rfc3339(at_ms)
    from whenever import Instant

    at = Instant.from_timestamp(at_ms, unit="millisecond").to_tz(zone).to_stdlib()
    parts = at.timetuple()
    values = {
        "Y": parts.tm_year,
        "m": parts.tm_mon,
        "d": parts.tm_mday,
        "H": parts.tm_hour,
        "M": parts.tm_min,
        "S": parts.tm_sec,
        "j": parts.tm_yday,
        "y": parts.tm_year % 100,
    }
    form = "%Y-%m-%d" if form == "date" else form
    return re.sub(
        r"%(.)", lambda found: "%" if found[1] == "%" else _DIRECTIVES[found[1]] % values[found[1]], form
    )


def _nearest(word: str, words: tuple[str, ...]) -> str:
    close = suggest(word, words)
    return f" Did you mean `{close}`?" if close else f" There are: {', '.join(words)}."
