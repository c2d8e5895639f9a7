"""What the pages and the API are given: a place to read, a way to act, and what is configured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from kfm.model.roles import Identity, KnownPerson
from kfm.model.schedules import Schedule
from kfm.model.settings import Settings

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader


class WebContext(Protocol):
    """One configuration and its ledger, for as many requests at once as come."""

    @property
    def settings(self) -> Settings: ...

    @property
    def people(self) -> Sequence[KnownPerson]: ...

    @property
    def schedules(self) -> Sequence[Schedule]: ...

    @property
    def folder(self) -> str:
        """Of the state: artifacts of runs are in it."""

    def now_ms(self) -> int: ...

    def wake(self) -> None:
        """Something new is in the ledger: whoever runs requests need not wait until he looks."""

    def reader(self) -> AbstractContextManager[LedgerReader]:
        """The ledger, opened in the thread that uses it."""

    def app(self, identity: Identity, *, read_only: bool = False) -> AbstractContextManager[Any]:
        """The application as this person uses it. Whether he may was asked before."""
