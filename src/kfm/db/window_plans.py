"""Windows that were asked for together: kept with their requests, read with what has become of these."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kfm.db import rows
from kfm.db.session import Database, Row, Session
from kfm.model.window_plans import PlannedWindow, WindowPlan, WindowReceipt

_ENCODE = msgspec.json.Encoder().encode
_NAMES = msgspec.json.Decoder(tuple[str, ...]).decode
_COUNTS = msgspec.json.Decoder(dict[str, int]).decode


def keep(session: Session, plan: WindowPlan, windows: Sequence[PlannedWindow]) -> None:
    """In the transaction that makes the requests."""
    values = rows.with_storable(msgspec.structs.asdict(plan), ("name", "rationale", "ticket", "requested_by"))
    values["datasets"] = _ENCODE(plan.datasets).decode()
    values["left_out"] = _ENCODE(plan.left_out).decode()
    session.all("window_plans.insert", **values)
    lines = [
        (
            plan.plan_id,
            number,
            one.source_id,
            one.dataset_id,
            one.start_ms,
            one.end_ms,
            one.instant_ms,
            one.was,
            rows.storable(one.why),
            one.request_id,
        )
        for number, one in enumerate(windows, 1)
    ]
    if lines:
        session.bulk("window_plans.add_entry", lines)


class WindowPlanReader:
    """Read access to lists of windows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def plan(self, plan_id: str) -> WindowPlan | None:
        row = self._database.session.one("window_plans.get", plan_id=plan_id)
        return None if row is None else _plan(row)

    def find(self, start: str, limit: int = 2) -> list[str]:
        """Ids that begin so."""
        found = self._database.session.all("window_plans.find", **rows.beginning(start), row_limit=limit)
        return [row[0] for row in found]

    def plans(self, limit: int, before: tuple[int, str] | None = None) -> list[WindowPlan]:
        """The newest first; `before`: the time and the id of the last one of the page before."""
        before_ms, after_id = before or (rows.NEVER, "")
        found = self._database.session.all(
            "window_plans.list", before_ms=before_ms, after_id=after_id, row_limit=limit
        )
        return [_plan(row) for row in found]

    def entries(self, plan_id: str, after: int = 0, limit: int = 1000) -> list[WindowReceipt]:
        found = self._database.session.all(
            "window_plans.entries", plan_id=plan_id, after=after, row_limit=limit
        )
        return [WindowReceipt(*row) for row in found]

    def tally(self, plan_id: str) -> dict[tuple[str, str], int]:
        """(State, outcome) of the requests → how many; ('', '') are those without one."""
        found = self._database.session.all("window_plans.tally", plan_id=plan_id)
        return {(row[0], row[1]): row[2] for row in found}


def _plan(row: Row) -> WindowPlan:
    values = dict(zip(WindowPlan.__struct_fields__, row, strict=True))
    return WindowPlan(
        **{**values, "datasets": _NAMES(values["datasets"]), "left_out": _COUNTS(values["left_out"])}
    )
