"""An operation of the API carried out for a caller whose role was checked; once, if it has a key."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import KfmError, UsageError
from kfm.model.rationales import require_rationale
from kfm.model.roles import Identity
from kfm.web.api import idempotency_keys
from kfm.web.api.changes import key_reused
from kfm.web.api.operations import ApiCall, Operation, Reply
from kfm.web.api.short_ids import with_whole_ids
from kfm.web.problems import Problem, problem_of
from kfm.web.request_context import WebContext
from kfm.web.visibility import Visibility, may_know


def perform(context: WebContext, identity: Identity, operation: Operation, **values: Any) -> Reply:
    """In a thread, with an application of its own: a store is not shared between threads.

    A refusal is a Problem, without names that the caller may not know.
    """
    with context.app(identity, read_only=operation.method == "GET") as app:
        visibility = Visibility(
            app.settings,
            app.ledger,
            everything=may_know(identity),
            hide=app.loaded.hide,
            schedules=context.schedules,
        )
        try:
            values["path"] = with_whole_ids(app.ledger, operation, values["path"])
            body = values.get("body")
            digest = _digest(operation, values["path"], body) if body is not None else ""
            call = ApiCall(context, app, identity, visibility, **values, digest=digest)
            return _done(call, operation) if call.key is None else _once(call, operation)
        except (KfmError, Problem) as error:
            problem = problem_of(error)
            problem.detail = visibility.text(problem.detail)
            problem.members = visibility.document(problem.members)
            raise problem from None


def body_of(value: Any, kind: type[msgspec.Struct]) -> Any:
    """The body of a change, which has a reason."""
    if isinstance(value, dict):
        require_rationale(str(value.get("rationale") or ""), "Every change needs a rationale.")
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"The body is not valid: {error}.", remedy="/openapi.json describes it.") from None


def _digest(operation: Operation, path: Mapping[str, str], body: Any) -> str:
    """Of everything that a request asks for: the same under one key, or the key was reused."""
    what = f"{operation.method} {operation.shown_path}"
    asked_for = {"operation": what, "path": path, "body": _without_fractions(msgspec.to_builtins(body))}
    return f"sha256:{sha256(canonical_bytes(asked_for)).hexdigest()}"


def _without_fractions(value: Any) -> Any:
    """As digests hold it: fractions as texts."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {name: _without_fractions(each) for name, each in value.items()}
    return [_without_fractions(each) for each in value] if isinstance(value, list) else value


def _done(call: ApiCall, operation: Operation) -> Reply:
    found = operation.work(call)
    reply = found if isinstance(found, Reply) else Reply(found)
    return Reply(call.visibility.document(reply.document), reply.headers, reply.status)


def _once(call: ApiCall, operation: Operation) -> Reply:
    """A change under an Idempotency-Key: made once, and answered alike ever after."""
    store = call.app.store
    taken = idempotency_keys.take(
        store, call.identity.subject, call.key or "", call.digest, call.app.ids.new()
    )
    if isinstance(taken, idempotency_keys.Reused):
        raise key_reused()
    if isinstance(taken, idempotency_keys.InHand) and operation.once == "answer":
        raise Problem(
            409,
            "The first request with this Idempotency-Key is still running, or its process was interrupted. "
            "Check what was changed; then use a new key.",
        )
    if isinstance(taken, idempotency_keys.AnsweredBefore):
        return Reply(taken.document, taken.headers, taken.status)
    try:
        reply = _done(call, operation)  # a request has the key itself: also made twice, it is one
    except (KfmError, Problem):
        if isinstance(taken, idempotency_keys.KeyTaken):
            idempotency_keys.given_back(store, taken)
        raise
    kept = idempotency_keys.answered(store, taken.name, reply.document, dict(reply.headers), reply.status)
    return reply if kept is None else Reply(kept.document, kept.headers, kept.status)
