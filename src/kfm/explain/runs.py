"""A run: why it is as it is, and how it came to that."""

from __future__ import annotations

from collections.abc import Sequence

from kfm.core.evidence import Attempt, Link
from kfm.core.records import Invocation, Promotion, Record, Run
from kfm.core.times import rfc3339
from kfm.core.wording import duration, moment, span
from kfm.explain import attempts, gates
from kfm.explain.ahead import ahead
from kfm.explain.calls import all_asked, governed, repeated
from kfm.explain.inputs import compared
from kfm.explain.requests import requested
from kfm.explain.sentences import Account, Sentence, of_call, of_link, of_promotion, of_row, of_run, stopped
from kfm.ports import LedgerReader

READ_MAX = 10_000


class Known(Record, frozen=True):
    """All that is on record about one run."""

    run: Run
    calls: tuple[Invocation, ...]  # in order
    attempts: tuple[Attempt, ...]
    links: tuple[Link, ...]
    promotions: tuple[Promotion, ...]


def gather(ledger: LedgerReader, run: Run) -> Known:
    calls = ledger.invocations(run_id=run.run_id, limit=READ_MAX)
    return Known(
        run=run,
        calls=tuple(sorted(calls, key=lambda call: (call.requested_at_ms, call.invocation_id))),
        attempts=tuple(ledger.attempts(run.run_id)),
        links=tuple(ledger.links(run.run_id, limit=READ_MAX)),
        promotions=tuple(p for p in ledger.promotions(run.dataset_id, READ_MAX) if p.run_id == run.run_id),
    )


def account_of_run(ledger: LedgerReader, run: Run, now_ms: int) -> Account:
    known = gather(ledger, run)
    because, why = why_it_ran(ledger, known)
    return Account(
        kind="run",
        id=run.run_id,
        reason=run_reason(ledger, known, because),
        chain=(
            *_doing(run, now_ms),
            *why,
            *attempts.tried(run, known.attempts),
            *attempts.approved(ledger, run),
            *attempts.retried(run, known.attempts, ledger.retries(run.run_id)),
            *ahead(ledger, run, now_ms),
            *_refusals(ledger, known),
            *_promoted(known),
            *all_asked(run, known.calls),
            *requested(ledger, run),
            repeated(run, known.calls),
            *governed(known.links),
            *attempts.cost(run, [row for row in known.attempts if row.node == ""]),
            *_next(known),
        ),
    )


def work_command(run: Run) -> str:
    """Asks for exactly this run's work again."""
    window = f"{rfc3339(run.window_start_ms)}/{rfc3339(run.window_end_ms)}"
    return f"kfm run --source {run.source_id} --window {window}"


# --- the one reason ------------------------------------------------------------------


def run_reason(ledger: LedgerReader, known: Known, because: str | None) -> Sentence:
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
        return _running(ledger, run, name)
    call = _last_refusal(known)
    if call is not None:
        blocker = gates.refused(call.gates)[0]
        bundle = gates.bundle_of(call, known.links)
        texts = ledger.policy_texts(bundle) if bundle else None
        return of_call(f"{name} was refused: {gates.blocker_text(blocker, texts)}", call)
    return _failed(known, name)


def _running(ledger: LedgerReader, run: Run, name: str) -> Sentence:
    held = [lock for lock in ledger.locks() if lock.holder and lock.holder.run_id == run.run_id]
    if held:
        until = moment(held[0].lease_until_ms)
        text = (
            f"{name} is running since {moment(run.start_time_ms)}; its lease on {held[0].scope} ends {until}."
        )
        return of_run(f"{text} `kfm status` shows who holds it.", run)
    return of_run(
        f"{name} is recorded as running, and nobody holds its lock. "
        f"Whoever runs kfm takes it over with `{work_command(run)}`.",
        run,
    )


def _failed(known: Known, name: str) -> Sentence:
    run = known.run
    command = f"`{work_command(run)}`"
    if run.error_code in attempts.REAPED:
        cause = "its process was gone" if run.error_code == "WORKER_DIED" else "its lease had run out"
        way = f"Whoever runs kfm has it go on with {command}."
        text = f"{name} was interrupted: {cause} ({run.error_code}). {way}"
    elif run.error_code == "CANCELLED":
        text = f"{name} was cancelled. Whoever runs kfm starts it again with {command}."
    else:
        said = stopped(run.error_message or "No message was kept.")
        way = f"Whoever runs kfm retries it with {command}."
        text = f"{name} failed: {run.error_code or 'no code'}: {said} {way}"
    whole = [row for row in known.attempts if row.node == "" and row.attempt == run.attempts]
    return of_row(text, whole[-1]) if whole else of_run(text, run)


def _last_refusal(known: Known) -> Invocation | None:
    """The call whose refusal ended the run, if that is what ended it."""
    last = next(
        (call for call in reversed(known.calls) if call.outcome in ("refused", "failed", "success")), None
    )
    return last if last and last.outcome == "refused" and gates.refused(last.gates) else None


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


def why_it_ran(ledger: LedgerReader, known: Known) -> tuple[str | None, list[Sentence]]:
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
    because, told = compared(ledger, previous, run)
    if because is None:
        recorded = next((call for call in known.calls if call.outcome == "success" and call.reason), None)
        if recorded is not None and recorded.reason:
            because = _half(recorded.reason, run.revision)
            told.append(of_call(f"The call's record says why it ran: {recorded.reason}", recorded))
    return because, told


def _half(reason: str, revision: int) -> str:
    """A recorded reason as the second half of a sentence."""
    text = reason.removesuffix(f": revision {revision} opens.").rstrip(".")
    return text[:1].lower() + text[1:]


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


def _refusals(ledger: LedgerReader, known: Known) -> list[Sentence]:
    told: list[Sentence] = []
    last = _last_refusal(known) if known.run.status == "failed" else None
    seen: set[object] = set()
    for call in reversed(known.calls):
        if call.gates in seen or not any(not gate.allowed for gate in call.gates):
            continue
        seen.add(call.gates)
        told += gates.refusals(ledger, call, known.links, told_first=call is last)
    return told[: attempts.SHOWN_MAX]


def _promoted(known: Known) -> list[Sentence]:
    run = known.run
    told = [
        of_promotion(f"It was promoted as version {p.sequence} at {moment(p.promoted_at_ms)}.", p)
        for p in known.promotions
    ]
    if not told and run.status == "success":
        told.append(of_run("No evidence of a promotion: readers see what they saw before.", run))
    told += [
        of_link(f"Its promotion is entry {link.number} of the governance ledger.", link)
        for link in known.links
        if link.entry.kind == "promotion"
    ]
    return told


def _next(known: Known) -> list[Sentence]:
    run = known.run
    if run.status == "success":
        text = f"`{work_command(run)}` asks for the same again; while upstream is unchanged it does nothing."
        return [of_run(text, run)]
    if run.error_code and run.error_code.startswith("KFM"):
        return [of_run(f"`kfm explain {run.error_code}` says more about the error.", run)]
    return []


def newest(rows: Sequence[Run]) -> Run | None:
    return max(rows, key=lambda run: (run.start_time_ms, run.run_id), default=None)
