"""Gate decisions: who may stop work, and what a force can pass. Pure.

A gate answers with a `GateResult`; `combine` turns the answers into one
`GateDecision`. Its first blocker has the cause, who can lift it and the command
that does as fields; the sentence is made of them by `gate_sentence`.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from fnmatch import fnmatchcase

import msgspec

from kfm.model.dataset_changes import Withdrawal, active, lift_command, span_words
from kfm.model.errors import (
    BudgetSpent,
    ConfigError,
    ContractViolated,
    DataWithdrawn,
    GateDenied,
    Halted,
    RationaleRequired,
    Refused,
    RightsMissing,
    SwitchThrown,
)
from kfm.model.quantities import counted, span
from kfm.model.records import Check, GateCode, GateResult, Record, Switch, ValidationReport, Window
from kfm.model.settings import DatasetSettings, Freeze, SourceSettings
from kfm.model.window_rules import (
    WindowSpan,
    across,
    is_window,
    merges_windows,
    replaced,
    rewindow_command,
    rewindow_remedy,
)
from kfm.model.windows import window_of

# The only gates a force may pass. A result that calls itself overridable is
# believed only if its gate stands here: a plugin can't open a CARE gate.
OVERRIDABLE_GATES = frozenset({"duplicate-key", "budget", "freeze", "window"})

# A violation found by one of these halts the run and pauses the dataset.
HALTING_GATES = frozenset({"care", "sovereignty"})

_STRICTNESS = {"running": 0, "paused": 1, "stopped": 2}
_TEXT_MAX = 200

ANY_WORK = "kfm run …"  # as the gate vectors have it, which know neither source nor window
ORIGIN_COMMAND = "kfm config show --origin"


class ForceRequest(Record, frozen=True, kw_only=True):
    """A force: a request to pass overridable gates, with the person who answers for it."""

    actor: str
    rationale: str | None = None
    ticket: str | None = None


class GateDecision(Record, frozen=True, kw_only=True):
    """All answers of the gates, and what follows from them."""

    allowed: bool
    results: tuple[GateResult, ...]
    first_blocker: GateResult | None = None
    halts: bool = False
    approval: tuple[str, str] | msgspec.UnsetType = msgspec.UNSET  # request and digest of what counted
    # That approval is for more than one attempt: no person answers for this one.
    unattended: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def answered(self) -> bool:
        """Does a second person answer for this one attempt?"""
        return bool(self.approval) and not self.unattended

    @property
    def overridden(self) -> tuple[str, ...]:
        """The gates that a force passed."""
        return tuple(result.gate for result in self.results if result.overridden)


def gate_sentence(cause: str, remedy: str | None) -> str:
    """A refusal in words, for readers only."""
    return f"{cause} {remedy}" if remedy else cause


def denied(
    gate: str,
    code: GateCode,
    cause: str,
    *,
    remedy: str | None = None,
    command: str | None = None,
    until_ms: int | None = None,
    policy_ids: tuple[str, ...] = (),
    overridable: bool = False,
) -> GateResult:
    """A gate's refusal: its facts, and the sentence that is made of them."""
    return GateResult(
        gate=gate,
        allowed=False,
        reason=gate_sentence(cause, remedy),
        policy_ids=policy_ids,
        overridable=overridable,
        halts=gate in HALTING_GATES,
        code=code,
        cause=cause,
        remedy=msgspec.UNSET if remedy is None else remedy,
        command=msgspec.UNSET if command is None else command,
        until_ms=msgspec.UNSET if until_ms is None else until_ms,
    )


def switch_gate(switches: Sequence[Switch], dataset_id: str, domain: str, in_flight: bool) -> GateResult:
    """Is work on this dataset allowed to start, or to go on?

    Paused stops new starts; stopped cancels work in flight too. The strictest
    switch that covers the dataset wins, whatever its scope. No force passes it.
    """
    return _switches_of(switches, ("all", f"domain:{domain}", f"dataset:{dataset_id}"), in_flight)


def general_gate(switches: Sequence[Switch], *, in_flight: bool) -> GateResult:
    """Is work that belongs to no dataset allowed to start, or to go on? The switch for everything decides."""
    return _switches_of(switches, ("all",), in_flight)


def replay_gate(switches: Sequence[Switch], dataset_id: str, domain: str) -> GateResult:
    """May units of this dataset be brought back? What stops new work stops that, and a switch of its own."""
    general = switch_gate(switches, dataset_id, domain, in_flight=False)
    if not general.allowed:
        return general
    return _switches_of(switches, ("replays:all", f"replays:{dataset_id}"), in_flight=False)


