"""Branches for the commands: who asks, the gates before protected ones, what is kept discreet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kfm.branch_ports import Branches, BranchReader
from kfm.core.branching import Proposal, Why
from kfm.core.errors import SwitchThrown
from kfm.engine.merging import Merging
from kfm.ports import Store

if TYPE_CHECKING:
    from kfm.wiring.app import App


def branches(app: App) -> Branches:
    """Where the configuration says that they are."""
    if app.settings.lakefs is None:
        assert app.store is not None, "a command that only reads was about to change branches"
        return app.store.branch_store()
    return _on_lakefs(app)


def reader(app: App) -> BranchReader:
    return app.ledger.branch_reader() if app.settings.lakefs is None else _on_lakefs(app)


def _on_lakefs(app: App) -> Branches:
    from kfm.wiring.lakefs import open_branches

    return open_branches(
        app.loaded,
        app.objects,
        app.ledger if app.store is None else app.store,
        clock=app.clock,
        ids=app.ids,
        rng=app.rng,
        announce=app.announce,
    )


def merging(app: App) -> Merging:
    """Merges and reverts, with the gates that every environment has."""
    store = app.store
    assert store is not None, "a command that only reads was about to merge"
    made = Merging(branches(app))
    made.before_merge(switch_gate(store))
    return made


def switch_gate(store: Store) -> Callable[[Proposal], None]:
    """Nothing is merged into a protected branch while everything is paused or stopped."""

    def gate(proposal: Proposal) -> None:
        for switch in store.switches():
            if switch.scope == "all" and switch.position != "running":
                raise SwitchThrown(f"Everything is {switch.position}: `{proposal.target}` was not touched.")

    return gate


def why(app: App, rationale: str | None, ticket: str | None = None, claimed: str | None = None) -> Why:
    said = app.loaded.discretion.said
    return Why(
        actor=app.actor,
        rationale=said(rationale) if rationale else None,
        ticket=said(ticket) if ticket else None,
        claimed_actor=said(claimed) if claimed else None,
    )
