"""A process that calls a provider through a shared circuit: `python -m tests.integration.calls.caller`.

Its orders come as lines on standard input; each is answered by one JSON document on standard output.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kfm.calls.breakers import BreakerAccess, SharedBreakers
from kfm.db.ledger import Ledger
from kfm.model.errors import CircuitOpen
from kfm.system import SystemClock
from tests.conformance.db.ledgers import postgres_store, sqlite_store


def open_store(where: str) -> Ledger:
    return (
        postgres_store(where)
        if where.startswith("postgresql://")
        else sqlite_store(where, SystemClock(), copied=False)
    )


def main(where: str, provider: str, lease_ms: str) -> None:
    store = open_store(where)
    breakers = SharedBreakers(
        BreakerAccess(store, store, lambda: open_store(where)), SystemClock(), int(lease_ms)
    )
    circuit = breakers.circuit(provider)
    fence: int | None = None

    def obey(order: str) -> dict[str, Any]:
        nonlocal fence
        if order == "before":
            try:
                fence = circuit.before()
            except CircuitOpen as error:
                return {"refused": True, "not_before_ms": error.facts["not_before_ms"]}
            return {"refused": False, "fence": fence}
        circuit.after(order == "success", fence)
        return {"told": order}

    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(obey(line.strip())), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
