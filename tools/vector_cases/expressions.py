"""Regular expressions of contracts, and paths that may be published."""

from __future__ import annotations

from typing import Any

from kfm.model.templates import safe_path
from kfm.publish.contract.expressions import Expression, ExpressionError
from tools.vector_cases.shape import Case, Family, error

STANDARD = "ECMA-262, by hand"


def _expression(given: dict[str, Any]) -> Any:
    try:
        expression = Expression(given["pattern"])
    except ExpressionError as refusal:
        return {"refused": str(refusal)}
    return [expression.matches(text) for text in given["texts"]]


def _case(pattern: str, yes: list[str], no: list[str], name: str | None = None) -> Case:
    answers = [True] * len(yes) + [False] * len(no)
    return Case(name or pattern, {"pattern": pattern, "texts": [*yes, *no]}, answers, STANDARD)


def _refused(pattern: str, name: str | None = None) -> Case:
    return Case(f"refused: {name or pattern}", {"pattern": pattern, "texts": []})


EXPRESSIONS = Family(
    "expressions",
    "Patterns of contracts: does each of the texts hold a match? Or why the pattern is refused.",
    _expression,
    [
        _case("", ["", "a"], [], "the empty expression"),
        _case("b", ["abc"], ["ac", ""]),
        _case("^ab$", ["ab"], ["ab\n", "xab", "abx"]),
        _case("a|b|", ["", "zzz"], []),
        _case("^(?:a|bc)$", ["a", "bc"], ["b", "abc"]),
        _case(r"^\d+$", ["0", "2026"], ["", "1a", "\u0663"]),
        _case(r"^\D\W\S$", ["a-x", "\u0663\u00e9x"], ["1-x", "aax", "a- "]),
        _case(r"^\w+$", ["a_9"], ["a-9", "\u00e9"]),
        _case(r"^\s$", ["\v", "\u00a0", "\ufeff", "\u3000"], ["\u200b", "a", "\u0085"]),
        _case("^.$", ["a", "\U0001f33d", "\u0085", "\u200b"], ["", "\n", "\r", "\u2028", "ab"]),
        _case("^[a-cx-]$", ["b", "x", "-"], ["d", "a-"]),
        _case(r"^[^a\]\d]$", ["b", "\n", "\U0001f33d"], ["a", "]", "7"]),
        _case(r"^[\w.+-]+@[\w-]+\.[a-z]{2,}$", ["a.b+c@d-e.org"], ["a@b", "a b@c.de"]),
        _case(r"^[\b]$", ["\b"], ["b", ""], "a backspace in a class"),
        _case("^a*b+c?$", ["b", "aabbc"], ["a", "bcc"]),
        _case("^a{2}$", ["aa"], ["a", "aaa"]),
        _case("^a{2,}$", ["aa", "aaaaa"], ["a"]),
        _case("^(?:ab){1,2}$", ["ab", "abab"], ["", "ababab"]),
        _case("^a{0}b$", ["b"], ["ab"]),
        _case("^a+?b*?$", ["a", "aab"], ["b"]),
        _case("^{a}{,2}]$", ["{a}{,2}]"], ["{a}"], "braces that repeat nothing are characters"),
        _case("^(?<year>[0-9]{4})[$]$", ["2026$"], ["2026"]),
        _case(r"^a\/b\$\.\-$", ["a/b$.-"], ["a/b$x-"]),
        _case(r"^\x41\u0042\u{1f33d}\t\0$", ["AB\U0001f33d\t\0"], ["AB"]),
        _case(r"\bcat\b", ["a cat", "cat", "(cat)"], ["cats", "bobcat", "cat_"]),
        _case(r"\Bcat", ["bobcat", "_cat"], ["cat", "a cat"]),
        _case(r"^\b|\b$", ["a", "-a"], ["", "--"]),
        _case("(?:a*)*$", ["", "aaa", "b"], []),
        _case("^(a+)+$", ["a" * 50], ["a" * 50 + "!"], "what takes others for ever"),
        _case("^(?:a|aa)+$", ["a" * 99], ["a" * 99 + "!"]),
        _case("^(?:.*,){9}x$", [",,,,,,,,,x"], [",,,,,,,,x"]),
        _case("^(?:){3}a$", ["a"], ["", "aa"], "nothing, three times"),
        _case("^[\u00e0-\u00ff\U0001f300-\U0001f3ff]+$", ["\u00e9\U0001f33d"], ["e"]),
        _case(
            "^\\ud83c$",
            ["\ud83c"],
            ["\U0001f33d"],
            "half of a pair is a character only where it stands alone",
        ),
        *(
            _refused(pattern)
            for pattern in ("(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", r"(?<x>a)\k<x>")
        ),
        *(
            _refused(pattern)
            for pattern in ("(?i)a", "(?P<x>a)", "(?#x)", "(?<1>a)", "(?<x", "(", "a)", "(a", "[")
        ),
        *(
            _refused(pattern)
            for pattern in ("[]", "[^]", "[]a]", "[b-a]", r"[\d-x]", "[a-\\w]", "*", "a**", "a+{2}")
        ),
        *(
            _refused(pattern)
            for pattern in ("^*", r"\b+", "a{2,1}", "{2}", r"\A", r"\Z", r"\p{L}", r"\_", "\\\u00e9")
        ),
        *(
            _refused(pattern)
            for pattern in ("\\", r"\x4", r"\u12", r"\u{110000}", r"\u{}", r"\01", r"\c", "(?:a{99}){999}")
        ),
        _refused("(" * 51 + ")" * 51, "parentheses in parentheses"),
        _refused("[" * 5000, "many brackets"),
    ],
)


def _path(name: str, path: str, pin: Any = None) -> Case:
    return Case(name, {"path": path}, path if pin is None else pin)


_UNSEEN = (0x00, 0x1F, 0x7F, 0xAD, 0x034F, 0x061C, 0x115F, 0x17B4, 0x180E, 0x200B, 0x200C, 0x200D, 0x200E)
_UNSEEN += (0x2028, 0x202E, 0x2060, 0x2064, 0x2066, 0x206F, 0x3164, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF9, 0x1D173)
_UNSEEN += (0xE0001, 0xE0041, 0xE01EF)

PUBLISHED_PATHS = Family(
    "published_paths",
    "Paths that may be published, in NFC; everything that a person can't see in a name is refused.",
    lambda given: safe_path(given["path"]),
    [
        _path("plain", "2026/01/flow.csv"),
        _path("letters of the world", "\u0645\u062d/\u65e5\u672c/\u00e9.csv"),
        _path("made whole", "e\u0301.csv", "\u00e9.csv"),
        _path("a picture", "\U0001f33d.csv"),
        *(_path(f"U+{point:04X}", f"a{chr(point)}b.csv", error("KFM201")) for point in _UNSEEN),
        *(
            _path(repr(path), path, error("KFM201"))
            for path in ("", "/a", "a//b", "../a", "a/.b", " a", "a\\b", "x" * 256)
        ),
    ],
)

FAMILIES = [EXPRESSIONS, PUBLISHED_PATHS]
