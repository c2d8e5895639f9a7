"""The files that come with kfm, for code that must not know of paths or file systems.

Not importlib.resources: importing it costs more than reading all of them.
"""

from __future__ import annotations

_CONTRACTS = f"{__file__.rpartition('/core/')[0]}/contracts"


def contract(name: str) -> bytes:
    """One of the language-neutral contracts, by its path below `contracts`."""
    with open(f"{_CONTRACTS}/{name}", "rb") as file:
        return file.read()