def _switches_of(switches: Sequence[Switch], scopes: tuple[str, ...], in_flight: bool) -> GateResult:
    newest: dict[str, Switch] = {}
    for switch in switches:
        held = newest.get(switch.scope)
        if switch.scope in scopes and (held is None or _recency(switch) > _recency(held)):
            newest[switch.scope] = switch
    thrown = sorted(
        (switch for switch in newest.values() if switch.position != "running"),
        key=lambda switch: (-_STRICTNESS[switch.position], scopes.index(switch.scope)),
    )
    if not thrown:
        return GateResult(gate="switch", allowed=True, reason="No kill switch stands in the way.")
    return _thrown(thrown, in_flight)


def _recency(switch: Switch) -> tuple[int, int]:
    # Two settings of one scope in the same millisecond: the stricter stands.
    return switch.set_at_ms, _STRICTNESS[switch.position]


def _thrown(thrown: list[Switch], in_flight: bool) -> GateResult:
    worst = thrown[0]
    goes_on = in_flight and worst.position == "paused"
    cause = (
        f"{_scope_words(worst.scope)} {worst.position} since {utc_text(worst.set_at_ms)} "
        f"by {_one_line(worst.actor)}: {_sentence(worst.rationale)}"
    )
    if goes_on:
        return GateResult(gate="switch", allowed=True, reason=f"{cause} Work in flight goes on.")
    if len(thrown) > 1:
        others = ", ".join(f"{switch.scope} {switch.position}" for switch in thrown[1:])
        cause += f" Also in the way: {others}."
    command = switch_command(worst.scope)
    remedy = f"An operator lifts it with `{command}`."
    return denied("switch", "switch-thrown", cause, remedy=remedy, command=command)


def switch_command(scope: str) -> str:
    """The command that lifts a kill switch of this scope."""
    kind, _, name = scope.partition(":")
    flag = "--all" if kind == "all" else f"--{kind} {name}"  # also --replays all
    return f"kfm switch set running {flag} --rationale TEXT"


def _scope_words(scope: str) -> str:
    kind, _, name = scope.partition(":")
    if kind == "replays":
        return "Replays are" if name == "all" else f"Replays of {name} are"
    return "Everything is" if kind == "all" else f"The {kind} {name} is"


def force_command(work: str) -> str:
    """The command that passes a freeze, or opens a new revision: the one that asks for the work, forced."""
    return f"{work} --force --rationale TEXT --ticket ID"


def freeze_gate(
    freezes: Sequence[Freeze],
    dataset_id: str,
    domain: str,
    now_ms: int,
    zone: tzinfo = UTC,
    *,
    work: str | None = ANY_WORK,
) -> GateResult:
    """Is this moment inside a freeze window of the configuration?

    `work`: the command that asks for what it would refuse; None: no command passes it.

    A window is half open: start <= now < end. A date without a time, and a time
    without an offset, are read in `zone`; a date counts from midnight. Both the
    dataset and the domain patterns have to match. A force passes it.
    """
    for freeze in freezes:
        start_ms, end_ms = freeze_span_ms(freeze, zone)
        covers = _matches(freeze.datasets, dataset_id) and _matches(freeze.domains, domain)
        if covers and start_ms <= now_ms < end_ms:
            command = force_command(work) if work else None
            passed = f"; an operator passes it with `{command}`" if command else ""
            return denied(
                "freeze",
                "frozen",
                f"Frozen from {utc_text(start_ms)} to {utc_text(end_ms)}: {_sentence(freeze.reason)}",
                remedy=f"It ends by itself{passed}.",
                command=command,
                until_ms=end_ms,
                overridable=True,
            )
    return GateResult(gate="freeze", allowed=True, reason="No freeze window covers this moment.")


def freeze_span_ms(freeze: Freeze, zone: tzinfo = UTC) -> tuple[int, int]:
    """Start and end of a freeze window; ConfigError if they make no span."""
    start_ms, end_ms = _instant_ms(freeze.start, zone), _instant_ms(freeze.end, zone)
    if end_ms <= start_ms:
        raise ConfigError(f"The freeze window {freeze.start} … {freeze.end} ends before it begins.")
    return start_ms, end_ms


def _instant_ms(text: str, zone: tzinfo) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"The freeze window's time {text!r} can't be read.",
            remedy="Write it as 2026-12-20 or 2026-12-20T06:00:00Z.",
        ) from error


