"""One attempt of a run, or one node of it."""

from __future__ import annotations

from kfm.core.errors import UsageError
from kfm.core.evidence import Attempt, Letter
from kfm.core.records import Run
from kfm.core.wording import counted, moment
from kfm.explain import attempts
from kfm.explain.sentences import Account, Ref, Sentence, of_inputs, of_row, of_run, stopped
from kfm.ports import LedgerReader

INPUTS_SHOWN_MAX = 10
LETTERS_SHOWN_MAX = 20


def account_of_attempt(ledger: LedgerReader, run: Run, number: int | None, node: str) -> Account:
    """Of the newest attempt, if no number is given."""
    rows = ledger.attempts(run.run_id)
    row = _row(run, rows, number, node)
    same = [each for each in rows if (each.attempt, each.node) == (row.attempt, row.node)]
    inside = rows if node == "" else same
    retries = [
        each for each in ledger.retries(run.run_id) if each.attempt == row.attempt and node in ("", each.node)
    ]
    place = f"{run.run_id}#{row.attempt}/{node}" if node else f"{run.run_id}#{row.attempt}"
    return Account(
        kind="node" if node else "attempt",
        id=place,
        reason=_reason(run, row),
        chain=(
            of_row(attempts.attempt_text(row, inside), row),
            *_others(run, rows, row),
            *_facts(ledger, row),
            *attempts.retried(run, same, retries),
            *attempts.cost(run, same),
            *_letters(ledger, row),
        ),
    )


def _row(run: Run, rows: list[Attempt], number: int | None, node: str) -> Attempt:
    found = [row for row in rows if row.node == node and number in (None, row.attempt)]
    if found:
        return found[-1]
    if not rows:
        raise UsageError(
            f"No evidence of single attempts at run {run.run_id} is kept.",
            remedy=f"`kfm explain {run.run_id}` tells what is.",
        )
    known = sorted({f"#{row.attempt}/{row.node}" if row.node else f"#{row.attempt}" for row in rows})
    wanted = (f"#{number}" if number is not None else "") + (f"/{node}" if node else "")
    raise UsageError(
        f"No evidence of {wanted} in run {run.run_id}: it has {', '.join(known[:20])}.",
        remedy=f"Write one of them behind the run's id: `kfm explain {run.run_id}{known[-1]}`.",
    )


def _reason(run: Run, row: Attempt) -> Sentence:
    what = f"Node {row.node} of attempt {row.attempt}" if row.node else f"Attempt {row.attempt}"
    name = f"{what} of run {run.run_id}"
    if row.ending is None:
        return of_row(
            f"{name} is under way, or its end is not recorded: `kfm status` shows who holds it.", row
        )
    if row.ending == "complete":
        return of_row(f"{name} completed.", row)
    if row.error_code in attempts.REAPED:
        return of_row(f"{name} was killed and reaped ({row.error_code}): its process was gone.", row)
    word = "was stopped" if row.ending == "abort" else "failed"
    said = stopped(row.error_message or "No message was kept.")
    again = {True: " Trying again may help.", False: " Trying again will not help before the cause is gone."}
    hint = again.get(row.retryable, "") if row.retryable is not None else ""
    return of_row(f"{name} {word}: {row.error_code or 'no code'}: {said}{hint}", row)


def _others(run: Run, rows: list[Attempt], row: Attempt) -> list[Sentence]:
    """What stands beside it: the nodes of an attempt, or the run's attempt of a node."""
    if row.node:
        whole = [each for each in rows if each.node == "" and each.attempt == row.attempt]
        return [of_row(attempts.attempt_text(each, rows), each) for each in whole] or [
            of_run(f"No evidence of attempt {row.attempt} as a whole.", run)
        ]
    nodes = [each for each in rows if each.node and each.attempt == row.attempt]
    if not nodes:
        return [of_row("No evidence of a node: it ended before the first began.", row)]
    return [of_row(attempts.attempt_text(each), each) for each in nodes]


def _facts(ledger: LedgerReader, row: Attempt) -> list[Sentence]:
    told: list[Sentence] = []
    if row.code_sha:
        told.append(of_row(f"Its code was {row.code_sha}.", row))
    if row.inputs_hash is None:
        told.append(of_row("No evidence of its inputs.", row))
    else:
        found = ledger.inputs(row.inputs_hash)
        if found is None:
            told.append(of_row(f"Its inputs were {row.inputs_hash}; what they were is not kept.", row))
        else:
            paths = ", ".join(each.path for each in found[:INPUTS_SHOWN_MAX])
            more = f" and {len(found) - INPUTS_SHOWN_MAX} more" if len(found) > INPUTS_SHOWN_MAX else ""
            count = counted(len(found), "input")
            told.append(of_inputs(f"It had {count}: {paths or 'none'}{more}.", row.inputs_hash))
    if row.validation:
        said = ", ".join(f"{count} {name}" for name, count in sorted(row.validation.items()))
        told.append(of_row(f"Its validation says: {said}.", row))
    return told


def _letters(ledger: LedgerReader, row: Attempt) -> list[Sentence]:
    """The lineage events about it."""
    mine = [letter for letter in ledger.letters(row.run_id) if row.lineage_id in letter.body]
    if not mine:
        return [of_row("No evidence of a lineage event about it.", row)]
    return [_letter(letter) for letter in mine[:LETTERS_SHOWN_MAX]]


def _letter(letter: Letter) -> Sentence:
    end = (
        f"was delivered at {moment(letter.delivered_at_ms)}"
        if letter.delivered_at_ms
        else "waits for delivery"
    )
    text = f"Event {letter.event_id} of topic {letter.topic} {end}."
    return Sentence(text=text, record=Ref(type="letter", id=str(letter.number)))
