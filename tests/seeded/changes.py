"""One change of each kind that the seeded world can be asked for, in an order in which all of them can."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

from kfm.model.records import GovernanceEntry
from tests.seeded.site import Site, Visitor

REASON = "the provider has mended it"
_INPUT = re.compile(r"<input\b[^>]*>")
_NAME, _VALUE = re.compile(r'name="([^"]*)"'), re.compile(r'value="([^"]*)"')
_TYPED = re.compile(r"Type <code>([^<]+)</code>")


class Change(NamedTuple):
    """`begin` names the subject in the address of the form; `more` is typed into the form."""

    action: str
    begin: Callable[[Visitor], dict[str, str]]
    more: dict[str, str] = {}
    who: str = "ann"

    def address(self, visitor: Visitor) -> str:
        return f"do/{self.action}?{urlencode(self.begin(visitor))}"

    def form(self, page: str) -> dict[str, str]:
        """What a browser sends of the form, filled in by a person."""
        found = {}
        for tag in _INPUT.findall(page.partition('method="post" action="/console/do/')[2]):
            name, value = _NAME.search(tag), _VALUE.search(tag)
            if name and ('type="checkbox"' not in tag or "checked" in tag):
                found[name[1]] = html.unescape(value[1]) if value else ""
        typed = _TYPED.search(page)
        return {**found, "rationale": REASON, **({"typed": typed[1]} if typed else {}), **self.more}


def entries(site: Site, after: int = 0) -> list[GovernanceEntry]:
    """What is in the audit log behind the entry of this number."""
    with site.context.reader() as ledger:
        return [link.entry for link in ledger.chain(after=after, limit=1000)]


def newest(site: Site) -> int:
    with site.context.reader() as ledger:
        return ledger.chain_head()[0]


def _given(**values: str) -> Callable[[Visitor], dict[str, str]]:
    return lambda _visitor: values


def _first(path: str, rows: str, field: str, **wanted: Any) -> Callable[[Visitor], dict[str, str]]:
    """The first record of a list of the API that is like this, by its id."""

    def found(visitor: Visitor) -> dict[str, str]:
        listed = visitor.api(path)[rows]
        one = next(each for each in listed if all(each[name] == value for name, value in wanted.items()))
        return {field: one[field]}

    return found


def _approval(query: str = "", **wanted: Any) -> Callable[[Visitor], dict[str, str]]:
    return _first(f"/approvals{query}", "requests", "request_id", **wanted)


_INCIDENT = _first("/incidents", "incidents", "incident_id", name="hrrr")
CHANGES = (
    Change("acknowledgeIncident", _INCIDENT),
    Change("assignIncident", _INCIDENT, {"person": "bob"}),
    Change("silenceIncident", _INCIDENT, {"until": "2026-11-17T00:00"}),
    Change("closeIncident", _INCIDENT),
    Change("silenceDataset", _given(dataset_id="ks-wells"), {"until": "2026-11-17T00:00"}),
    Change("retryIncident", _first("/incidents", "incidents", "incident_id", name="ks-drought")),
    Change("retryRun", _first("/runs?status=failed&dataset=ks-wells", "runs", "run_id")),
    Change("releaseHeld", _first("/quarantine", "held", "held_id", dataset_id="ks-drought")),
    Change(
        "approve", _first("/approvals", "requests", "request_id", dataset_id="ks-heritage-sites"), who="bob"
    ),
    Change("revokeApproval", _approval("?state=approved"), who="bob"),
    Change("reject", _approval(dataset_id="ks-air-quality"), who="bob"),
    Change("holdBreaker", _given(provider="airnow"), {"until": "2026-11-17T00:00"}),
    Change("probeBreaker", _given(provider="airnow")),
    Change("resetBreaker", _given(provider="airnow")),
    Change("setSwitch", _given(scope="dataset:ks-crop-condition"), {"position": "paused"}),
    Change("pauseSchedule", _given(schedule_id="rainfall")),
    Change("resumeSchedule", _given(schedule_id="gauges")),
    Change(
        "backfillSchedule",
        _given(schedule_id="gauges"),
        {"start": "2026-09-12T00:00", "end": "2026-09-14T00:00"},
    ),
    Change("startUpdate", _given(source="rainfall", window="2026-10-29/P1D")),
    Change("cancelRequest", _first("/requests?state=open", "requests", "request_id")),
    Change("cancelRun", _first("/runs?status=running", "runs", "run_id")),
    Change("dismissWindows", _given(dataset_id="ks-streamflow"), {"window": "2026-11-13/P1D"}),
    Change("discardHeld", _first("/quarantine?dataset=ks-wells", "held", "held_id")),
    Change("projectAgain", _given(dataset_id="ks-counties")),
    Change("rollBack", _given(dataset_id="ks-counties", to_version="2")),
    Change("withdraw", _given(dataset_id="ks-rainfall")),
    Change("lift", _given(dataset_id="ks-streamflow", window="2026-10-12/P1D")),
    Change("retire", _given(dataset_id="ks-reservoirs")),
)
