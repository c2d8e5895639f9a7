"""Regular expressions of contracts: the regular part of ECMA-262, answered in time linear in the text.

An expression becomes a machine whose states are sets of places in it, made as texts need them. Nothing is
ever tried again, so no expression and no text can make a check hang. What needs trying again (backward
references, lookaround) is refused with the contract. The Node.js twin has the same machine.
"""

from __future__ import annotations

from typing import Any, NoReturn

from kfm.publish.contract.streams import FileProblem

PLACES_MAX = 10_000
DEPTH_MAX = 50
CACHED_MAX = 200_000  # steps and places of states that are remembered; then it begins anew
STEPS_MAX = 20_000_000  # that had to be worked out
_LAST = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
_DIGIT: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Ranges = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
_LINE_END: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
_HEX = frozenset("0123456789abcdefABCDEF")


class ExpressionError(ValueError):
    """The text is no such expression; the message says why."""


def _all_but(ranges: Ranges) -> Ranges:
    found, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            found.append((at, low - 1))
        at = max(at, high + 1)
    return (*found, (at, _LAST)) if at <= _LAST else tuple(found)


# --- reading -----------------------------------------------------------------------------

# A part is ("set", ranges), ("assert", which), ("all", parts), ("any", parts), ("repeat", part, least, most).
Part = tuple[Any, ...]


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0

    def whole(self) -> Part:
        part = self._any(0)
        if self._at < len(self._text):
            self._fail("a parenthesis is not open")
        return part

    def _fail(self, problem: str) -> NoReturn:
        raise ExpressionError(f"{problem} (at character {self._at + 1})")

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _took(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _any(self, depth: int) -> Part:
        if depth > DEPTH_MAX:
            self._fail(f"parentheses are nested deeper than {DEPTH_MAX}")
        choices = [self._all(depth)]
        while self._took("|"):
            choices.append(self._all(depth))
        return choices[0] if len(choices) == 1 else ("any", choices)

    def _all(self, depth: int) -> Part:
        parts = []
        while self._at < len(self._text) and self._peek() not in "|)":
            parts.append(self._repeated(self._atom(depth)))
        return ("all", parts)

    def _atom(self, depth: int) -> Part:
        if self._took("("):
            return self._group(depth)
        if self._took("["):
            return ("set", self._class())
        if self._took("."):
            return ("set", _all_but(_LINE_END))
        if self._took("^"):
            return ("assert", "start")
        if self._took("$"):
            return ("assert", "end")
        if self._took("\\"):
            return self._escaped()
        if self._peek() in ("*", "+", "?") or (self._peek() == "{" and self._count(self._at)):
            self._fail("there is nothing to repeat")
        self._at += 1
        return ("set", _one(ord(self._text[self._at - 1])))

    def _group(self, depth: int) -> Part:
        if self._took("?"):
            if self._peek() in ("=", "!") or self._peek(2) in ("<=", "<!"):
                self._fail("lookaround is not supported, since it can't be answered in linear time")
            if self._took("<"):
                name = self._text[self._at :].partition(">")[0]
                if not (name.isascii() and name.isidentifier()):
                    self._fail("a group has no proper name")
                self._at += len(name) + 1
            elif not self._took(":"):
                self._fail("this kind of group is not part of ECMA-262")
        part = self._any(depth + 1)
        if not self._took(")"):
            self._fail("a parenthesis is not closed")
        return part

    def _repeated(self, part: Part) -> Part:
        bounds = self._bounds()
        if bounds is None:
            return part
        if part[0] == "assert":
            self._fail("an assertion can't be repeated")
        self._took("?")  # how much it takes matters only to groups
        if self._bounds() is not None:
            self._fail("there is nothing to repeat")
        return ("repeat", part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._took(sign):
                return bounds
        found = self._count(self._at)
        if found is None:
            return None
        least, most, self._at = found
        if most is not None and most < least:
            self._fail("a repetition has its bounds in the wrong order")
        return least, most

    def _count(self, at: int) -> tuple[int, int | None, int] | None:
        """`{2}`, `{2,}` or `{2,5}` there: least, most, where it ends. Another brace is a character."""
        if self._text[at : at + 1] != "{":
            return None
        inside, brace, _ = self._text[at + 1 : at + 20].partition("}")
        least, comma, most = inside.partition(",")
        if not brace or not _digits(least) or (most and not _digits(most)):
            return None
        highest = int(most) if most else (None if comma else int(least))
        return int(least), highest, at + 2 + len(inside)

    def _escaped(self) -> Part:
        if self._took("b"):
            return ("assert", "edge")
        if self._took("B"):
            return ("assert", "inside")
        return ("set", self._escape())

    def _escape(self) -> Ranges:
        char = self._peek()
        if not char:
            self._fail("it ends with a backslash")
        self._at += 1
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return ranges if char.islower() else _all_but(ranges)
        if char == "0" and _digits(self._peek()):
            self._fail("octal escapes are not supported")
        if char in _CONTROLS:
            return _one(_CONTROLS[char])
        if char in "xu":
            return _one(self._code(char))
        if char in "123456789" or char == "k":
            self._fail("references to groups are not supported, since they can't be answered in linear time")
        if not "!" <= char <= "~":
            self._fail("an unknown escape")
        if char.isalnum() or char == "_":
            self._fail(f"the escape \\{char} is not supported")
        return _one(ord(char))

    def _code(self, char: str) -> int:
        digits = 2 if char == "x" else 4
        if char == "u" and self._took("{"):
            found, brace, _ = self._text[self._at : self._at + 9].partition("}")
            if not brace or not found or not _HEX.issuperset(found) or int(found, 16) > _LAST:
                self._fail("an escape names no character")
            self._at += len(found) + 1
            return int(found, 16)
        found = self._peek(digits)
        if len(found) < digits or not _HEX.issuperset(found):
            self._fail("an escape names no character")
        self._at += digits
        return int(found, 16)

    def _class(self) -> Ranges:
        negated = self._took("^")
        found: list[tuple[int, int]] = []
        if self._peek() == "]":
            self._fail("a class is empty; write \\] for the bracket")
        while not self._took("]"):
            low = self._member()
            if self._peek() == "-" and self._peek(2) != "-]":
                self._at += 1
                high = self._member()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    self._fail("a range needs a character on each side")
                if low[0][0] > high[0][0]:
                    self._fail("a range has its ends in the wrong order")
                low = ((low[0][0], high[0][0]),)
            found += low
        return _all_but(tuple(found)) if negated else tuple(found)

    def _member(self) -> Ranges:
        char = self._peek()
        if not char:
            self._fail("a class is not closed")
        self._at += 1
        if char != "\\":
            return _one(ord(char))
        if self._took("b"):
            return _one(0x08)
        return self._escape()


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _one(point: int) -> Ranges:
    return ((point, point),)


# --- the machine -------------------------------------------------------------------------

# A place is ("set", ranges, next), ("split", nexts), ("assert", which, next) or ("found",).
Place = tuple[Any, ...]


class _Places:
    """The places of an expression, built from its end to its beginning."""

    def __init__(self) -> None:
        self.places: list[Place] = [("found",)]

    def add(self, place: Place) -> int:
        self.places.append(place)
        if len(self.places) > PLACES_MAX:
            raise ExpressionError(
                f"it is larger than {PLACES_MAX} places once its repetitions are written out"
            )
        return len(self.places) - 1

    def before(self, part: Part, then: int) -> int:
        """The place where `part` begins, if `then` is where it goes on."""
        kind = part[0]
        if kind in ("set", "assert"):
            return self.add((kind, part[1], then))
        if kind == "all":
            for each in reversed(part[1]):
                then = self.before(each, then)
            return then
        if kind == "any":
            return self.add(("split", tuple(self.before(each, then) for each in part[1])))
        _, inner, least, most = part
        if most is None:
            again = self.add(("split", ()))
            self.places[again] = ("split", (self.before(inner, again), then))
            then = again
        for _ in range((most or least) - least):
            then = self.add(("split", (self.before(inner, then), then)))
        for _ in range(least):
            begin = self.before(inner, then)
            if begin == then:  # nothing, however often
                break
            then = begin
        return then


_START, _AFTER_WORD, _AFTER_OTHER = 0, 1, 2


class _State(dict[str, Any]):
    """A set of places with what came before it; by character the state that follows."""

    __slots__ = ("before", "machine", "places")

    def __init__(self, machine: Expression, places: frozenset[int], before: int) -> None:
        self.machine = machine
        self.places = places
        self.before = before

    def __missing__(self, char: str) -> Any:
        return self.machine.step(self, char)


class Expression:
    """Does a text hold a match? Not shared between threads."""

    def __init__(self, pattern: str) -> None:
        built = _Places()
        self._begin = built.before(_Parser(pattern).whole(), 0)
        self._places = built.places
        self._edges = any(each[0] == "assert" and each[1] in ("edge", "inside") for each in built.places)
        self._steps = 0
        self._forget()

    def matches(self, text: str) -> bool:
        """FileProblem once it has taken more steps than a sensible expression would."""
        state = self._first
        for char in text:
            state = state[char]
            if state is None:
                return True
        return 0 in self._reached(state, None)

    def step(self, state: _State, char: str) -> _State | None:
        """The state after this character; None: there was a match before it."""
        reached = self._reached(state, char)
        following: _State | None = None
        if 0 not in reached:
            point = ord(char)
            places = {self._begin}
            for at in reached:
                place = self._places[at]
                if place[0] == "set" and any(low <= point <= high for low, high in place[1]):
                    places.add(place[2])
            before = _AFTER_WORD if self._edges and _is_word(char) else _AFTER_OTHER
            following = self._state(frozenset(places), before)
        state[char] = following
        return following

    def _state(self, places: frozenset[int], before: int) -> _State:
        self._cached += 1 + len(places)
        if self._cached > CACHED_MAX:
            self._forget()
        return self._states.setdefault((places, before), _State(self, places, before))

    def _forget(self) -> None:
        self._cached = 0
        self._states: dict[tuple[frozenset[int], int], _State] = {}
        self._first = _State(self, frozenset((self._begin,)), _START)

    def _reached(self, state: _State, following: str | None) -> set[int]:
        """All places to which no further character is needed."""
        reached: set[int] = set()
        waiting = list(state.places)
        while waiting:
            at = waiting.pop()
            if at in reached:
                continue
            reached.add(at)
            place = self._places[at]
            if place[0] == "split":
                waiting += place[1]
            elif place[0] == "assert" and self._holds(place[1], state.before, following):
                waiting.append(place[2])
        self._steps += len(reached)
        if self._steps > STEPS_MAX:
            raise FileProblem(f"needs more than {STEPS_MAX} steps to be compared with a pattern")
        return reached

    def _holds(self, which: str, before: int, following: str | None) -> bool:
        if which == "start":
            return before == _START
        if which == "end":
            return following is None
        edge = (before == _AFTER_WORD) != (following is not None and _is_word(following))
        return edge == (which == "edge")


def _is_word(char: str) -> bool:
    return char == "_" or (char.isascii() and char.isalnum())
