"""Texts as pages show them: characters that are not printed are made visible."""

from __future__ import annotations

import unicodedata

TEXT_CHARS_MAX = 8192
MARKS_MAX = 3  # combining marks on one letter; more would be drawn over the lines around it


def visible(text: str) -> str:
    """Text with everything that is not printed made visible, so that nothing hides, turns or moves."""
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[:TEXT_CHARS_MAX]}…"
    if text.isascii() and text.isprintable():
        return text
    found: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) or unicodedata.category(char) == "Mn" else 0
        if char in "\n\t":
            found.append(" ")
        elif not char.isprintable():
            found.append(f"⟨{ord(char):04X}⟩")
        elif marks <= MARKS_MAX:
            found.append(char)
    return "".join(found)
