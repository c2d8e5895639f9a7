"""What `kfm doctor` says of the hooks of `incidents:`. Nobody is told anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kfm.cli.health import Finding
from kfm.core.errors import KfmError
from kfm.core.wording import counted


def examine_hooks(loaded: Any) -> Iterator[Finding]:
    from kfm import wiring
    from kfm.wiring.incidents import hook_name, probe

    with wiring.open_app(loaded, read_only=True) as app:
        for hook in loaded.settings.incidents:
            name = hook_name(hook)
            try:
                probe(app, hook)
            except (KfmError, OSError) as error:
                said = error.detail if isinstance(error, KfmError) else str(error)
                fix = "Correct the hook in `incidents`."
                yield Finding("incidents", "fail", f"{name}: {said}", fix, backend=True)
                continue
            waiting = app.ledger.hook_backlog(name).waiting
            if waiting:
                told = f"{name} has still to be told of {counted(waiting, 'change')}"
                yield Finding("incidents", "warn", told, "kfm incident deliver")
            else:
                yield Finding("incidents", "ok", f"{name} can be used")
