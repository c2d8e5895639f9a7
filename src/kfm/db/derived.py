"""Derived datasets: what runs have read of other datasets, and which windows were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kfm.db.session import Database, Row, Session
from kfm.model.derived import DerivedWindow, InputPin, Span, affected, pins_digest, unasked
from kfm.model.records import Run
from kfm.model.requests import change_member
from kfm.model.runs import PinnedInputs


def pin(session: Session, run: Run, inputs: PinnedInputs | None) -> None:
    """With the promotion of a run: what it has read. Only what published something counts as made."""
    if inputs is None:
        return
    for one in inputs.pins:
        session.all(
            "run_inputs.add",
            run_id=run.run_id,
            dataset_id=one.dataset_id,
            read_as=one.read_as,
            sequence=one.sequence,
            version_id=one.version_id,
            part=one.part,
        )
    if inputs.published:
        session.all(
            "derived_windows.pin",
            source_id=run.source_id,
            window_start_ms=run.window_start_ms,
            window_end_ms=run.window_end_ms,
            pinned=pins_digest(inputs.pins),
            run_id=run.run_id,
        )


class DerivedReader:
    """Read access to what derived sources have read and asked for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pins(self, run_id: str) -> tuple[InputPin, ...]:
        """What a run has read of other datasets, by their names."""
        return tuple(
            InputPin(dataset_id=row[0], read_as=row[1], sequence=row[2], version_id=row[3], part=row[4])
            for row in self._database.session.all("run_inputs.of_run", run_id=run_id)
        )

    def windows(self, source_id: str) -> list[DerivedWindow]:
        return _windows(self._database.session, source_id)

    def seen(self, source_id: str) -> str | None:
        """What was looked at last; None: nothing."""
        row = self._database.session.one("derived_sources.seen", source_id=source_id)
        return None if row is None else row[0]


class DerivedSources(DerivedReader):
    """Changes of the inputs of derived sources, noted once."""

    def note(
        self,
        source_id: str,
        *,
        before: str | None,
        seen: str,
        wanted: Mapping[Span, str],
        moved: Mapping[str, int],
    ) -> int | Literal["again"]:
        """Gather a request for each affected window that was not asked for with this content; how many.

        One transaction with the note of what was looked at, and nothing if another process was faster.
        `again`: a window was made in between that `wanted` does not know. `moved`: the inputs that have
        changed, with their sequences.
        """

        def change(session: Session) -> int | Literal["again"]:
            known = _windows(session, source_id)
            if any(one.span not in wanted for one in known):
                return "again"
            if not _advance(session, source_id, before, seen):
                return 0
            changed = affected(wanted, known)
            for one in known:
                if one.asked is not None and one.span not in changed:
                    _of_window(session, "derived_windows.settle", source_id, one.span)
            todo = unasked(changed, known)
            for span in todo:
                row = _of_window(session, "derived_windows.ask", source_id, span, asked=changed[span])
                self._gather(session, source_id, span, int(row[0]), moved)
            return len(todo)

        return self._database.write(change)

    def _gather(
        self, session: Session, source_id: str, span: Span, asks: int, moved: Mapping[str, int]
    ) -> None:
        now_ms = session.now_ms()
        for dataset_id, sequence in sorted(moved.items()):
            session.all(
                "burst_members.add",
                source_id=source_id,
                dataset=dataset_id,
                member=change_member(dataset_id, sequence, span, asks),
                start_ms=span[0],
                end_ms=span[1],
                at_ms=now_ms,
            )


def _windows(session: Session, source_id: str) -> list[DerivedWindow]:
    names = DerivedWindow.__struct_fields__
    found = session.all("derived_windows.of_source", source_id=source_id)
    return [DerivedWindow(**dict(zip(names, row, strict=True))) for row in found]


def _advance(session: Session, source_id: str, before: str | None, seen: str) -> bool:
    if before is None:
        return session.one("derived_sources.first", source_id=source_id, seen=seen) is not None
    return session.one("derived_sources.advance", source_id=source_id, before=before, seen=seen) is not None


def _of_window(session: Session, query: str, source_id: str, span: Span, **more: str) -> Row:
    found = session.all(query, source_id=source_id, window_start_ms=span[0], window_end_ms=span[1], **more)
    return found[0] if found else ()
