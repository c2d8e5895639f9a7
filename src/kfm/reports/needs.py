"""What needs a person, by cause: one line for each cause, however many windows and objects it holds up.

The order is that of harm. First what readers see and may not; then stops and reviews, what fails, providers
that are away, objects that were given up, what is late, older holes; last what was put to rest on purpose,
and decisions that a person waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from kfm.model.completeness import DatasetHealth, HealthCause
from kfm.model.incidents import Incident, condition
from kfm.model.next_steps import approve_command
from kfm.model.quantities import counted, instant, one_line, short_id
from kfm.model.quarantine import Approval
from kfm.model.records import Record, Run
from kfm.reports import blockers
from kfm.reports.datasets import to_withdraw
from kfm.reports.next_steps import step_of_run
from kfm.reports.window_steps import cause_command

if TYPE_CHECKING:
    from kfm.datasets.completeness import CompletenessReader
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.settings import Settings

NeedKind = Literal[
    "shown",  # readers see what they may not
    "stopped",
    "halted",
    "failing",
    "circuit",
    "given up",
    "late",
    "incomplete",
    "refused",
    "paused",
    "frozen",
    "approval",
]
_RANK = ("shown", "stopped", "halted", "failing", "circuit", "given up", "late", "incomplete", "refused")
APPROVALS_MAX = 100
INCIDENTS_MAX = 500
_OF_SEVERAL = {"incomplete": "kfm coverage", "given up": "kfm incident list"}  # it lists them all
_HOLDS = {
    "switch": "paused",
    "freeze": "frozen",
    "halt": "halted",
    "breaker": "circuit",
    "refusal": "refused",
}


class Need(Record, frozen=True):
    """One cause that someone has to do something about, or to know of."""

    kind: NeedKind
    about: tuple[str, ...]  # datasets; of a circuit the provider
    what: str
    then: str  # what becomes of it: it heals by itself, or what it needs
    command: str
    since_ms: int | None = None
    count: int = 0
    unit: str = "window"
    by: str = ""  # who caused it on purpose
    run_id: str | None = None  # the newest that shows it
    incident_id: str | None = None
    request_id: str | None = None
    scope: str = ""  # of a switch
    is_spent: bool = False  # attempts of objects are used up; else they are in quarantine

    @property
    def is_on_purpose(self) -> bool:
        return self.kind in ("paused", "frozen", "approval")


def needs(
    settings: Settings,
    ledger: LedgerReader,
    completeness: CompletenessReader,
    now_ms: int,
    healths: Sequence[DatasetHealth],
) -> list[Need]:
    """All of them, the most harmful first."""
    feeds = set(completeness.feeds())
    found = [*_shown(settings, ledger), *_blocked(settings, ledger, now_ms)]
    held = {name: one.kind for one in found for name in one.about}
    found = [_with_windows(one, healths) for one in found]
    found += _of_datasets(settings, ledger, healths, feeds, held, now_ms)
    told = {(name, one.run_id) for one in found for name in one.about}
    codes = {(one.dataset_id, cause.code) for one in healths for cause in one.causes}
    found += _given_up(ledger.incidents(state="open", limit=INCIDENTS_MAX), codes, told)
    found += _approvals(ledger.approvals(state="requested", limit=APPROVALS_MAX))
    return sorted(_together(found), key=_order)


def _with_windows(one: Need, healths: Sequence[DatasetHealth]) -> Need:
    """A pause with the windows past their time that wait for it: they are no trouble of their own."""
    if not one.scope:
        return one
    waiting = sum(
        cause.windows
        for health in healths
        for cause in health.causes
        if health.dataset_id in one.about and _waits_for_switch(cause)
    )
    return replace(one, count=waiting, unit="late window")


def _waits_for_switch(cause: HealthCause) -> bool:
    return cause.state == "waiting" and cause.code == "switch"


def _together(found: Iterable[Need]) -> list[Need]:
    """Holes, and objects that were given up for one error, are one cause however many datasets have them."""
    alike: dict[tuple[str, str], list[Need]] = {}
    for one in found:
        key = one.what.partition(":")[0] if one.kind in ("incomplete", "given up") else str(len(alike))
        alike.setdefault((one.kind, key), []).append(one)
    return [_one_of(several) for several in alike.values()]


def _one_of(several: Sequence[Need]) -> Need:
    several = sorted(several, key=lambda one: (-one.count, one.about))
    first = several[0]
    if len(several) == 1:
        return first
    since = [one.since_ms for one in several if one.since_ms is not None]
    return replace(
        first,
        about=tuple(dict.fromkeys(name for one in several for name in one.about)),
        count=sum(one.count for one in several),
        since_ms=min(since, default=None),
        command=_OF_SEVERAL[first.kind],
        incident_id=None,
    )


def _order(one: Need) -> tuple[int, int, tuple[str, ...]]:
    rank = _RANK.index(one.kind) if one.kind in _RANK else len(_RANK) + (one.kind == "approval")
    return rank, -one.count, one.about


def _shown(settings: Settings, ledger: LedgerReader) -> Iterator[Need]:
    for one in to_withdraw(settings, ledger):
        yield Need(
            kind="shown",
            about=(one["dataset_id"],),
            what=f"Readers still see it, though {one['why']}",
            then="stays so until it is withdrawn",
            command=one["command"],
            unit="dataset",
        )


def _blocked(settings: Settings, ledger: LedgerReader, now_ms: int) -> Iterator[Need]:
    for each in blockers.blockers(settings, ledger, now_ms):
        if each.kind == "replays":
            continue
        kind = "stopped" if each.kind == "switch" and not each.is_on_purpose else _HOLDS[each.kind]
        held = tuple(one.id for one in settings.datasets if each.holds(one.id, one.domain))
        subject = each.what.partition(" ")[2] if each.kind == "breaker" else ""
        yield Need(
            kind=kind,  # type: ignore[arg-type]  # one of the words of `_HOLDS`
            about=(subject,) if subject else held or (each.what,),
            what=each.why.rstrip("."),
            then={"breaker": "is probed by itself", "freeze": "ends by itself"}.get(
                each.kind, "until it is lifted"
            ),
            command=each.command,
            since_ms=each.since_ms,
            scope=each.scope,
        )


def _of_datasets(
    settings: Settings,
    ledger: LedgerReader,
    healths: Sequence[DatasetHealth],
    feeds: set[str],
    held: Mapping[str, NeedKind],
    now_ms: int,
) -> Iterator[Need]:
    for health in healths:
        for cause in health.causes:
            if cause.health not in ("failing", "late", "incomplete") and cause.code != "schedule":
                continue  # a switch or a freeze is told by itself, and what is withdrawn is no trouble
            if _waits_for_switch(cause) and health.dataset_id in held:
                continue
            holds = held.get(health.dataset_id)
            if cause.health == "failing" and (holds == "halted" or (holds and cause.state == "refused")):
                continue  # what holds it is on the list
            run = ledger.run(cause.run_id) if cause.run_id else None
            yield _of_cause(settings, ledger, health, cause, run, now_ms, health.dataset_id in feeds)


def _of_cause(
    settings: Settings,
    ledger: LedgerReader,
    health: DatasetHealth,
    cause: HealthCause,
    run: Run | None,
    now_ms: int,
    is_feed: bool,
) -> Need:
    step = step_of_run(ledger, run, now_ms, settings) if run is not None and run.status == "failed" else None
    if cause.health == "paused":
        what, then, kind = "Its schedule is paused", "until it is resumed", "paused"
    elif cause.health == "failing":
        message = (run.error_message if run else None) or f"Its windows were {cause.state}"
        what, kind = f"{cause.code}: {message}" if cause.code else message, "failing"
        then = step.sentence if step else "needs a fix"
    else:
        kind = "late" if cause.health == "late" else "incomplete"
        what = f"Past its time: {cause.state}" if kind == "late" else "Older holes"
        then = f"waits for {cause.code}" if cause.state == "waiting" else "nothing asks for it by itself"
    return Need(
        kind=kind,  # type: ignore[arg-type]
        about=(health.dataset_id,),
        what=what,
        then=then[:1].lower() + then[1:],
        command=step.command if step else cause_command(health, cause, is_feed=is_feed),
        since_ms=cause.since_ms,
        count=cause.windows,
        run_id=run.run_id if run else None,
    )


def _given_up(
    incidents: Iterable[Incident], codes: set[tuple[str, str | None]], told: set[tuple[str, str | None]]
) -> Iterator[Need]:
    """Objects of feeds that were given up, and what else no window tells of."""
    for each in incidents:
        is_told = (each.name, each.error_code) in codes or (each.name, each.subject) in told
        if each.about != "dataset" or each.kind not in ("dead-letter", "quarantine") or is_told:
            continue
        text = each.message or condition(
            each.kind, each.affected, each.error_code, each.error_class, each.subject
        )
        yield Need(
            kind="given up",
            about=(each.name,),
            what=f"{each.error_code}: {text}",
            then="comes back by a replay" if each.kind == "dead-letter" else "needs a fix, then a release",
            command=f"kfm incident show {short_id(each.incident_id)}",
            since_ms=each.opened_at_ms,
            count=each.affected,
            unit="object",
            incident_id=each.incident_id,
            is_spent=each.kind == "dead-letter",
        )


def _approvals(asked: Iterable[Approval]) -> Iterator[Need]:
    for each in asked:
        yield Need(
            kind="approval",
            about=(each.dataset_id or short_id(each.subject),),
            what=f"{each.about or each.kind}: {each.rationale}",
            then="waits for a second person",
            command=approve_command(each.request_id),
            since_ms=each.requested_at_ms,
            by=each.requested_by,
            unit="approval",
            request_id=each.request_id,
        )


def need_document(one: Need) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "about": list(one.about),
        "what": one_line(one.what),
        "then": one_line(one.then),
        "command": one.command,
        "since": instant(one.since_ms),
        "count": one.count,
        "unit": one.unit,
        "by": one.by or None,
        "run_id": one.run_id,
        "incident_id": one.incident_id,
        "request_id": one.request_id,
    }


def headline(healths: Sequence[DatasetHealth], found: Sequence[Need]) -> str:
    """How things are, in a sentence."""
    behind = sum(one.state in ("failing", "late", "incomplete") for one in healths)
    if not found:
        return "Nothing needs anyone." if not behind else f"{counted(behind, 'dataset')} behind."
    things = f"{len(found)} {'things need' if len(found) > 1 else 'thing needs'} someone"
    if not behind:
        return f"No dataset is behind; {things}."
    return f"{behind} of {counted(len(healths), 'dataset')} {'are' if behind > 1 else 'is'} behind; {things}."
