"""`kfm explain`: the page of an error code, or a plain account of a run from the records."""

from __future__ import annotations

import inspect
import re
from typing import Any

import click

from kfm.cli.lookup import PREFIX_CHARS_MIN, find_run
from kfm.cli.options import session_options
from kfm.cli.output import duration, one_line, retry_command, short_id
from kfm.cli.session import Session
from kfm.core.errors import UsageError, all_errors
from kfm.core.wording import counted, moment, span

CALLS_TOLD_MAX = 20
REASON_TELLING_CHARS = 40


@click.command()
@click.argument("what")
@session_options
def command(session: Session, what: str) -> None:
    """Explain an error code, or why a run ended as it did.

    WHAT is a code such as KFM204, or a run's id or the beginning of one. The account of a run is made from
    the records alone and changes nothing.
    """
    if re.fullmatch(r"(?i)kfm\d{3}", what):
        page = error_page(what.upper())
        session.emit(page, page_lines(page))
        return
    if re.fullmatch(r"\d{3}", what):
        raise UsageError(
            f"`{what}` is too short for a run: give at least {PREFIX_CHARS_MIN} characters of its id.",
            remedy=f"For the error code: `kfm explain KFM{what}`.",
        )
    with session.app(read_only=True) as app:
        account = run_account(app.ledger, what, app.clock.now_ms())
    session.emit(account, account["sentences"])


def error_page(code: str) -> dict[str, Any]:
    for error in all_errors():
        if error.code == code:
            headline, _, rest = inspect.cleandoc(error.__doc__ or "").partition("\n")
            return {
                "kind": "error",
                "code": code,
                "name": error.__name__,
                "message": headline,
                "page": rest.strip(),
                "remedy": error.remedy,
                "exit_code": error.exit_code,
                "docs": f"docs/reference/errors.md#{code.lower()}",
            }
    from kfm.configuration.shape import nearest

    codes = [error.code for error in all_errors()]
    raise UsageError(f"There is no error {code}{nearest(code, codes)}")


def page_lines(page: dict[str, Any]) -> list[str]:
    lines = [f"{page['code']} {page['name']} (exit code {page['exit_code']})", "", page["message"]]
    if page["page"]:
        lines += ["", *page["page"].splitlines()]
    return [*lines, "", f"fix: {page['remedy']}"]


# --- a run ---------------------------------------------------------------------------


def run_account(ledger: Any, wanted: str, now_ms: int) -> dict[str, Any]:
    """What the records say about a run, in the order in which it happened."""
    run = find_run(ledger, wanted)
    calls = sorted(
        ledger.invocations(run_id=run.run_id, limit=1000),
        key=lambda call: (call.requested_at_ms, call.invocation_id),
    )
    promotions = [p for p in ledger.promotions(run.dataset_id, limit=1000) if p.run_id == run.run_id]
    sentences = [_ending(run), *_doing(run, now_ms)]
    sentences += [
        f"It was promoted as version {p.sequence} at {moment(p.promoted_at_ms)}." for p in promotions
    ]
    if run.status == "success" and not promotions:
        sentences.append("It changed nothing for readers: no promotion is recorded for it.")
    alike = _alike(calls)
    for same in alike[:CALLS_TOLD_MAX]:
        sentences.append(_call(same[0]))
        if len(same) > 1:
            often = "Once more" if len(same) == 2 else f"{len(same) - 1} more times"
            sentences.append(f"{often} the same, last at {moment(same[-1].requested_at_ms)}.")
    if len(alike) > CALLS_TOLD_MAX:
        more = sum(map(len, alike[CALLS_TOLD_MAX:]))
        sentences.append(f"{counted(more, 'further call')} recorded: `kfm show {short_id(run.run_id)}`.")
    if not calls:
        sentences.append("No call that asked for it is recorded.")
    sentences += _entries(ledger, run)
    return {"kind": "run", "run_id": run.run_id, "status": run.status, "sentences": [*sentences, _next(run)]}


def _ending(run: Any) -> str:
    words = {"success": "succeeded", "failed": "failed", "running": "is recorded as running"}
    what = f"Run {run.run_id} {words[run.status]}"
    if run.status == "failed":
        return (
            f"{what}: {run.error_code or 'no code'}: {one_line(run.error_message or 'no message was kept')}"
        )
    return f"{what}."


