"""Derived datasets: what a run reads of other datasets, which windows a change affects, what is stale. Pure.

A run reads a *part* of each input: the items of its head that lie in the run's window, or all of them. The
digest of that part says whether there is something new; the version that it was read from is pinned with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from kfm.model.quantities import span
from kfm.model.records import Item, Record
from kfm.model.settings import CareLevel, ReadAs, Settings, SourceSettings
from kfm.model.windows import NO_WINDOW, SNAPSHOT, window_of

if TYPE_CHECKING:
    from kfm.model.versions import Version

KIND = "dataset"
PART_TAG = "part/1"
INPUTS_TAG = "derived/1"
CARE_LEVELS: tuple[CareLevel, ...] = get_args(CareLevel)  # the most open first
Span = tuple[int, int]  # start and end of a window


class InputPin(Record, frozen=True):
    """What a run read of one dataset. Field order is column order."""

    dataset_id: str
    read_as: ReadAs
    sequence: int  # of the head; 0: it has no version
    version_id: str | None  # the digest of its manifest
    part: str  # the digest of the files that were read; empty: there are none


class DerivedWindow(Record, frozen=True):
    """One window of a derived source, as it was made and asked for. Field order is column order."""

    window_start_ms: int
    window_end_ms: int
    pinned: str = ""  # what the last run that published it has read; empty: none has
    run_id: str | None = None
    asked: str | None = None  # what was asked for last; None: nothing, or it has been made
    asks: int = 0

    @property
    def span(self) -> Span:
        return self.window_start_ms, self.window_end_ms


class StaleWindow(Record, frozen=True):
    """A published window whose inputs hold something else now."""

    source_id: str
    dataset_id: str
    window_start_ms: int
    window_end_ms: int
    missing: tuple[str, ...] = ()  # inputs that hold nothing for it any more
    reason: Literal["changed", "gone"] = "changed"


# --- what a run reads -------------------------------------------------------------------


def items_read(version: "Version", window: Span, read_as: ReadAs) -> tuple[Item, ...]:
    """The items of a version that a run for this window reads."""
    if read_as == "current":
        return tuple(version.items())
    return tuple(
        item
        for item in version.items()
        if not item.is_snapshot and window[0] <= item.window_start_ms and item.window_end_ms <= window[1]
    )


def part_of(items: Iterable[Item]) -> str:
    """The digest of the files of some items; empty if there are none. Labels do not count."""
    from kfm.model.keys import key_of  # late: readers do not need it

    files = sorted((asset.path, asset.sha256) for item in items for asset in item.assets)
    return key_of({"kfm": PART_TAG, "files": [list(one) for one in files]}) if files else ""


def inputs_digest(parts: Mapping[str, str]) -> str:
    """What a run reads of all its inputs; empty where one of them holds nothing: then nothing can be made."""
    from kfm.model.keys import key_of  # late: readers do not need it

    if not parts or not all(parts.values()):
        return ""
    return key_of({"kfm": INPUTS_TAG, "parts": dict(parts)})


def pins_digest(pins: Sequence[InputPin]) -> str:
    return inputs_digest({pin.dataset_id: pin.part for pin in pins})


def missing_of(pins: Sequence[InputPin]) -> tuple[str, ...]:
    """The inputs that hold nothing of what is read."""
    return tuple(pin.dataset_id for pin in pins if not pin.part)


def not_there_yet(pins: Sequence[InputPin], window: Span) -> str:
    """Why nothing is made, where an input holds nothing."""
    said = [
        f"dataset {pin.dataset_id} has no version"
        if not pin.sequence
        else f"dataset {pin.dataset_id} holds nothing for {span(*window)}"
        if pin.read_as == "window"
        else f"dataset {pin.dataset_id} holds no files"
        for pin in pins
        if not pin.part
    ]
    return f"Not there yet: {'; '.join(said)}. Nothing is published."


# --- what a change affects --------------------------------------------------------------


def wanted_windows(
    source: SourceSettings, heads: "Mapping[str, Version | None]", known: Iterable[Span] = ()
) -> dict[Span, str]:
    """Each window that could be made now, and each that is known: the digest of what its run would read."""
    by_window: dict[str, dict[Span, list[Item]]] = {}
    fixed: dict[str, str] = {}
    spans: set[Span] = {(SNAPSHOT.start_ms, SNAPSHOT.end_ms)} if source.window == NO_WINDOW else set()
    for dataset_id, read_as in source.datasets.items():
        version = heads.get(dataset_id)
        if read_as == "current":
            fixed[dataset_id] = part_of(version.items()) if version else ""
            continue
        found = by_window.setdefault(dataset_id, {})
        for item in version.items() if version else ():
            if item.is_snapshot:
                continue
            around = window_of(source.window, source.time_zone, item.window_start_ms)
            if item.window_end_ms <= around.end_ms:  # what reaches beyond lies in no window
                found.setdefault((around.start_ms, around.end_ms), []).append(item)
        spans |= found.keys()

    def parts(window: Span) -> dict[str, str]:
        return fixed | {name: part_of(found.get(window, ())) for name, found in by_window.items()}

    wanted = {window: inputs_digest(parts(window)) for window in spans}
    for window in set(known) - spans:  # asked for by a person, or its inputs are gone
        pins = {
            name: part_of(items_read(version, window, read_as)) if (version := heads.get(name)) else ""
            for name, read_as in source.datasets.items()
        }
        wanted[window] = inputs_digest(pins)
    return wanted


def affected(wanted: Mapping[Span, str], known: Iterable[DerivedWindow]) -> dict[Span, str]:
    """The windows whose inputs are not what was read last, and what they would read now."""
    pinned = {one.span: one.pinned for one in known}
    return {window: digest for window, digest in wanted.items() if digest != pinned.get(window, "")}


def unasked(affected_: Mapping[Span, str], known: Iterable[DerivedWindow]) -> list[Span]:
    """Those of them that were not asked for with this content, the oldest first."""
    asked = {one.span: one.asked for one in known}
    return sorted(window for window, digest in affected_.items() if asked.get(window) != digest)


def stale_windows(
    source: SourceSettings,
    heads: "Mapping[str, Version | None]",
    shown: "Version | None",
    known: Sequence[DerivedWindow],
) -> list[StaleWindow]:
    """The windows that the dataset shows of this source and that its inputs would make otherwise now."""
    if shown is None:
        return []
    slots = {
        (item.window_start_ms, item.window_end_ms) for item in shown.items() if item.source_id == source.id
    }
    mine = [one for one in known if one.span in slots and one.pinned]
    changed = affected(wanted_windows(source, heads, [one.span for one in mine]), mine)
    found = []
    for one in mine:
        if one.span not in changed:
            continue
        gone = tuple(
            name
            for name, read_as in source.datasets.items()
            if (head := heads.get(name)) is None or not part_of(items_read(head, one.span, read_as))
        )
        found.append(
            StaleWindow(
                source_id=source.id,
                dataset_id=source.dataset,
                window_start_ms=one.window_start_ms,
                window_end_ms=one.window_end_ms,
                missing=gone,
                reason="gone" if gone else "changed",
            )
        )
    return found


def definition_of(source: SourceSettings) -> dict[str, object]:
    """What decides which windows there are and what they read."""
    return {
        "datasets": dict(source.datasets),
        "window": source.window,
        "time_zone": source.time_zone,
    }


# --- the graph of datasets --------------------------------------------------------------


def derived_sources(settings: Settings) -> list[SourceSettings]:
    return [source for source in settings.sources if source.kind == KIND]


def upstream_of(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Dataset → the datasets that it is made of, as far as they are declared."""
    declared = {dataset.id for dataset in settings.datasets}
    found: dict[str, set[str]] = {dataset_id: set() for dataset_id in declared}
    for source in derived_sources(settings):
        if source.dataset in declared:
            found[source.dataset] |= source.datasets.keys() & declared
    return {dataset_id: tuple(sorted(names)) for dataset_id, names in found.items()}


