"""What is on record of a pipeline's pass, for whoever shows it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kfm.core.records import Node
    from kfm.core.run_states import Pass
    from kfm.explain import Account
    from kfm.wiring.app import App

NODES_MAX = 20_000


class PassSeen(NamedTuple):
    found: Pass
    nodes: dict[str, Node]  # those that have a record
    account: Account  # why it is as it is


def list_passes(app: App, limit: int) -> list[Pass]:
    """The newest first."""
    from kfm.store.run_state_tables import RunStateTables

    return RunStateTables(app.ledger.database).passes(limit=limit)  # type: ignore[attr-defined]


def read_pass(app: App, run_id: str) -> PassSeen | None:
    """The pass of this id, or of this governed run; None: there is none."""
    from kfm.store.run_state_tables import RunStateTables

    if RunStateTables(app.ledger.database).get(run_id) is None:  # type: ignore[attr-defined]
        return None
    from kfm.explain.passes import account_of_pass
    from kfm.wiring.run_states import Surroundings, open_run_states

    around = Surroundings(app.ledger, app.state, app.objects, app.loaded)
    tables = open_run_states(around, app.settings.run_state, read_only=True)
    found = tables.get(run_id)
    if found is None:
        return None
    nodes = {node.dataset_id: node for node in islice(tables.of_run(run_id), NODES_MAX)}
    return PassSeen(found, nodes, account_of_pass(tables, found))
