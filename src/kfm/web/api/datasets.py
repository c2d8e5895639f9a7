"""The life of datasets over the API: versions, items, and what people change about them."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.datasets import changes
from kfm.model.dataset_changes import gone_from
from kfm.model.errors import RoleMissing
from kfm.model.records import Window, justified
from kfm.reports.datasets import (
    StoredObjects,
    item_document,
    receipt_document,
    summary_document,
    version_documents,
)
from kfm.reports.lineage import event_document
from kfm.runs import artifacts
from kfm.service.dataset_changes import Planner, made_document, make_change, preview_document, span_of
from kfm.web.api.operations import ApiCall, Reply, cursor_position
from kfm.web.api.reads import page, rest
from kfm.web.gone import gone, gone_dataset, gone_item
from kfm.web.problems import missing

VERSION_DIGITS_MAX = 15
WAITS = 202  # for a second person


def _dataset(call: ApiCall) -> str:
    """The dataset that is meant: declared, or published once."""
    wanted, settings = call.visibility.meant(call.path["dataset_id"]), call.app.settings
    declared = wanted in {one.id for one in settings.datasets}
    if wanted is None or not (declared or call.app.ledger.promotions(wanted, 1)):
        raise missing("dataset")
    return wanted


def _readable(call: ApiCall) -> str:
    """The dataset that is meant, of which there is something to read: else its tombstone is the answer."""
    wanted = _dataset(call)
    problem = gone_dataset(call.app.ledger, wanted)
    if problem is not None:
        raise problem
    return wanted


def _content(call: ApiCall) -> str:
    """The same, where names of files are told."""
    wanted = _readable(call)
    if call.visibility.hides(wanted):
        raise RoleMissing("The content of this dataset needs the role operate.")
    return wanted


def _stored(call: ApiCall) -> StoredObjects:
    app = call.app
    return StoredObjects(app.settings.limits.versions_kept, lambda sha256: app.objects.has(sha256))


# --- reading ---------------------------------------------------------------------------


def show(call: ApiCall) -> Any:
    """What readers see of a dataset, and what is withdrawn of it."""
    wanted, ledger = _readable(call), call.app.ledger
    head = version_documents(ledger, wanted, ledger.promotions(wanted, 1), _stored(call))
    return {**summary_document(call.app.settings, ledger, wanted), "head": head[0] if head else None}


def versions(call: ApiCall) -> Any:
    """Every version, the newest first, also of a dataset that is withdrawn: it is the record of it."""
    wanted, query, ledger = _dataset(call), call.query, call.app.ledger
    before = None if query["cursor"] is None else int(query["cursor"])
    found, more = page(ledger.promotions(wanted, query["limit"] + 1, before), query["limit"])
    return {
        "dataset_id": wanted,
        "versions": version_documents(ledger, wanted, found, _stored(call)),
        **rest(more, *(one.sequence for one in found[-1:])),
    }


def one_version(call: ApiCall) -> Any:
    """One version with its items, unless it holds what was taken down."""
    wanted, ledger = _content(call), call.app.ledger
    text = call.path["version"]
    number = int(text) if text.isdigit() and text.isascii() and len(text) <= VERSION_DIGITS_MAX else 0
    promotion = ledger.promotion(wanted, number)
    version = ledger.version(promotion.version_id) if promotion is not None else None
    if promotion is None or version is None:
        raise missing("version")
    against = gone_from(number, version, ledger.change_reader().withdrawals(wanted))
    if against:
        raise gone(wanted, number, against)
    (document,) = version_documents(ledger, wanted, [promotion], _stored(call))
    passed = int(call.query["cursor"] or 0)
    shown, more = page(version.items()[passed:], call.query["limit"])
    items = [item_document(one) for one in shown]
    return {"dataset_id": wanted, "version": document, "items": items, **rest(more, passed + len(shown))}


def one_item(call: ApiCall) -> Any:
    """One item of the version that readers see."""
    wanted, ledger, item_id = _content(call), call.app.ledger, call.path["item_id"]
    head = ledger.head(wanted)
    found = head[1].find((item_id,)).get(item_id) if head is not None else None
    if head is None or found is None:
        raise gone_item(ledger, wanted, item_id) or missing("item")
    return {"dataset_id": wanted, "version": head[0].sequence, "item": item_document(found)}


def list_changes(call: ApiCall) -> Any:
    """What people have changed, the newest first, each with what it has come to."""
    query, ledger = call.query, call.app.ledger
    found, more = page(
        ledger.change_reader().page(
            dataset_id=call.visibility.meant(query["dataset"]),
            kind=query["kind"],
            before=cursor_position(query["cursor"]),
            limit=query["limit"] + 1,
        ),
        query["limit"],
    )
    last = (found[-1].changed_at_ms, found[-1].change_id) if more else ()
    return {"changes": [receipt_document(ledger, one) for one in found], **rest(more, *last)}


def one_change(call: ApiCall) -> Any:
    return {"change": receipt_document(call.app.ledger, _change(call))}


def lineage(call: ApiCall) -> Any:
    change, ledger = _change(call), call.app.ledger
    messages, now_ms = ledger.outbox_messages(change.change_id), ledger.now_ms()
    return {"subject": change.change_id, "events": [event_document(one, now_ms) for one in messages]}


def provenance(call: ApiCall) -> Any:
    """In its public form: names of hidden datasets are masked for all readers."""
    return msgspec.json.decode(artifacts.provenance(call.app, _change(call).change_id, internal=False))


def _change(call: ApiCall) -> Any:
    found = call.app.ledger.change_reader().change(call.path["change_id"])
    if found is None:
        raise missing("change")
    return found


# --- changes: each is planned for a preview, and again when it is applied ----------------


def _rollback(call: ApiCall, to_version: int) -> Planner:
    wanted = _dataset(call)
    return lambda kernel: changes.plan_rollback(kernel, wanted, to_version)


def _span(call: ApiCall, window: str | None, source: str | None) -> tuple[str, Window | None, str | None]:
    wanted, settings = _dataset(call), call.app.settings
    of = settings.source_id(source)
    return wanted, span_of(settings, wanted, of, window), of


def _withdrawal(call: ApiCall, *, window: str | None, source: str | None, **more: Any) -> Planner:
    wanted, span, of = _span(call, window, source)
    return lambda kernel: changes.plan_withdrawal(kernel, wanted, span, of, **more)


def _retirement(call: ApiCall, *, purge: bool) -> Planner:
    wanted = _dataset(call)
    return lambda kernel: changes.plan_withdrawal(kernel, wanted, purge=purge, retires=True)


def _lift(call: ApiCall, *, window: str | None, source: str | None, target: str | None) -> Planner:
    wanted, span, of = _span(call, window, source)
    return lambda kernel: changes.plan_lift(kernel, wanted, span, of, target)


def _previewed(call: ApiCall, plan: Planner) -> Any:
    """What the change would do, with its digest. Nothing is written."""
    if call.visibility.hides(_dataset(call)):
        raise RoleMissing("The content of this dataset needs the role operate.")
    return preview_document(plan(call.app.kernel).plan)


def _made(call: ApiCall, plan: Planner) -> Any:
    app, body = call.app, call.body
    said = app.loaded.discretion.said
    by = justified(said, call.identity.subject, body.rationale, body.ticket, body.actor)
    made = make_change(app, plan, by, body.digest)
    return Reply(made_document(made), status=WAITS if made.change is None else None)


def preview_rollback(call: ApiCall) -> Any:
    return _previewed(call, _rollback(call, call.query["to_version"]))


def roll_back(call: ApiCall) -> Any:
    return _made(call, _rollback(call, call.body.to_version))


def preview_withdrawal(call: ApiCall) -> Any:
    return _previewed(call, _withdrawal(call, **call.query))


def withdraw(call: ApiCall) -> Any:
    body = call.body
    options = {"source": body.source, "target": body.target, "purge": body.purge}
    return _made(call, _withdrawal(call, window=body.window, **options))


def preview_retirement(call: ApiCall) -> Any:
    return _previewed(call, _retirement(call, **call.query))


def retire(call: ApiCall) -> Any:
    return _made(call, _retirement(call, purge=call.body.purge))


def preview_lift(call: ApiCall) -> Any:
    return _previewed(call, _lift(call, **call.query))


def lift(call: ApiCall) -> Any:
    body = call.body
    return _made(call, _lift(call, window=body.window, source=body.source, target=body.target))
