"""Reports about derived datasets: stale windows, pins of a run, the graph of datasets. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.model.dataset_changes import active
from kfm.model.derived import StaleWindow, derived_sources, stale_windows, upstream_of
from kfm.model.quantities import between, counted, instant, span
from kfm.model.times import is_all_time, rfc3339
from kfm.pipelines.draw import NodeCell, depths

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.derived import InputPin
    from kfm.model.settings import Settings, SourceSettings


GONE_MAX = 20  # windows of one source that are named; more are counted


def stale_of(ledger: LedgerReader, source: SourceSettings) -> list[StaleWindow]:
    """The windows of a derived source that its inputs would make otherwise now."""
    known = ledger.derived_reader().windows(source.id)
    if not known:
        return []
    heads = {name: head[1] if (head := ledger.head(name)) else None for name in source.datasets}
    shown = ledger.head(source.dataset)
    return stale_windows(source, heads, shown[1] if shown else None, known)


def stale_documents(ledger: LedgerReader, settings: Settings) -> list[dict[str, Any]]:
    """One for each derived source with stale windows."""
    found = []
    for source in derived_sources(settings):
        stale = stale_of(ledger, source)
        if stale:
            found.append(
                {
                    "dataset_id": source.dataset,
                    "source_id": source.id,
                    "windows": len(stale),
                    "first_window_start": instant(stale[0].window_start_ms),
                    "first_window_end": instant(stale[0].window_end_ms),
                    "inputs_gone": sum(one.reason == "gone" for one in stale),
                    "gone": [_gone(one) for one in stale if one.reason == "gone"][:GONE_MAX],
                }
            )
    return found


def _gone(one: StaleWindow) -> dict[str, Any]:
    """A window that stays published though nothing could make it now, and what a person does about it."""
    window = span(one.window_start_ms, one.window_end_ms)
    return {
        "window_start": instant(one.window_start_ms),
        "window_end": instant(one.window_end_ms),
        "missing": list(one.missing),
        "sentence": f"dataset {one.dataset_id} still shows {window}, though {_missing(one)}",
        "command": withdrawal_of(one),
    }


def _missing(one: StaleWindow) -> str:
    names = " and ".join(f"dataset {name}" for name in one.missing)
    return f"{names} {'holds' if len(one.missing) == 1 else 'hold'} nothing for it any more"


def withdrawal_of(one: StaleWindow) -> str:
    """The command that shows what would be taken down, and how to do it: nothing goes by itself."""
    window = ""
    if not is_all_time(one.window_start_ms, one.window_end_ms):
        window = f" --window {rfc3339(one.window_start_ms)}/{rfc3339(one.window_end_ms)}"
    return f"kfm withdraw {one.dataset_id}{window} --source {one.source_id}"


def stale_line(document: dict[str, Any]) -> str:
    """One line of status."""
    windows = document["windows"]
    gone = document["inputs_gone"]
    beside = f", {gone} of them without an input" if gone else ""
    if document["gone"]:
        first, more = document["gone"][0], f" and {gone - 1} more" if gone > 1 else ""
        beside += f" ({between(first['window_start'], first['window_end'])}{more}: `{first['command']}`)"
    return (
        f"{document['dataset_id']}: {counted(windows, 'window')} {'is' if windows == 1 else 'are'} stale"
        f"{beside}: `kfm explain {document['dataset_id']}`"
    )


def stale_sentence(one: StaleWindow) -> str:
    """Of one window."""
    window = span(one.window_start_ms, one.window_end_ms)
    what = f"{one.dataset_id}, {window} is stale"
    if one.missing:
        until = f"It stays published until it is withdrawn: `{withdrawal_of(one)}`."
        return f"{what}: {_missing(one)}. {until}"
    return f"{what}: its inputs have changed since it was made from source {one.source_id}."


def pin_document(pin: InputPin) -> dict[str, Any]:
    return {
        "dataset_id": pin.dataset_id,
        "read_as": pin.read_as,
        "version": pin.sequence or None,
        "version_id": pin.version_id,
        "part": pin.part or None,
    }


def pin_text(pin: InputPin) -> str:
    how = "its window" if pin.read_as == "window" else "all of it"
    return (
        f"{pin.dataset_id} version {pin.sequence}, {how}" if pin.sequence else f"{pin.dataset_id}: no version"
    )


# --- the graph ---------------------------------------------------------------------------


def dataset_graph(
    ledger: LedgerReader, settings: Settings
) -> tuple[list[NodeCell], dict[str, tuple[str, ...]]]:
    """Sources and datasets in an order in which each comes after what it is made of, and what each reads."""
    members = {member for source in settings.sources for member in source.members}
    stale = stale_documents(ledger, settings)
    heads = {head.dataset_id: head for head in ledger.heads()}
    derived = {source.id for source in derived_sources(settings)}
    states = _states(ledger, settings)
    reads: dict[str, tuple[str, ...]] = {}
    cells: list[NodeCell] = []
    for source in settings.sources:
        if source.id not in members and source.id not in derived:
            reads[_source(source.id)] = ()
            cells.append(NodeCell(_source(source.id), "source", source.kind))
    upstream, waiting = upstream_of(settings), {dataset.id for dataset in settings.datasets}
    while waiting:
        ready = sorted(name for name in waiting if not waiting & set(upstream[name]))
        for name in ready:
            for source in settings.sources:
                if source.dataset == name and source.id in derived:
                    cells.append(NodeCell(_source(source.id), "derived", _read_words(source)))
                    reads[_source(source.id)] = tuple(sorted(source.datasets))
            feeding = [
                _source(one.id) for one in settings.sources if one.dataset == name and one.id not in members
            ]
            head = heads.get(name)
            reads[name] = tuple(feeding)
            version = f"version {head.sequence}" if head else "no version"
            late = sum(one["windows"] for one in stale if one["dataset_id"] == name)
            if late and name not in states:
                cells.append(NodeCell(name, "stale", f"{version}, {counted(late, 'window')} stale"))
            else:
                cells.append(NodeCell(name, states.get(name, "dataset"), version))
        waiting -= set(ready)
    return cells, reads


def _states(ledger: LedgerReader, settings: Settings) -> dict[str, str]:
    """The datasets that are not updated on purpose, each with the word for it."""
    thrown = {switch.scope for switch in ledger.switches() if switch.position != "running"}
    found = {
        one.id: "paused"
        for one in settings.datasets
        if thrown & {"all", f"dataset:{one.id}", f"domain:{settings.domain_of(one.id)}"}
    }
    whole = [one for one in active(ledger.change_reader().withdrawals()) if one.is_whole]
    for one in sorted(whole, key=lambda one: one.retires):
        found[one.dataset_id] = "retired" if one.retires else "withdrawn"
    return found


def _source(source_id: str) -> str:
    """Sources and datasets may have the same name."""
    return f"source:{source_id}"


def _read_words(source: SourceSettings) -> str:
    return ", ".join(f"{name} by {how}" for name, how in sorted(source.datasets.items()))


def dataset_graph_document(
    cells: list[NodeCell], reads: dict[str, tuple[str, ...]], svg: str | None
) -> dict[str, Any]:
    layer = depths(reads)
    return {
        "nodes": [
            {
                "node": cell.id.removeprefix("source:"),
                "kind": "source" if cell.id.startswith("source:") else "dataset",
                "layer": layer[cell.id] + 1,
                "word": cell.word,
                "reason": cell.reason,
                "reads": [
                    {
                        "kind": "source" if each.startswith("source:") else "dataset",
                        "node": each.removeprefix("source:"),
                    }
                    for each in reads[cell.id]
                ],
            }
            for cell in cells
        ],
        "svg": svg,
    }
