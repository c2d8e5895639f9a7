"""The branches of an environment whose configuration names a lakeFS repository."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kfm.ports import Clock, Guard, Ids, Objects, Retrying, Rng

if TYPE_CHECKING:
    from kfm.config import Loaded
    from kfm.lakefs.branches import LakefsBranches
    from kfm.lakefs.client import Client


def open_branches(
    loaded: Loaded,
    objects: Objects,
    store: Any,
    *,
    clock: Clock,
    ids: Ids,
    rng: Rng,
    announce: Callable[[str], None] = lambda _line: None,
) -> LakefsBranches:
    """`store` is the ledger: who changed which ref, and why, is told there."""
    from kfm.lakefs.branches import LakefsBranches

    client = _client(loaded, _guard(loaded, clock, rng, announce))
    return LakefsBranches(
        client,
        objects,
        ids,
        clock,
        tell=lambda entry: store.append_governance([entry]),
        epoch=store.policy_epoch,
    )


def default_branch(loaded: Loaded, timeout_ms: int) -> str:
    """Asked once: whether the server answers, knows our keys and has the repository."""

    def once(call: Callable[[int], Any], **_: Any) -> Any:
        return call(timeout_ms)

    client = _client(loaded, once)
    try:
        return str(client.ask("repositories", "get_repository").default_branch)
    finally:
        client.close()


def _client(loaded: Loaded, guard: Guard) -> Client:
    from kfm.lakefs.client import Client

    server = loaded.settings.lakefs
    assert server is not None, "the configuration names no lakeFS repository"
    return Client(
        loaded.secret(server.endpoint),
        server.repository,
        loaded.secret(server.access_key),
        loaded.secret(server.secret_key),
        guard=guard,
        discreet=loaded.discretion.hide,
    )


def _guard(loaded: Loaded, clock: Clock, rng: Rng, announce: Callable[[str], None]) -> Guard:
    from kfm.calls.guard import guarded, retry_text

    def told(retrying: Retrying) -> None:
        announce(loaded.discretion.hide(retry_text(retrying)))

    timeout_ms = loaded.settings.limits.call_timeout_ms
    return partial(guarded, clock=clock, rng=rng, timeout_ms=timeout_ms, on_retry=told)
