"""Explains a run, its attempts, those still to come, or one of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm.model.errors import UsageError
from kfm.model.gates import cause_and_remedy
from kfm.model.next_steps import NextStep, work_command
from kfm.model.quantities import counted, duration, moment, span, stopped
from kfm.model.quarantine import RetryState
from kfm.model.records import PROMOTED_TOGETHER, Invocation, Promotion, Record, Run, half, is_promotion_of
from kfm.model.retry_budgets import RetryLimits, budget_ends_ms, grant_usage, limits_of, prospect
from kfm.model.runs import Attempt, CallRetry, ChainLink, OutboxMessage
from kfm.model.settings import Settings
from kfm.reports.explain import invocations
from kfm.reports.explain.inputs import compared
from kfm.reports.explain.invocations import all_asked, governed, repeated, requested
from kfm.reports.explain.retired import retired, retired_words
from kfm.reports.explain.sentences import (
    Explanation,
    Ref,
    Sentence,
    of_attempt,
    of_call,
    of_inputs,
    of_link,
    of_promotion,
    of_row,
    of_run,
)
from kfm.reports.next_steps import step_of_run
from kfm.reports.runs import has_promoted

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader


INPUTS_SHOWN_MAX = 10
MESSAGES_SHOWN_MAX = 20
READ_MAX = 10_000


class RunFacts(Record, frozen=True):
    """All that is on record about one run."""

    run: Run
    calls: tuple[Invocation, ...]  # in order
    attempts: tuple[Attempt, ...]
    links: tuple[ChainLink, ...]
    promotions: tuple[Promotion, ...]
    step: NextStep | None = None  # what a person does next about it


def gather(ledger: LedgerReader, run: Run, now_ms: int, settings: Settings | None = None) -> RunFacts:
    calls = ledger.invocations(run_id=run.run_id, limit=READ_MAX)
    return RunFacts(
        run=run,
        calls=tuple(sorted(calls, key=lambda call: (call.requested_at_ms, call.invocation_id))),
        attempts=tuple(ledger.attempts(run.run_id)),
        links=tuple(ledger.links(run.run_id, limit=READ_MAX)),
        promotions=tuple(p for p in ledger.promotions(run.dataset_id, READ_MAX) if is_promotion_of(p, run)),
        step=step_of_run(ledger, run, now_ms, settings),
    )


def explain_run(ledger: LedgerReader, run: Run, now_ms: int, settings: Settings | None = None) -> Explanation:
    known = gather(ledger, run, now_ms, settings)
    because, why = why_it_ran(ledger, known)
    return Explanation(
        kind="run",
        id=run.run_id,
        reason=run_reason(ledger, known, because),
        chain=(
            *_doing(run, now_ms),
            *_made_of(ledger, run),
            *why,
            *tried(run, known.attempts),
            *approved(ledger, run),
            *retried(run, known.attempts, ledger.retries(run.run_id)),
            *ahead(ledger, run, now_ms, settings),
            *_refusals(ledger, known),
            *_promoted(known),
            *all_asked(run, known.calls, promoted=has_promoted(ledger, run.run_id)),
            *requested(ledger, run),
            repeated(run, known.calls),
            *governed(known.links),
            *retired(ledger, run),
            *cost(run, [row for row in known.attempts if row.node == ""]),
            *_next(known),
        ),
    )


# --- the one reason ------------------------------------------------------------------


def run_reason(ledger: LedgerReader, known: RunFacts, because: str | None) -> Sentence:
    run = known.run
    name = f"Run {run.run_id}"
    if run.status == "success":
        why = f"because {because}" if because else "; no evidence of why it ran"
        if known.promotions:
            last = known.promotions[0]
            text = f"{name} published version {last.sequence} of {run.dataset_id} {why}"
            return of_promotion(stopped(text.replace(" ; ", "; ")), last)
        text = f"{name} succeeded and changed nothing for readers; it ran {why}"
        return of_run(stopped(text.replace("it ran ; ", "")), run)
    if run.status == "running":
        return _running(ledger, known, name)
    call = _last_refusal(known)
    if call is not None:
        blocker = invocations.refused(call.gates)[0]
        cause, _ = cause_and_remedy(blocker)
        return of_call(f"{name} was refused: {stopped(cause)} {_step(known)}".rstrip(), call)
    return _failed(known, name)


def _running(ledger: LedgerReader, known: RunFacts, name: str) -> Sentence:
    run = known.run
    held = [lock for lock in ledger.locks() if lock.holder and lock.holder.run_id == run.run_id]
    if held:
        until = moment(held[0].lease_until_ms)
        text = (
            f"{name} is running since {moment(run.start_time_ms)}; its lease on {held[0].scope} ends {until}."
        )
        return of_run(f"{text} `kfm status` shows who holds it.", run)
    return of_run(f"{name} is recorded as running, and its lock is not held. {_step(known)}".rstrip(), run)


def _failed(known: RunFacts, name: str) -> Sentence:
    run = known.run
    way = _step(known)
    if run.error_code in REAPED:
        cause = "its process was gone" if run.error_code == "WORKER_DIED" else "its lease had run out"
        text = f"{name} was interrupted: {cause} ({run.error_code}). {way}"
    elif run.error_code == "CANCELLED":
        cause = f": {stopped(run.error_message)}" if run.error_message else "."
        text = f"{name} was cancelled{cause} {way}"
    else:
        said = stopped(run.error_message or "No message was kept.")
        text = f"{name} failed: {run.error_code or 'no code'}: {said} {way}"
    whole = [row for row in known.attempts if row.node == "" and row.attempt == run.attempts]
    return of_row(text, whole[-1]) if whole else of_run(text, run)


def _step(known: RunFacts) -> str:
    return f"Next: {known.step.line}" if known.step else ""


def _last_refusal(known: RunFacts) -> Invocation | None:
    """The invocation whose refusal ended the run, if that is what ended it."""
    last = next(
        (call for call in reversed(known.calls) if call.outcome in ("refused", "failed", "success")), None
    )
    return last if last and last.outcome == "refused" and invocations.refused(last.gates) else None


# --- what led to it ------------------------------------------------------------------


def _doing(run: Run, now_ms: int) -> list[Sentence]:
    partition = f", partition {run.partition}" if run.partition else ""
    end_ms = run.end_time_ms if run.end_time_ms is not None else now_ms
    so_far = "it took" if run.end_time_ms is not None else "so far"
    took = f"{so_far} {duration(max(end_ms - run.start_time_ms, 0))}"
    window = span(run.window_start_ms, run.window_end_ms)
    return [
        of_run(
            f"It was to bring dataset {run.dataset_id} up to date from source {run.source_id} for "
            f"{window}{partition}: revision {run.revision} of that work, pipeline {run.pipeline_version}.",
            run,
        ),
        of_run(
            f"It was first asked for by trigger {run.trigger_type} and began at "
            f"{moment(run.start_time_ms)}; {took}; its work key is {run.work_key}.",
            run,
        ),
    ]


def _made_of(ledger: LedgerReader, run: Run) -> list[Sentence]:
    """The versions of other datasets that it read."""
    from kfm.reports.derived import pin_text

    pins = ledger.derived_reader().pins(run.run_id)
    return [of_run(f"It read {'; '.join(map(pin_text, pins))}.", run)] if pins else []


def why_it_ran(ledger: LedgerReader, known: RunFacts) -> tuple[str | None, list[Sentence]]:
    """Half a sentence for the reason, and what it rests on."""
    run = known.run
    forced = next((link for link in known.links if link.entry.kind == "force"), None)
    if run.force:
        who = f"{forced.entry.actor} forced it" if forced else "it was forced"
        return who, [] if forced else [of_run("No evidence of who forced it.", run)]
    if run.correction:
        return f"correction {run.correction} asked for it", [
            of_run(f"It is correction {run.correction}.", run)
        ]
    if run.revision == 0:
        return _first(ledger, run)
    previous = _revision(ledger, run, run.revision - 1)
    if previous is None:
        return None, [of_run(f"No evidence of revision {run.revision - 1} of the same work.", run)]
    if previous.dataset_id != run.dataset_id:
        text = f"its source feeds {run.dataset_id} now, not {previous.dataset_id}"
        return text, [of_run(f"Revision {previous.revision} fed {previous.dataset_id}.", previous)]
    because, sentences = compared(ledger, previous, run)
    if because is None:
        recorded = next((call for call in known.calls if call.outcome == "success" and call.reason), None)
        if recorded is not None and recorded.reason:
            because = half(recorded.reason_code) or f"its record says: {recorded.reason}"
            sentences.append(of_call(f"The invocation's record says why it ran: {recorded.reason}", recorded))
    return because, sentences


def _first(ledger: LedgerReader, run: Run) -> tuple[str, list[Sentence]]:
    for other in _same_window(ledger, run):
        if other.pipeline_version != run.pipeline_version and other.start_time_ms < run.start_time_ms:
            text = f"the pipeline changed from {other.pipeline_version} to {run.pipeline_version}"
            return text, [
                of_run(f"Run {other.run_id} did the same window with {other.pipeline_version}.", other)
            ]
    return "this work had not been done before", [
        of_run("It is revision 0: no earlier run of the same work is on record.", run)
    ]


def _same_window(ledger: LedgerReader, run: Run) -> list[Run]:
    return [
        other
        for other in ledger.runs(source_id=run.source_id, limit=READ_MAX)
        if other.run_id != run.run_id
        and (other.window_start_ms, other.window_end_ms) == (run.window_start_ms, run.window_end_ms)
        and other.partition == run.partition
    ]


def _revision(ledger: LedgerReader, run: Run, revision: int) -> Run | None:
    same = (other for other in _same_window(ledger, run) if other.work_base == run.work_base)
    return next((other for other in same if other.revision == revision), None)


def _refusals(ledger: LedgerReader, known: RunFacts) -> list[Sentence]:
    sentences: list[Sentence] = []
    last = _last_refusal(known) if known.run.status == "failed" else None
    seen: set[object] = set()
    for call in reversed(known.calls):
        if call.gates in seen or not any(not gate.allowed for gate in call.gates):
            continue
        seen.add(call.gates)
        sentences += invocations.refusals(ledger, call, known.links, is_reason=call is last, past=True)
    return sentences[:SHOWN_MAX]


def _promoted(known: RunFacts) -> list[Sentence]:
    run = known.run
    sentences = [
        of_promotion(
            f"It was promoted as version {p.sequence} at {moment(p.promoted_at_ms)}{_beside(p, run)}.", p
        )
        for p in known.promotions
    ]
    if not sentences and run.status == "success":
        sentences.append(of_run("No evidence of a promotion: readers see what they saw before.", run))
    sentences += [
        of_link(f"Its promotion is entry {link.number} of the audit log.", link)
        for link in known.links
        if link.entry.kind in ("promotion", PROMOTED_TOGETHER)
    ]
    return sentences


def _beside(promotion: Promotion, run: Run) -> str:
    if promotion.run_id == run.run_id:
        return ""
    return f", together with other windows; the version is recorded with run {promotion.run_id}"


def _next(known: RunFacts) -> list[Sentence]:
    run = known.run
    if run.status == "success":
        text = f"`{work_command(run)}` asks for the same again; while upstream is unchanged it does nothing."
        return [of_run(text, run)]
    if run.error_code and run.error_code.startswith("KFM"):
        return [of_run(f"`kfm explain {run.error_code}` says more about the error.", run)]
    return []


def newest(rows: Sequence[Run]) -> Run | None:
    return max(rows, key=lambda run: (run.start_time_ms, run.run_id), default=None)


# --- one attempt, or one step of it ----------------------------------------------------


def explain_attempt(ledger: LedgerReader, run: Run, number: int | None, node: str) -> Explanation:
    """Of the newest attempt, if no number is given."""
    rows = ledger.attempts(run.run_id)
    row = _row(ledger, run, rows, number, node)
    same = [each for each in rows if (each.attempt, each.node) == (row.attempt, row.node)]
    inside = rows if node == "" else same
    retries = [
        each for each in ledger.retries(run.run_id) if each.attempt == row.attempt and node in ("", each.node)
    ]
    place = f"{run.run_id}#{row.attempt}/{node}" if node else f"{run.run_id}#{row.attempt}"
    return Explanation(
        kind="node" if node else "attempt",
        id=place,
        reason=_reason(run, row),
        chain=(
            of_row(attempt_text(row, inside), row),
            *_others(run, rows, row),
            *_facts(ledger, row),
            *retried(run, same, retries),
            *cost(run, same),
            *_messages(ledger, row),
        ),
    )


def _row(ledger: LedgerReader, run: Run, rows: list[Attempt], number: int | None, node: str) -> Attempt:
    found = [row for row in rows if row.node == node and number in (None, row.attempt)]
    if found:
        return found[-1]
    if not rows:
        raise UsageError(
            f"No evidence of single attempts at run {run.run_id} is kept.{retired_words(ledger)}",
            remedy=f"`kfm explain {run.run_id}` shows what is kept.",
        )
    known = sorted({f"#{row.attempt}/{row.node}" if row.node else f"#{row.attempt}" for row in rows})
    wanted = (f"#{number}" if number is not None else "") + (f"/{node}" if node else "")
    raise UsageError(
        f"No evidence of {wanted} in run {run.run_id}: it has {', '.join(known[:20])}.",
        remedy=f"Write one of them behind the run's id: `kfm explain {run.run_id}{known[-1]}`.",
    )


def _reason(run: Run, row: Attempt) -> Sentence:
    what = f"Step {row.node} of attempt {row.attempt}" if row.node else f"Attempt {row.attempt}"
    name = f"{what} of run {run.run_id}"
    if row.ending is None:
        return of_row(f"{name} is running, or its end is not recorded: `kfm status` shows who holds it.", row)
    if row.ending == "complete":
        return of_row(f"{name} completed.", row)
    if row.error_code in REAPED:
        return of_row(f"{name} was killed and reaped ({row.error_code}): its process was gone.", row)
    word = "was stopped" if row.ending == "abort" else "failed"
    said = stopped(row.error_message or "No message was kept.")
    again = {True: " Trying again may help.", False: " Trying again will not help before the cause is gone."}
    hint = again.get(row.retryable, "") if row.retryable is not None else ""
    return of_row(f"{name} {word}: {row.error_code or 'no code'}: {said}{hint}", row)


def _others(run: Run, rows: list[Attempt], row: Attempt) -> list[Sentence]:
    """The steps of an attempt, or the whole attempt of a step."""
    if row.node:
        whole = [each for each in rows if each.node == "" and each.attempt == row.attempt]
        return [of_row(attempt_text(each, rows), each) for each in whole] or [
            of_run(f"No evidence of attempt {row.attempt} as a whole.", run)
        ]
    nodes = [each for each in rows if each.node and each.attempt == row.attempt]
    if not nodes:
        return [of_row("No evidence of a step: it ended before the first began.", row)]
    return [of_row(attempt_text(each), each) for each in nodes]


def _facts(ledger: LedgerReader, row: Attempt) -> list[Sentence]:
    sentences: list[Sentence] = []
    if row.code_sha:
        sentences.append(of_row(f"Its code was {row.code_sha}.", row))
    if row.inputs_hash is None:
        sentences.append(of_row("No evidence of its inputs.", row))
    else:
        found = ledger.inputs(row.inputs_hash)
        if found is None:
            sentences.append(of_row(f"Its inputs were {row.inputs_hash}; what they were is not kept.", row))
        else:
            paths = ", ".join(each.path for each in found[:INPUTS_SHOWN_MAX])
            more = f" and {len(found) - INPUTS_SHOWN_MAX} more" if len(found) > INPUTS_SHOWN_MAX else ""
            count = counted(len(found), "input")
            sentences.append(of_inputs(f"It had {count}: {paths or 'none'}{more}.", row.inputs_hash))
    if row.validation:
        said = ", ".join(f"{count} {name}" for name, count in sorted(row.validation.items()))
        sentences.append(of_row(f"Its validation says: {said}.", row))
    return sentences


def _messages(ledger: LedgerReader, row: Attempt) -> list[Sentence]:
    """The lineage events about it."""
    mine = [message for message in ledger.outbox_messages(row.run_id) if row.lineage_id in message.body]
    if not mine:
        return [of_row("No evidence of a lineage event about it.", row)]
    return [_message(message) for message in mine[:MESSAGES_SHOWN_MAX]]


def _message(message: OutboxMessage) -> Sentence:
    end = (
        f"was delivered at {moment(message.delivered_at_ms)}"
        if message.delivered_at_ms
        else "waits for delivery"
    )
    text = f"Event {message.event_id} of topic {message.topic} {end}."
    return Sentence(text=text, record=Ref(type="letter", id=str(message.number)))


SHOWN_MAX = 20
TRIES_SHOWN_MAX = 10
REAPED = ("WORKER_DIED", "LEASE_EXPIRED")


def approved(ledger: LedgerReader, run: Run) -> list[Sentence]:
    """Who let each attempt begin that needed a second person."""
    known = ledger.approvals(state="approved", subject=run.work_base, limit=1000)
    return [
        of_attempt(
            f"Attempt {one.used_attempt} was approved by {one.approved_by} at "
            f"{moment(one.approved_at_ms or 0)} ({one.approval_rationale}), asked for by {one.requested_by} "
            f"({one.rationale}): request {one.request_id}.",
            run.run_id,
            one.used_attempt or 0,
            "",
        )
        for one in sorted(known, key=lambda one: one.used_attempt or 0)
        if one.used_by == run.run_id
    ]


def tried(run: Run, rows: Sequence[Attempt]) -> list[Sentence]:
    """One sentence for each attempt at the run."""
    whole = [row for row in rows if row.node == ""]
    if not whole:
        count = counted(run.attempts, "attempt")
        return [of_run(f"No evidence of how it was tried: its row counts {count}, none is on record.", run)]
    sentences = [of_row(attempt_text(row, rows), row) for row in whole[-SHOWN_MAX:]]
    if len(whole) > SHOWN_MAX:
        sentences.insert(0, of_run(f"{counted(len(whole) - SHOWN_MAX, 'earlier attempt')} not shown.", run))
    return sentences


def attempt_text(row: Attempt, rows: Sequence[Attempt] = ()) -> str:
    """When it began, how it ended, and where."""
    what = f"Step {row.node} of attempt {row.attempt}" if row.node else f"Attempt {row.attempt}"
    waited = f", {duration(row.delay_ms)} after the one before had ended," if row.delay_ms else ""
    return f"{what} began at {moment(row.started_at_ms)}{waited}{_ending(row, rows)}"


def _ending(row: Attempt, rows: Sequence[Attempt]) -> str:
    if row.ending is None or row.ended_at_ms is None:
        return "; no evidence of its end yet."
    took = f"after {duration(max(0, row.ended_at_ms - row.started_at_ms))}"
    if row.ending == "complete":
        unchanged = ", unchanged" if row.outcome == "skipped" else ""
        return f" and completed {took}{unchanged}."
    nodes = [each.node for each in rows if each.attempt == row.attempt and each.node]
    place = f" in step {nodes[-1]}" if row.node == "" and nodes else ""
    code = row.error_code or "no code"
    kind = f", class {row.error_class}" if row.error_class else ""
    if row.error_code in REAPED:
        cause = "its process was gone" if row.error_code == "WORKER_DIED" else "its lease had run out"
        return f" and was killed{place}; the reaper ended it at {moment(row.ended_at_ms)}: {cause} ({code})."
    word = "was stopped" if row.ending == "abort" else "failed"
    return f" and {word} {took}{place}: {code}{kind}."


def retried(run: Run, rows: Sequence[Attempt], retries: Sequence[CallRetry]) -> list[Sentence]:
    """The call tier: one sentence for each call that met trouble."""
    calls: dict[tuple[int, str, int], list[CallRetry]] = {}
    for retry in retries:
        calls.setdefault((retry.attempt, retry.node, retry.call), []).append(retry)
    sentences = []
    for (attempt, node, _), tries in list(calls.items())[:SHOWN_MAX]:
        sentences.append(of_attempt(_tries_text(attempt, node, tries), run.run_id, attempt, node))
    if len(calls) > SHOWN_MAX:
        more = counted(len(calls) - SHOWN_MAX, "more call")
        sentences.append(of_run(f"{more} met trouble.", run))
    if not calls and rows:
        sentences.append(of_run("No evidence of a call that was tried again.", run))
    return sentences


def _tries_text(attempt: int, node: str, tries: Sequence[CallRetry]) -> str:
    where = f"step {node}" if node else "the run"
    again = [each for each in tries if each.outcome == "retried"]
    if not again:
        opened = ", and its provider's circuit is open since" if tries[-1].circuit_open else ""
        last = tries[-1].error_class
        return f"In attempt {attempt}, {where}, a call was not tried again after {last}{opened}."
    shown = [
        f"{each.error_class}, then {duration(each.delay_ms)} of waiting" for each in again[:TRIES_SHOWN_MAX]
    ]
    if len(again) > TRIES_SHOWN_MAX:
        shown.append(f"and {len(again) - TRIES_SHOWN_MAX} more")
    end = next((f"; it gave up on {each.error_class}" for each in tries if each.outcome == "gave-up"), "")
    times = counted(len(again), "time")
    return f"In attempt {attempt}, {where}, a call was retried {times}: {'; '.join(shown)}{end}."


def cost(run: Run, rows: Sequence[Attempt]) -> list[Sentence]:
    """What each attempt used, as modelled."""
    sentences = []
    assumption = ""
    for row in [each for each in rows if each.energy is not None][-SHOWN_MAX:]:
        energy = row.energy
        assert energy is not None
        what = f"Step {row.node} of attempt {row.attempt}" if row.node else f"Attempt {row.attempt}"
        said = (
            f"{what} used {energy.cpu_us / 1_000_000:.3f} s of processor time; modelled cost "
            f"{energy.energy_uwh:,} µWh and {energy.co2_ug:,} µg CO2e."
        )
        if energy.assumption != assumption:
            assumption = energy.assumption
            said += f" {assumption}"
        sentences.append(of_row(said, row))
    if not sentences and rows:
        sentences.append(of_run("No evidence of what it cost.", run))
    return sentences


def ahead(ledger: LedgerReader, run: Run, now_ms: int, settings: Settings | None = None) -> list[Sentence]:
    if run.status == "success":
        return []
    state, limits = ledger.retry_state(run.run_id), limits_of(settings, run.source_id)
    sentences = [_attempts(run, state, limits), _budget(run, state, now_ms, limits)]
    if run.status == "failed":
        sentences.append(_next_attempt(run, state, now_ms))
    return [of_run(text, run) for text in sentences]


def _attempts(run: Run, state: RetryState | None, limits: RetryLimits) -> str:
    used, limit = grant_usage(run, state), limits.of(run.trigger_type).attempts_max
    left = max(0, limit - used.attempts)
    return (
        f"Of grant {used.grants} (at most {limits.grants} are given) {used.attempts} of "
        f"{counted(limit, 'attempt')} are used and {left} left; what a breaker refused is not counted."
    )


def _budget(run: Run, state: RetryState | None, now_ms: int, limits: RetryLimits) -> str:
    since_ms, ends_ms = grant_usage(run, state).since_ms, budget_ends_ms(run, state, limits)
    used_ms = max(0, min(now_ms, ends_ms) - since_ms)
    left = f"{duration(ends_ms - now_ms)} left" if now_ms < ends_ms else "nothing left"
    return (
        f"Its budget of {duration(ends_ms - since_ms)} began at {moment(since_ms)} and ends at "
        f"{moment(ends_ms)}: {duration(used_ms)} used, {left}."
    )


def _next_attempt(run: Run, state: RetryState | None, now_ms: int) -> str:
    if state is None or state.attempt < run.attempts:
        return "It is not decided yet whether it is retried automatically; the next due retries decide."
    return f"{prospect(state, now_ms)}."
