"""Blockers: what keeps work from beginning, since when, who can lift it, and the command.

The first line of status takes the hardest, the console shows every one. Each kind is a generator: what is not
needed is not looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from kfm.model.quantities import counted, moment, short_id
from kfm.model.records import Record

if TYPE_CHECKING:
    from kfm.datasets.completeness import CompletenessReader
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.breaker import Breaker
    from kfm.model.quarantine import Approval
    from kfm.model.records import GateResult, Invocation, Run, Switch
    from kfm.model.settings import Settings

APPROVALS_SEEN_MAX = 20
OPERATOR = "an operator"
APPROVER = "another person than the requester"
_LIFTERS = {
    "care": "one person requests it, another approves",
    "sovereignty": "the authority that its rights name",
    "rights": "the maintainer of the configuration",
    "licence": "the maintainer of the configuration",
    "policy": "the maintainer of the policies",
    "budget": "an operator, with a rationale",
}


class Blocker(Record, frozen=True):
    """One thing that keeps work from beginning."""

    kind: Literal["switch", "replays", "freeze", "halt", "refusal", "breaker"]
    how: str  # in a word
    what: str  # is blocked
    why: str
    since_ms: int | None
    who: str
    command: str
    sentence: str = ""  # all of it, where it can be the first line of status
    scope: str = ""  # of a switch: what entries of the audit log are about

    @property
    def is_on_purpose(self) -> bool:
        """Was a part of the work put to rest by people? A stop is an emergency, and a pause of everything
        is more than a part."""
        return self.kind == "freeze" or (
            self.kind == "switch" and self.how == "paused" and self.scope != "all"
        )

    def holds(self, dataset_id: str, domain: str | None) -> bool:
        """Does it keep this dataset from being updated?"""
        return self.what in ("everything", f"dataset {dataset_id}", f"domain {domain}")


def switched(switches: Iterable[Switch]) -> Iterator[Blocker]:
    """Kill switches, the hardest first; one that stops replays alone blocks no new work."""
    thrown = [switch for switch in switches if switch.position != "running"]
    thrown.sort(key=lambda each: (each.position != "stopped", each.scope != "all", each.set_at_ms))
    if not thrown:
        return
    from kfm.model.gates import switch_command

    for switch in thrown:
        kind, _, name = switch.scope.partition(":")
        where = "everything" if kind == "all" else f"{kind} {name}"
        yield Blocker(
            kind="replays" if kind == "replays" else "switch",
            how=switch.position,
            what=f"replays of {name}" if kind == "replays" else where,
            why=f"Kill switch, {switch.position} by {switch.actor}: {switch.rationale}",
            since_ms=switch.set_at_ms,
            who=OPERATOR,
            command=switch_command(switch.scope),
            sentence=f"blocked by kill switch on {where}, {switch.position} by {switch.actor} "
            f"since {moment(switch.set_at_ms)}: {switch.rationale}",
            scope=switch.scope,
        )


def frozen(settings: Settings, now_ms: int) -> Iterator[Blocker]:
    """Datasets that are in a freeze window now."""
    if not settings.freezes:
        return
    from kfm.model.gates import ORIGIN_COMMAND, cause_and_remedy, force_command, freeze_gate, freeze_span_ms

    for dataset in settings.datasets:
        gate = freeze_gate(settings.freezes, dataset.id, dataset.domain, now_ms)
        if gate.allowed:
            continue
        since = [start for start, end in map(freeze_span_ms, settings.freezes) if start <= now_ms < end]
        cause, _ = cause_and_remedy(gate)
        source = next((each.id for each in settings.sources if each.dataset == dataset.id), None)
        yield Blocker(
            kind="freeze",
            how="frozen",
            what=f"dataset {dataset.id}",
            why=cause,
            since_ms=max(since, default=None),
            who="it ends by itself; an operator can override it",
            command=force_command(f"kfm run --source {source}") if source else ORIGIN_COMMAND,
            sentence=f"blocked by a freeze window on dataset {dataset.id}: {cause}",
        )


def halted(settings: Settings, ledger: LedgerReader, now_ms: int) -> Iterator[Blocker]:
    """Datasets that wait for a review."""
    for dataset in settings.datasets:
        held = ledger.halted(dataset.id)
        if held is not None:
            from kfm.reports.next_steps import step_of_held

            step = step_of_held(ledger, held, now_ms, settings)
            asked = step is not None and step.code == "approve"
            yield Blocker(
                kind="halt",
                how="halted",
                what=f"dataset {dataset.id}",
                why=f"Halted for review after run {short_id(held.subject)}: {held.error_code}",
                since_ms=held.held_at_ms,
                who=APPROVER if asked else "an operator requests it, another person approves",
                command=step.command if step else "",
                sentence=f"blocked by a halt of dataset {dataset.id} for review since "
                f"{moment(held.held_at_ms)}, after run {short_id(held.subject)}: {held.error_code}",
            )


def open_circuits(settings: Settings, breakers: Iterable[Breaker], now_ms: int) -> Iterator[Blocker]:
    """Providers whose circuit is open."""
    for breaker in breakers:
        if breaker.state == "closed":
            continue
        from kfm.model.breaker import limits_of, wait_ms
        from kfm.reports.breakers import breaker_document, breaker_headline

        tried = breaker.state == "half-open"
        left_ms = wait_ms(breaker, now_ms, limits_of(breaker.provider, settings.providers))
        when = f"tried again at {moment(now_ms + left_ms)}" if left_ms > 0 else "the next call tries it again"
        again = "" if tried else f"; {when}"
        sentence, command = breaker_headline(breaker_document(breaker, now_ms, settings))
        yield Blocker(
            kind="breaker",
            how="circuit half-open" if tried else "circuit open",
            what=f"provider {breaker.provider}",
            why=f"Its circuit is open after {counted(breaker.failures, 'failure')} in a row{again}",
            since_ms=breaker.tripped_at_ms,
            who="it is probed by itself; an operator can close it",
            command=command,
            sentence=sentence,
        )


def blockers_of(
    settings: Settings, ledger: LedgerReader, dataset_id: str, now_ms: int, source_id: str | None = None
) -> Iterator[Blocker]:
    """What keeps new work of one dataset, or of one of its sources, from beginning now, the hardest first;
    without refused invocations.

    A halt comes before the pause that it has set: lifting the pause alone starts nothing.
    """
    from msgspec.structs import replace

    from kfm.model.breaker import providers_of

    dataset = settings.declared(dataset_id)
    known = replace(settings, datasets=() if dataset is None else (dataset,))
    yield from halted(known, ledger, now_ms)
    scopes = ("all", f"dataset:{dataset_id}", f"domain:{settings.domain_of(dataset_id)}")
    yield from switched(switch for switch in ledger.switches() if switch.scope in scopes)
    yield from frozen(known, now_ms)
    mine = [
        source
        for source in settings.sources
        if source.dataset == dataset_id and source_id in (None, source.id)
    ]
    providers = {name for source in mine for name in providers_of(source, settings.source)}
    called = [breaker for breaker in ledger.breakers() if breaker.provider in providers]
    yield from open_circuits(settings, refusing(settings, called, now_ms), now_ms)


def refusing(settings: Settings, breakers: Iterable[Breaker], now_ms: int) -> list[Breaker]:
    """Those that refuse a call made now: after the cool-down the next call is the trial."""
    from kfm.model.breaker import limits_of, may_call

    return [
        each
        for each in breakers
        if may_call(each, now_ms, limits_of(each.provider, settings.providers)) == "refuse"
    ]


def lifting(blocker: Blocker) -> str:
    """Who can lift it, and the command."""
    return f"Who can lift it: {blocker.who}: `{blocker.command}`."


def blockers(settings: Settings, ledger: LedgerReader, now_ms: int) -> list[Blocker]:
    """All of it, the hardest first."""
    switches = ledger.switches()
    return [
        *switched(switches),
        *frozen(settings, now_ms),
        *halted(settings, ledger, now_ms),
        *open_circuits(settings, ledger.breakers(), now_ms),
        *refused_calls(settings, ledger, switches, now_ms),
    ]


# --- refused invocations -------------------------------------------------------------------


def refused_calls(
    settings: Settings, ledger: LedgerReader, switches: Sequence[Switch], now_ms: int
) -> Iterator[Blocker]:
    """Datasets whose last invocation a gate refused that still refuses; without switches and freezes."""
    for name in (dataset.id for dataset in settings.datasets):
        call = ledger.newest_invocation(name)
        if call is None:
            continue
        gate = blocking_gate(call, settings, switches, now_ms)
        if gate is not None and gate.gate == "withdrawal" and not _is_withdrawn(ledger, call):
            continue  # lifted since
        if gate is not None and gate.gate not in ("switch", "freeze"):
            asked = ledger.approvals(state="requested", limit=APPROVALS_SEEN_MAX)
            waiting = next(
                (each for each in asked if each.kind in ("attempt", "update") and each.dataset_id == name),
                None,
            )
            yield _refusal(call, gate, waiting)


def _is_withdrawn(ledger: LedgerReader, call: Invocation) -> bool:
    from kfm.model.dataset_changes import active

    start_ms, end_ms = call.window_start_ms or 0, call.window_end_ms or 0
    known = active(ledger.change_reader().withdrawals(call.dataset_id))
    return any(one.covers(call.source_id, start_ms, end_ms) for one in known)


def blocking_gate(
    call: Invocation, settings: Settings, switches: Sequence[Switch], now_ms: int
) -> GateResult | None:
    """The gate that refused an invocation without a run and would refuse it again, as far as is known."""
    if call.outcome != "refused" or call.run_id is not None:
        return None
    from kfm.model.gates import freeze_gate, switch_gate
    from kfm.reports.explain.invocations import refused

    domain = settings.domain_of(call.dataset_id)
    for gate in refused(call.gates):
        if gate.gate == "switch":
            lifted = switch_gate(switches, call.dataset_id, domain, in_flight=False).allowed
        elif gate.gate == "freeze":
            lifted = freeze_gate(settings.freezes, call.dataset_id, domain, now_ms).allowed
        else:
            lifted = gate.gate == "plan"  # it was about that one invocation
        if not lifted:
            return gate
    return None


def _refusal(call: Invocation, gate: GateResult, waiting: Approval | None) -> Blocker:
    cause = gate.cause or gate.reason
    command = gate.command or f"kfm explain {short_id(call.invocation_id)}"
    who = _LIFTERS.get(gate.gate, "a person who can do what the rule asks for")
    if waiting is not None:
        from kfm.model.next_steps import approve_command

        command, who = approve_command(waiting.request_id), APPROVER
    return Blocker(
        kind="refusal",
        how="refused",
        what=f"dataset {call.dataset_id}",
        why=f"{cause.rstrip('.')} ({', '.join(gate.policy_ids)})." if gate.policy_ids else cause,
        since_ms=call.requested_at_ms,
        who=who,
        command=command,
    )


# --- runs that failed ----------------------------------------------------------------


def failures(completeness: CompletenessReader, ledger: LedgerReader) -> list[Run]:
    """The newest run of each window, where that failed and nothing has settled it; newest first.

    The same window of the same source is the same work here, whatever its pipeline was: once a corrected
    one has succeeded, or an earlier one that is in use again has found it done, the failure needs no
    attention any more.
    """
    found = [run for run_id in completeness.failed_runs() if (run := ledger.run(run_id)) is not None]
    return sorted(found, key=lambda run: (run.start_time_ms, run.run_id), reverse=True)
