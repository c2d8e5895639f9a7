"""However a command ends, it is an exit code and, where something went wrong, a sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence


def guarded(run: Callable[[], int], arguments: Sequence[str]) -> int:
    try:
        code = run()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read our output has had enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, Exception) as problem:  # noqa: BLE001 - the last place where it can be told
        from kfm.cli.failures import as_error, show_error
        from kfm.cli.output import wanted_format

        verbose = "-v" in arguments or "--verbose" in arguments
        return show_error(as_error(problem), output=wanted_format(arguments), verbose=verbose, cause=problem)
