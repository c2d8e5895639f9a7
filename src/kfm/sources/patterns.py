"""Patterns for relative paths: `*`, `?`, `[…]` within a segment, `**` for any number of folders."""

from __future__ import annotations

from fnmatch import fnmatchcase

from kfm.core.errors import ConfigError


class Pattern:
    def __init__(self, pattern: str) -> None:
        segments = pattern.split("/")
        if any(segment in ("", ".", "..") for segment in segments):
            raise ConfigError(
                f"The pattern {pattern!r} must be relative, without empty segments, `.` or `..`."
            )
        self._segments = segments

    def matches(self, relpath: str) -> bool:
        names = relpath.split("/")
        # reached[i]: the pattern so far can end before names[i]. One pass, whatever the stars.
        reached = [True] + [False] * len(names)
        for segment in self._segments:
            if segment == "**":
                for at in range(len(names)):
                    reached[at + 1] = reached[at + 1] or reached[at]
            else:
                reached = [False] + [
                    before and fnmatchcase(name, segment)
                    for before, name in zip(reached[:-1], names, strict=True)
                ]
        return reached[-1]
