"""Access control of commands: the role that a command needs, and the record of a refusal."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

from kfm.config.loader import token
from kfm.config.state_folder import StateFolder
from kfm.model.errors import KfmError, RoleMissing
from kfm.model.roles import Role, decide, refusal_entry, who_could

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.ports import Clock


def require_role(loaded: Loaded, role: Role, what: str, clock: Clock) -> None:
    """Raise RoleMissing where people have roles and the caller lacks this one; the ledger records it.

    Reading without a token is open, and a refused reading leaves no record.
    """
    if not loaded.settings.people or (role == "read" and token() is None):
        return
    identity = loaded.identity()
    access = decide(identity, role, loaded.people(), what=f"`{what}`")
    if access.allowed:
        return
    if role != "read":
        # The refusal holds also where the ledger can't be written.
        with suppress(KfmError, OSError), closing(StateFolder.of(loaded, clock).open_ledger()) as store:
            store.append_governance([refusal_entry(identity, role, what, access.reason, store.now_ms())])
    raise RoleMissing(access.reason, remedy=who_could(access.others))
