"""What is not on record any more, because retention took it away: said, so that none of it is guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.model.quantities import moment
from kfm.model.records import Run
from kfm.reports.explain.sentences import Sentence, of_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfm.db.ledger_reader import LedgerReader


def retired(ledger: LedgerReader, run: Run) -> Iterator[Sentence]:
    """Which rows about a run have gone. None is named that is there, or that was never old enough to go."""
    gone = ledger.retention_reader().gone()
    there = {
        "attempts": lambda: bool(ledger.attempts(run.run_id)),
        "invocations": lambda: bool(ledger.invocations(run_id=run.run_id, limit=1)),
        "outbox": lambda: bool(ledger.outbox_messages(run.run_id)),
        "inputs": lambda: run.fingerprint is None or ledger.inputs(run.fingerprint) is not None,
        "trigger_documents": lambda: ledger.run_documents(run.run_id) is not None,
        "request_details": lambda: all(
            one.kind != "webhook" or "scheme" in one.details
            for one in ledger.request_reader().of_run(run.run_id)
        ),
    }
    names = {
        "attempts": "its attempts",
        "invocations": "the invocations that asked for it",
        "outbox": "its lineage events",
        "inputs": "what it found upstream",
        "trigger_documents": "what its key was made of",
        "request_details": "what its webhook told",
    }
    old = {kind: one for kind, one in gone.items() if kind in there and one.before_ms > run.start_time_ms}
    missing: dict[int, list[str]] = {}
    for kind, name in names.items():
        if kind in old and not there[kind]():
            missing.setdefault(old[kind].before_ms, []).append(name)
    for before_ms, gone_then in sorted(missing.items(), reverse=True):
        told = " and ".join(filter(None, (", ".join(gone_then[:-1]), gone_then[-1])))
        yield of_run(
            f"Retention took away {told}: such rows from before {moment(before_ms)} are not kept.", run
        )


def retired_words(ledger: LedgerReader) -> str:
    """For a record that is not found: it may have gone."""
    gone = ledger.retention_reader().gone()
    kinds = [
        f"{kind} from before {moment(one.before_ms)}"
        for kind in ("invocations", "attempts")
        if (one := gone.get(kind)) and one.rows
    ]
    if not kinds:
        return ""
    told = " and ".join(kinds)
    return f" {told[0].upper()}{told[1:]} are not kept: retention took them away."