def _matches(patterns: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def rights_gate(dataset: DatasetSettings) -> GateResult:
    """Are a licence and a CARE label declared? They travel with every published record."""
    rights = dataset.rights
    missing = [
        field
        for field, value in (
            ("rights.license", rights.license if rights else ""),
            ("rights.care.label", rights.care.label if rights else ""),
        )
        if not value.strip()
    ]
    if not missing:
        return GateResult(gate="rights", allowed=True, reason="A licence and a CARE label are declared.")
    return denied(
        "rights",
        "rights-missing",
        f"The dataset {dataset.id} declares no {' and no '.join(missing)}.",
        remedy=f"Add it to the configuration; `{ORIGIN_COMMAND}` names the file.",
        command=ORIGIN_COMMAND,
    )


def window_gate(
    dataset_id: str, window: Window, newest: Window | None, *, work: str | None = ANY_WORK
) -> GateResult:
    """May this window take the place of what the dataset shows? `newest`: the newest that it shows of a
    source whose windows replace each other; None: none.

    `work`: the command that asks for what it would refuse. A force passes it.
    """
    if newest is None or window.end_ms >= newest.end_ms:
        return GateResult(gate="window", allowed=True, reason="The dataset shows no newer window.")
    command = force_command(work) if work else None
    return denied(
        "window",
        "older-window",
        f"The dataset {dataset_id} shows {span(newest.start_ms, newest.end_ms)}, which is newer than "
        f"{span(window.start_ms, window.end_ms)} and would be replaced by it (`mode: replace`).",
        remedy=f"An operator passes it with `{command}`." if command else None,
        command=command,
        overridable=True,
    )


def length_gates(
    source: SourceSettings,
    window: Window,
    recorded: tuple[str, str | None] | None,
    shown: Sequence[WindowSpan],
) -> list[GateResult]:
    """The refusal of a window of another length than the one on record, or that would stand beside one that
    it overlaps; none where it may be published. No force passes it.

    `recorded`: the length, and the change that made it so. `shown`: the windows that the dataset shows of the
    source. A source whose length was never changed may be asked for any window, as ever.
    """
    if recorded is None or not merges_windows(source):
        return []
    length, changed_by = recorded
    if source.window != length:
        name = source.names[-1]
        return [
            denied(
                "window",
                "window-length",
                f"Windows of {name} are {length} long on record, and {source.window} in the configuration.",
                remedy=rewindow_remedy(name, source.window, length),
                command=f"{rewindow_command(name, source.window)} --yes --rationale TEXT",
            )
        ]
    asked = WindowSpan(start_ms=window.start_ms, end_ms=window.end_ms)
    if changed_by is None or asked in shown:
        return []
    blocking = across(asked, shown)
    if blocking is None and not is_window(asked, length, source.time_zone):
        blocking = next(iter(replaced(asked, shown)), None)
    if blocking is None:
        return []
    return [
        denied(
            "window",
            "window-across",
            f"{span(blocking.start_ms, blocking.end_ms)} is published, and "
            f"{span(asked.start_ms, asked.end_ms)} can't take its place: readers would lose a part, or see "
            "it twice.",
            remedy=f"{_instead(blocking, length, source.time_zone)}; or withdraw it and lift that first.",
        )
    ]


def _instead(blocking: WindowSpan, length: str, zone: str) -> str:
    """What can be asked for beside, or in the place of, a window that is published."""
    around = window_of(length, zone, blocking.start_ms)
    if WindowSpan(start_ms=around.start_ms, end_ms=around.end_ms).holds(blocking):
        return f"Ask for the window of {length} that holds it"
    return f"Ask for windows of {length} beside it"


def withdrawal_gates(
    withdrawals: Iterable[Withdrawal], source_id: str, start_ms: int, end_ms: int
) -> list[GateResult]:
    """The refusal of a window that was withdrawn; none where it was not. No force passes it."""
    for one in active(withdrawals):
        if one.covers(source_id, start_ms, end_ms):
            what = "is retired" if one.retires else f"is withdrawn ({span_words(one)})"
            command = lift_command(one)
            return [
                denied(
                    "withdrawal",
                    "withdrawn",
                    f"The dataset {one.dataset_id} {what} since {utc_text(one.withdrawn_at_ms)}: "
                    f"{_sentence(one.reason)}",
                    remedy=f"An operator allows it again with `{command}`.",
                    command=command,
                )
            ]
    return []


def undeclared_gate(dataset_id: str) -> GateResult:
    """The refusal of a dataset that the configuration has lost since the work was asked for."""
    return denied(
        "policy",
        "dataset-unknown",
        f"The dataset {dataset_id} is not in the configuration any more.",
        remedy="Declare the dataset again, then the same command runs.",
    )


def name_gates(dataset_id: str, owner: str | None) -> list[GateResult]:
    """The refusal of a dataset whose id is the name of another one, which was renamed to it; none where it is
    its own. No force passes it: readers would find two datasets at one address."""
    if owner in (None, dataset_id):
        return []
    return [
        denied(
            "policy",
            "name-taken",
            f"`{dataset_id}` is a name of the dataset that was first called `{owner}`.",
            remedy=f"Declare it as `{{id: {dataset_id}, formerly: [{owner}]}}`, or choose another id.",
        )
    ]


def contract_gate(report: ValidationReport | None) -> GateResult:
    """Did the staged bytes keep their contract? None: the source declares no contract."""
    if report is None:
        return GateResult(gate="contract", allowed=True, reason="The source declares no contract.")
    if not report.checks:
        # A contract that checked nothing proves nothing.
        return denied("contract", "contract-empty", "The contract made no check, so nothing is proven.")
    failed = [check for check in report.checks if not check.passed]
    if not failed:
        return GateResult(gate="contract", allowed=True, reason=f"All {len(report.checks)} checks passed.")
    many, first = checks_failed(len(failed), len(report.checks)), check_text(failed[0])
    return denied(
        "contract",
        "contract-violated",
        f"{many}, the first is {first}" if len(failed) > 1 else f"{many}: {first}",
        remedy="Fix the data or the contract, then retry.",
    )


def checks_failed(failed: int, made: int) -> str:
    """How many checks of a contract failed, as the beginning of a sentence."""
    return f"{failed} of {counted(made, 'check')} failed"


def check_text(check: Check) -> str:
    """One check of a contract as one line: its name, the file, what was found."""
    place = f" in {check.path}" if check.path else ""
    return f"{check.name}{place}: {_sentence(check.detail)}"


def combine(results: Iterable[GateResult], force: ForceRequest | None = None) -> GateDecision:
    """One decision from all answers.

    A force passes overridable gates only, and only if it passes all that
    refused: otherwise nothing is marked as overridden, because nothing was.
    """
    if force is not None:
        _require_answerable(force)
    answers = tuple(results)
    against = [result for result in answers if not result.allowed]
    if force is not None and all(may_override(result) for result in against):
        passed = tuple(
            result if result.allowed else msgspec.structs.replace(result, overridden=True)
            for result in answers
        )
        return GateDecision(allowed=True, results=passed)
    # Name what is hardest to lift first: lifting the others would not help. Rights that are not
    # declared come before everything: the other gates can't judge what is not there.
    ranked = sorted(
        against, key=lambda result: (result.gate != "rights", not result.halts, may_override(result))
    )
    return GateDecision(
        allowed=not against,
        results=answers,
        first_blocker=ranked[0] if ranked else None,
        halts=any(result.halts for result in against),
    )


def may_override(result: GateResult) -> bool:
    """May a force pass this gate?"""
    return result.overridable and not result.halts and result.gate in OVERRIDABLE_GATES


def _require_answerable(force: ForceRequest) -> None:
    given = {
        "an actor": "" if force.actor == "unknown" else force.actor,
        "a rationale (--rationale TEXT)": force.rationale or "",
        "a ticket (--ticket ID)": force.ticket or "",
    }
    missing = [name for name, value in given.items() if not value.strip()]
    if missing:
        raise RationaleRequired(f"A force needs {' and '.join(missing)}.")


def refusal(decision: GateDecision, *, in_flight: bool = False) -> Refused:
    """The error that tells a person about a refusal.

    A CARE or sovereignty denial before the start is a refusal; found later, it
    is a violation that halts the run.
    """
    blocker = decision.first_blocker
    if blocker is None:
        raise ValueError("only a denied decision has a refusal")
    cause, remedy = cause_and_remedy(blocker)
    if decision.halts and in_flight:
        return Halted(cause, gate=blocker.gate, policy_ids=blocker.policy_ids)
    kinds: dict[str, type[Refused]] = {
        "switch": SwitchThrown,
        "rights": RightsMissing,
        "contract": ContractViolated,
        "budget": BudgetSpent,
        "withdrawal": DataWithdrawn,
    }
    kind = kinds.get(blocker.gate, GateDenied)
    return kind(cause, remedy=remedy, gate=blocker.gate, policy_ids=blocker.policy_ids)


def cause_and_remedy(blocker: GateResult) -> tuple[str, str | None]:
    """What refuses it, and how that is lifted. An old row has a sentence only: that is its cause."""
    cause = blocker.cause or blocker.reason
    if blocker.policy_ids:
        rules = f"{'Rule' if len(blocker.policy_ids) == 1 else 'Rules'} {', '.join(blocker.policy_ids)}"
        remedy = blocker.remedy or GateDenied.remedy
        return f"{rules}: {cause}", f"{remedy} `kfm explain {GateDenied.code}` says more."
    return cause, blocker.remedy or None


def utc_text(instant_ms: int) -> str:
    """RFC 3339 in UTC, to the second."""
    try:
        return f"{datetime.fromtimestamp(instant_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{instant_ms} ms after 1970-01-01T00:00:00Z"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_MAX else line[: _TEXT_MAX - 1] + "…"


def _sentence(text: str) -> str:
    line = _one_line(text)
    return line if line.endswith((".", "!", "?", "…")) else line + "."
