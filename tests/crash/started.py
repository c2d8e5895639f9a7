"""`kfm` as it is, with threads that are switched as often as can be: what two do at once, they do at once."""

from __future__ import annotations

import sys

from kfm.cli import main

SWITCH_SECONDS = 1e-6


def hurry() -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    sys.setswitchinterval = lambda _seconds: None  # type: ignore[assignment]  # a command sets its own


if __name__ == "__main__":
    hurry()
    main()
