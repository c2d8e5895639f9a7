"""The links of the audit chain."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from kfm.model import audit
from kfm.model.records import GovernanceEntry
from tools.vector_cases.shape import Case, Family, error

HAND = "by hand: SHA-256 of the texts that the format prescribes"
ZEROS = "0" * 64
ONES = "1" * 64
EMPTY = '{"actor":"ada","details":{},"kind":"force","rationale":null,"recorded_at_ms":1,"subject":"r","ticket":null}'
PLAIN: dict[str, Any] = {
    "kind": "force",
    "subject": "r",
    "actor": "ada",
    "recorded_at_ms": 1,
    "rationale": None,
    "ticket": None,
    "details": {},
}


def _links(given: dict[str, Any]) -> Any:
    if "content" in given:  # a link whose entry is withheld
        return {"hash": audit.link_hash(given["previous"], given["number"], given["content"])}
    if "entries" in given:
        entries = [msgspec.convert(entry, GovernanceEntry) for entry in given["entries"]]
        return {"hashes": [one.hash for one in audit.chained(entries)]}
    entry = msgspec.convert(given["entry"], GovernanceEntry)
    return {
        "content": audit.content_hash(entry),
        "hash": audit.link(given["previous"], given["number"], entry).hash,
    }


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _by_hand(text: str, number: int = 1, previous: str = ZEROS) -> dict[str, str]:
    """The answer for an entry whose canonical text is known."""
    content = _digest(f'{{"entry":{text},"kfm":"audit-entry/1"}}')
    link = f'{{"content":"{content}","kfm":"audit-link/1","number":{number},"previous":"{previous}"}}'
    return {"content": content, "hash": _digest(link)}


def _case(name: str, *, number: int = 1, previous: str = ZEROS, **changes: Any) -> Case:
    return Case(name, {"previous": previous, "number": number, "entry": {**PLAIN, **changes}})


def _pinned(name: str, text: str, *, number: int = 1, previous: str = ZEROS, **changes: Any) -> Case:
    case = _case(name, number=number, previous=previous, **changes)
    return Case(name, case.input, _by_hand(text, number, previous), HAND)


def _bad(name: str, code: str, **changes: Any) -> Case:
    return Case(name, _case(name, **changes).input, error(code), "by the rules of the format")


def _with(old: str, new: str) -> str:
    assert old in EMPTY
    return EMPTY.replace(old, new)


LINKS = Family(
    "audit_chain",
    "An entry of the governance ledger, its number and the hash before it; the hash of its content and of its link. "
    "With `entries`, the hashes of a whole chain; with `content`, a link whose entry is withheld.",
    _links,
    [
        _pinned("the first row", EMPTY),
        _pinned("another number", EMPTY, number=2),
        _pinned("another predecessor", EMPTY, previous=ONES),
        _pinned("the largest number", EMPTY, number=2**53 - 1),
        _pinned("another kind", _with('"force"', '"switch"'), kind="switch"),
        _pinned("another subject", _with('"r"', '"dataset:levels"'), subject="dataset:levels"),
        _pinned("another actor", _with('"ada"', '"grace"'), actor="grace"),
        _pinned("another time", _with(":1,", ":1767225600000,"), recorded_at_ms=1_767_225_600_000),
        _pinned("a time before the epoch", _with(":1,", ":-1,"), recorded_at_ms=-1),
        _pinned("a rationale", _with('"rationale":null', '"rationale":"why"'), rationale="why"),
        _pinned("an empty rationale is not none", _with('"rationale":null', '"rationale":""'), rationale=""),
        _pinned("a ticket", _with('"ticket":null', '"ticket":"T-1"'), ticket="T-1"),
        _pinned("details", _with("{}", '{"a":1,"b":[true,null,"x"]}'), details={"b": [True, None, "x"], "a": 1}),
        _pinned("details in details", _with("{}", '{"a":{"c":{},"d":[]}}'), details={"a": {"d": [], "c": {}}}),
        _pinned("a detail that is null is there", _with("{}", '{"a":null}'), details={"a": None}),
        _pinned("quotes and control characters", _with('"r"', '"\\"\\\\\\n\\u0000\\u001f"'), subject='"\\\n\0\x1f'),
        _pinned("accents are not normalised", _with('"r"', '"é|e\u0301"'), subject="é|e\u0301"),
        _pinned("beyond the BMP", _with('"r"', '"😀"'), subject="😀"),
        _pinned(
            "keys in the order of UTF-16", _with("{}", '{"a":1,"😀":2,"\ue000":3}'), details={"\ue000": 3, "😀": 2, "a": 1}
        ),
        _pinned("the largest whole number", _with("{}", '{"n":9007199254740991}'), details={"n": 2**53 - 1}),
        _pinned("the tag is no part of the entry", _with("{}", '{"kfm":"audit-link/1"}'), details={"kfm": "audit-link/1"}),
        _bad("a float in the details", "KFM206", details={"n": 0.5}),
        _bad("a float that is whole", "KFM206", details={"n": 1.0}),
        _bad("a whole number that is too large", "KFM206", details={"n": 2**53}),
        Case("missing fields count as null", {"previous": ZEROS, "number": 1, "entry": {"kind": "force", "subject": "r", "actor": "ada", "recorded_at_ms": 1}}, _by_hand(EMPTY), HAND),
        Case("withheld", {"previous": ZEROS, "number": 1, "content": _by_hand(EMPTY)["content"]}, {"hash": _by_hand(EMPTY)["hash"]}, HAND),
        Case("withheld, elsewhere", {"previous": ONES, "number": 7, "content": ONES}, {"hash": _digest(f'{{"content":"{ONES}","kfm":"audit-link/1","number":7,"previous":"{ONES}"}}')}, HAND),
        Case("an empty chain", {"entries": []}, {"hashes": []}, HAND),
        Case("a chain of one", {"entries": [PLAIN]}, {"hashes": [_by_hand(EMPTY)["hash"]]}, HAND),
        Case(
            "a chain of two equal entries",
            {"entries": [PLAIN, PLAIN]},
            {"hashes": [_by_hand(EMPTY)["hash"], _by_hand(EMPTY, 2, _by_hand(EMPTY)["hash"])["hash"]]},
            HAND,
        ),
        Case("a longer chain", {"entries": [{**PLAIN, "kind": kind, "details": {"n": at}} for at, kind in enumerate(("force", "switch", "promotion", "review", "postmortem", "gc"))]}),
    ],
)  # fmt: skip

FAMILIES = [LINKS]
