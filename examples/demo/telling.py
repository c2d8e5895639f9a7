"""How the demo speaks: headings, commands as typed, their real output, and what was verified."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping

WIDTH = 96
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "cyan": "36"}


class DemoFailed(Exception):
    """A scene did not do what it claims."""


def wants_colour(environ: Mapping[str, str], is_tty: bool) -> bool:
    return is_tty and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


class Teller:
    """Writes to stdout; colour only on a terminal."""

    def __init__(self) -> None:
        self.colour = wants_colour(os.environ, sys.stdout.isatty())
        self.checks = 0
        self._scene = 0

    def _styled(self, text: str, *styles: str) -> str:
        if not self.colour:
            return text
        return "".join(f"\x1b[{_CODES[style]}m" for style in styles) + text + "\x1b[0m"

    def line(self, text: str = "", *styles: str) -> None:
        print(self._styled(text, *styles) if styles else text, flush=True)

    def heading(self, title: str) -> None:
        self._scene += 1
        self.section(f"{self._scene}  {title}")

    def section(self, title: str) -> None:
        self.line()
        self.line(title, "bold", "cyan")

    def say(self, text: str) -> None:
        """Prose, wrapped."""
        for line in textwrap.wrap(text, WIDTH - 3):
            self.line(f"   {line}")

    def typed(self, command: str) -> None:
        self.line(f"   $ {command}", "bold")

    def output(self, text: str) -> None:
        self.line(f"   {text}" if text else "")

    def aside(self, text: str) -> None:
        self.line(f"   {text}", "dim")

    def table(self, rows: list[tuple[str, ...]]) -> None:
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.aside(f"  {'  '.join(cells).rstrip()}")

    def verify(self, claim: str, holds: bool) -> None:
        """Say what was verified, or end the demo."""
        if not holds:
            raise DemoFailed(claim)
        self.checks += 1
        for number, line in enumerate(textwrap.wrap(claim, WIDTH - 5)):
            self.line(f"   {'✓' if number == 0 else ' '} {line}", "green")
