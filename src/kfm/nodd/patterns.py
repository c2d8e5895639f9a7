"""A tiny language for keys: one text that both reads a key into fields and writes it again.

    [{folder:word}/]{site:site}{ymd:ymd}_{hms:hms}[_{version:version}]

Braces are fields with a kind, brackets are optional, everything else is literal.
A kind is a name in KINDS, or alternatives such as `conus|alaska`. A field named
again without a kind must be the same text as before. Reading is linear in the
key for all practical purposes: no kind contains what may follow it twice over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import repeat
from operator import is_, itemgetter

from kfm.nodd.messages.refusals import RecordRefusal

Fields = dict[str, str | None]
Picker = Callable[[Mapping[str, str | None]], tuple[str | None, ...]]
Parts = list[tuple[str, str]]  # ("literal" | "field" | "open" | "close", text)

KINDS: dict[str, str] = {
    "yyyy": r"\d{4}",
    "mm": r"\d\d",
    "dd": r"\d\d",
    "hh": r"\d\d",
    "doy": r"\d{3}",
    "ymd": r"\d{8}",
    "ymdh": r"\d{10}",
    "ymdhm": r"\d{12}",
    "hm": r"\d{4}",
    "hms": r"\d{6}",
    "hmst": r"\d{7}",  # with tenths
    "day_scan": r"\d{14}",  # year, day of year, time, tenths
    "date_scan": r"\d{15}",  # year, month, day, time, tenths
    "digit": r"\d",
    "d2": r"\d\d",
    "d3": r"\d{3}",
    "digits": r"\d+",
    "hours": r"\d{2,3}",
    "lower": r"[a-z]+",
    "word": r"[A-Za-z0-9-]+",
    "system": r"[a-z0-9_]+",
    "name": r"[A-Za-z0-9_.-]+",
    "text": r"[A-Za-z0-9_.:+=-]+",
    "path": r"[A-Za-z0-9_.=-]+(?:/[A-Za-z0-9_.=-]+)*",
}
# What all texts of a kind begin with: characters that nothing repeats or makes optional.
_BEGINNING = re.compile(r"[A-Za-z0-9_-]+(?=[A-Za-z0-9_\[(\\-]|\Z)")
_TOKEN = re.compile(r"\{([a-z_]+)(?::([^{}]+))?\}|([\[\]])|([^{}\[\]]+)")


class Pattern:
    """A compiled key pattern."""

    def __init__(self, text: str, kinds: Mapping[str, str] | None = None) -> None:
        self.text = text
        self._parts: Parts = []
        known = {**KINDS, **(kinds or {})}
        regex: list[str] = []
        self.kinds: dict[str, str] = {}
        position = 0
        self.optional: set[str] = set()
        options = [0]  # fields in each option that is open
        for token in _TOKEN.finditer(text):
            if token.start() != position:
                raise ValueError(f"{text!r} can't be read at {position}")
            position = token.end()
            name, kind, bracket, literal = token.groups()
            if name:
                regex.append(self._field(name, kind, known))
                options[-1] += 1
                if len(options) > 1:
                    self.optional.add(name)
            elif bracket:
                self._parts.append(("open" if bracket == "[" else "close", ""))
                regex.append("(?:" if bracket == "[" else ")?")
                if bracket == "[":
                    options.append(0)
                elif options.pop() == 0 or not options:
                    raise ValueError(f"{text!r}: an option without a field can't be written again")
            else:
                self._parts.append(("literal", literal))
                regex.append(re.escape(literal))
        if position != len(text) or len(options) != 1:
            raise ValueError(f"{text!r} can't be read at {position}")
        self._regex = re.compile("".join(regex), re.ASCII)
        self.landmark = self._landmark()

    def _field(self, name: str, kind: str | None, known: Mapping[str, str]) -> str:
        self._parts.append(("field", name))
        if kind is None:
            if name not in self.kinds:
                raise ValueError(f"{self.text!r}: the first {name} needs a kind")
            return f"(?P={name})"
        regex = "|".join(map(re.escape, kind.split("|"))) if "|" in kind else known.get(kind, "")
        if not regex or name in self.kinds:
            raise ValueError(f"{self.text!r}: {name} has no known kind, or two")
        self.kinds[name] = regex
        return f"(?P<{name}>{regex})"

    def _landmark(self) -> str:
        """The longest text that every key of this kind holds: a key without it need not be tried."""
        found, run, options = "", "", 0
        for kind, text in self._parts:
            options += (kind == "open") - (kind == "close")
            if kind == "literal" and not options:
                run += text
                found = max(found, run, key=len)
                continue
            if kind == "field" and not options:
                found = max(found, run + self._beginning(text), key=len)
            run = ""
        return found

    def _beginning(self, name: str) -> str:
        match = None if "|" in self.kinds[name] else _BEGINNING.match(self.kinds[name])
        return match[0] if match is not None else ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    def match(self, key: str) -> Fields | None:
        """The fields of a key; None if it is not of this kind. A field in an absent option is None."""
        if self.landmark not in key:
            return None
        found = self._regex.fullmatch(key)
        return None if found is None else found.groupdict()

    def render(self, fields: Mapping[str, str | None]) -> str:
        """The key with these fields. An option is written if all its fields are there."""
        return _written(self._parts, fields, self.text)


class Template:
    """A pattern that only writes: for products, platforms and ids."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts: Parts = []
        for name, _, bracket, literal in (token.groups() for token in _TOKEN.finditer(text)):
            kind = "field" if name else {"[": "open", "]": "close"}.get(bracket, "literal")
            self._parts.append((kind, name or literal or ""))
        self.names = tuple(part for kind, part in self._parts if kind == "field")
        self._only = self.names[0] if len(self._parts) == len(self.names) == 1 else ""
        self._values = _picker(self.names)
        # Which fields are missing → how the others are written: options are weighed once, not for every key.
        self._forms: dict[tuple[bool, ...], tuple[str, Picker]] = {}

    def render(self, fields: Mapping[str, str | None]) -> str:
        if self._only and (value := fields.get(self._only)) is not None:
            return value
        try:
            values = self._values(fields)
        except KeyError:
            return _written(self._parts, fields, self.text)
        missing = tuple(map(is_, values, repeat(None))) if None in values else ()
        if missing not in self._forms:
            self._forms[missing] = self._form(fields)
        form, chosen = self._forms[missing]
        return form % (chosen(fields) if missing else values)

    def _form(self, fields: Mapping[str, str | None]) -> tuple[str, Picker]:
        """(What fields like these make, with `%s` for each that is written; which of them are.)"""
        marks = {name: f"\0{name}\0" for name in self.names if fields[name] is not None}
        pieces = _written(self._parts, marks, self.text).split("\0")
        return "%s".join(piece.replace("%", "%%") for piece in pieces[::2]), _picker(tuple(pieces[1::2]))


def _picker(names: tuple[str, ...]) -> Picker:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda fields: tuple(fields[name] for name in names)


def _written(parts: Parts, fields: Mapping[str, str | None], text: str) -> str:
    out, _ = _rendered(parts, 0, fields)
    if out is None:
        raise ValueError(f"{text!r} needs fields that are not there")
    return out


def _rendered(parts: Parts, at: int, fields: Mapping[str, str | None]) -> tuple[str | None, int]:
    """(text up to the end of this option, where it ends); no text if a field of it is missing."""
    out: list[str] = []
    whole = True
    while at < len(parts):
        kind, text = parts[at]
        at += 1
        if kind == "close":
            break
        if kind == "open":
            inner, at = _rendered(parts, at, fields)
            out.append(inner or "")
        elif kind == "literal":
            out.append(text)
        elif (value := fields.get(text)) is None:
            whole = False
        else:
            out.append(value)
    return ("".join(out) if whole else None), at


def need(fields: Mapping[str, str | None], name: str) -> str:
    """A field that a rule can't do without."""
    value = fields.get(name)
    if value is None:
        raise RecordRefusal("KEY_UNKNOWN", f"It has no {name}.")
    return value
