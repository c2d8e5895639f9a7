"""One call that asked for a run: what became of it, who let it or not."""

from __future__ import annotations

from kfm.core.records import Record
from kfm.explain import explain
from kfm.serving.console.views import telling
from kfm.serving.console.views.facts import allowed
from kfm.serving.console.visits import NotHere, Visit, short


class CallView(Record, frozen=True):
    title: str
    dataset_id: str
    source_id: str
    row: telling.CallRow
    run_href: str | None
    run_id: str
    story: telling.Story
    gates: tuple[telling.CallGates, ...]
    command: str


def view(visit: Visit) -> CallView:
    call = visit.reader.invocation(visit.params["invocation_id"])
    if call is None:
        raise NotHere("No call of that id is on record. `kfm explain DATASET` names its newest one.")
    allowed(visit, call.dataset_id)
    return CallView(
        title=f"Call {short(call.invocation_id)}",
        dataset_id=call.dataset_id,
        source_id=call.source_id,
        row=telling.call_row(visit, call),
        run_href=visit.run(call.run_id) if call.run_id else None,
        run_id=short(call.run_id) if call.run_id else "",
        story=telling.story(visit, explain(visit.reader, call.invocation_id, visit.now_ms)),
        gates=tuple(telling.gate_rows(visit, [call])),
        command=f"kfm explain {short(call.invocation_id)}",
    )