def cycle_in(upstream: Mapping[str, Sequence[str]]) -> list[str] | None:
    """A circle of datasets, each made of the one before, the first one again at its end; None: none."""
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(upstream).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return None


def lowered_care(settings: Settings, source: SourceSettings) -> list[tuple[str, CareLevel, CareLevel]]:
    """The inputs that are more restricted than the dataset made of them: input, its level, the dataset's."""

    def level(dataset_id: str) -> CareLevel | None:
        declared = settings.declared(dataset_id)
        return None if declared is None or declared.rights is None else declared.rights.care.level

    own = level(source.dataset)
    if own is None:
        return []
    return [
        (name, its, own)
        for name in source.datasets
        if (its := level(name)) is not None and CARE_LEVELS.index(its) > CARE_LEVELS.index(own)
    ]


def made_in_order(settings: Settings, chosen: Sequence[str]) -> list[str]:
    """Sources in their order, but each after those that feed a dataset which it reads."""
    upstream, placed, waiting = upstream_of(settings), list[str](), list(chosen)

    def ancestors(dataset_id: str) -> set[str]:
        found, left = set[str](), [dataset_id]
        while left:
            for name in upstream.get(left.pop(), ()):
                if name not in found:
                    found.add(name)
                    left.append(name)
        return found

    needed = {
        source_id: {name for read in source.datasets for name in (read, *ancestors(read))}
        for source_id in chosen
        if (source := settings.source(source_id)).datasets
    }
    while waiting:
        ready = next(
            one
            for one in waiting
            if not any(
                settings.source(other).dataset in needed.get(one, ()) for other in waiting if other != one
            )
        )
        waiting.remove(ready)
        placed.append(ready)
    return placed
