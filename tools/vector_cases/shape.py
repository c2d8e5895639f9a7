"""What one case and one family of cases are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

OURS = "computed by this implementation"


@dataclass(frozen=True)
class Case:
    """`pin` is a value that was derived elsewhere: the generator refuses to write another."""

    name: str
    input: dict[str, Any]
    pin: Any = None
    source: str = OURS


@dataclass(frozen=True)
class Family:
    name: str
    description: str
    evaluate: Callable[[dict[str, Any]], Any]
    cases: list[Case] = field(default_factory=list)


def error(code: str) -> dict[str, str]:
    """The pin of a case that must be refused."""
    return {"error": code}
