"""Reports about derived datasets: stale windows, pins of a run, the graph of datasets. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.model.derived import StaleWindow, derived_sources, stale_windows, upstream_of
from kfm.model.quantities import counted, instant, span
from kfm.pipelines.draw import NodeCell, depths

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.derived import InputPin
    from kfm.model.settings import Settings, SourceSettings


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
                }
            )
    return found


def stale_line(document: dict[str, Any]) -> str:
    """One line of status."""
    windows = document["windows"]
    gone = document["inputs_gone"]
    beside = f", {gone} of them without an input" if gone else ""
    return (
        f"{document['dataset_id']}: {counted(windows, 'window')} {'is' if windows == 1 else 'are'} stale"
        f"{beside}: `kfm explain {document['dataset_id']}`"
    )


def stale_sentence(one: StaleWindow) -> str:
    """Of one window."""
    window = span(one.window_start_ms, one.window_end_ms)
    what = f"{one.dataset_id}, {window} is stale"
    if one.missing:
        names = " and ".join(f"dataset {name}" for name in one.missing)
        verb = "holds" if len(one.missing) == 1 else "hold"
        return f"{what}: {names} {verb} nothing for it any more. It stays published until it is withdrawn."
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
    stale = {one["source_id"]: one for one in stale_documents(ledger, settings)}
    heads = {head.dataset_id: head for head in ledger.heads()}
    derived = {source.id for source in derived_sources(settings)}
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
                    late = stale.get(source.id)
                    word = "stale" if late else "derived"
                    reason = counted(late["windows"], "window") if late else _read_words(source)
                    cells.append(NodeCell(_source(source.id), word, reason))
                    reads[_source(source.id)] = tuple(sorted(source.datasets))
            feeding = [
                _source(one.id) for one in settings.sources if one.dataset == name and one.id not in members
            ]
            head = heads.get(name)
            reads[name] = tuple(feeding)
            cells.append(NodeCell(name, "dataset", f"version {head.sequence}" if head else "no version"))
        waiting -= set(ready)
    return cells, reads


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