def _doing(run: Any, now_ms: int) -> list[str]:
    window = span(run.window_start_ms, run.window_end_ms)
    partition = f", partition {run.partition}" if run.partition else ""
    end_ms = run.end_time_ms if run.end_time_ms is not None else now_ms
    so_far = "it took" if run.end_time_ms is not None else "so far"
    took = f"{so_far} {duration(max(end_ms - run.start_time_ms, 0))}"
    lines = [
        f"It was to bring dataset {run.dataset_id} up to date from source {run.source_id} "
        f"for {window}{partition}: revision {run.revision} of that work, pipeline {run.pipeline_version}.",
        f"It was first asked for by trigger {run.trigger_type} and began at {moment(run.start_time_ms)}; "
        f"{took}; {run.attempts} attempt{'s were' if run.attempts != 1 else ' was'} made.",
        f"Its idempotency key is {run.idempotency_key}, its work key {run.work_key}.",
    ]
    if run.fingerprint:
        lines.append(f"Upstream's fingerprint was {run.fingerprint}.")
    if run.correction:
        lines.append(f"It is correction {one_line(run.correction)}.")
    return lines


def _alike(calls: list[Any]) -> list[list[Any]]:
    """Calls in order; neighbours that ended alike, for the same reason, stand together."""
    groups: list[list[Any]] = []
    for call in calls:
        first = groups[-1][0] if groups else None
        if first and all(
            getattr(first, name) == getattr(call, name)
            for name in ("outcome", "reason", "actor", "claimed_actor", "rationale", "ticket")
        ):
            groups[-1].append(call)
        else:
            groups.append([call])
    return groups


def untold_refusals(gates: Any, reason: str) -> list[Any]:
    """The gates that refused, without the one that the reason already tells about."""
    return [
        gate
        for gate in gates
        if not gate.allowed and not gate.overridden and gate.reason[:REASON_TELLING_CHARS] not in reason
    ]


def _call(call: Any) -> str:
    claimed = f", for {one_line(call.claimed_actor)}" if call.claimed_actor else ""
    reason = one_line(call.reason or "")
    gates = "".join(
        f" Gate {gate.gate} refused: {one_line(gate.reason)}"
        for gate in untold_refusals(call.gates, call.reason or "")
    )
    passed = [gate.gate for gate in call.gates if gate.overridden]
    forced = f" A force passed {', '.join(passed)}." if passed else ""
    ticket = f", ticket {one_line(call.ticket)}" if call.ticket else ""
    why = f" (rationale: {one_line(call.rationale)}{ticket})" if call.rationale else ""
    who = f"At {moment(call.requested_at_ms)} {one_line(call.actor)}{claimed}{why}"
    return f"{who} asked for it{_answer(call.outcome, reason)}{gates}{forced}"


def _answer(outcome: str | None, reason: str) -> str:
    """What became of a call. A reason says why it ran, or else why it did not."""
    because = f": {reason}" if reason else "."
    if outcome == "success":
        return f", and it succeeded. Why it ran: {reason}" if reason else ", and it succeeded."
    answers = {
        "noop": f", and nothing had to be done{because}",
        "refused": f", and was refused{because}",
        "busy": f", and found it busy{because}",
        "failed": f", and it failed{because}",
    }
    return answers.get(outcome or "", f"; how that ended is not recorded{because}")


def _entries(ledger: Any, run: Any) -> list[str]:
    found = ledger.governance(subject=run.run_id, limit=50)
    # Promotions and refusals have been told with the calls.
    entries = [entry for entry in reversed(found) if entry.kind not in ("promotion", "gate-refused")]
    return [
        f"Governance recorded {entry.kind} by {one_line(entry.actor)} at {moment(entry.recorded_at_ms)}"
        + (f": {one_line(entry.rationale)}" if entry.rationale else ".")
        for entry in entries
    ]


def _next(run: Any) -> str:
    if run.status == "success":
        return "The same command is now a no-op, as long as upstream is unchanged."
    if run.status == "running":
        return "`kfm status` shows who holds it; if nobody does, `kfm run` takes it over."
    explain = f" `kfm explain {run.error_code}` says more about the error." if run.error_code else ""
    return f"Retry it with `{retry_command(run)}`.{explain}"
