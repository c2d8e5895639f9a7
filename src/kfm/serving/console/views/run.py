"""One run: why it is as it is, what it did and when, who let it, what changed, and what to type next."""

from __future__ import annotations

import re

from kfm.core.errors import BackendUnavailable
from kfm.core.evidence import Attempt
from kfm.core.records import Record, Run
from kfm.core.wording import duration, span
from kfm.documents.standing import retry_command, work_command
from kfm.explain.runs import READ_MAX, account_of_run
from kfm.serving.console import words
from kfm.serving.console.views import held_one, run_changes, telling
from kfm.serving.console.views.facts import Fact, Next, allowed
from kfm.serving.console.views.graphs import Graph, NodeSeen, graph
from kfm.serving.console.views.passes import PassView, pass_view
from kfm.serving.console.views.timelines import Timeline, timeline, word_of
from kfm.serving.console.visits import Link, NotHere, Visit, short
from kfm.serving.console.words import Word
from kfm.serving.problems import note

_PREFIX = re.compile(r"[0-9a-f-]{4,36}", re.ASCII | re.IGNORECASE)
SEARCHED_MAX = 10_000
RETRIES_SHOWN_MAX = 200


class RetryRow(Record, frozen=True):
    attempt: int
    node: str
    number: int
    at_ms: int
    error_class: str
    outcome: str
    delay_ms: int
    circuit: bool


class RunView(Record, frozen=True):
    run_id: str
    title: str
    word: Word
    dataset_id: str
    source_id: str
    window: str
    story: telling.Story
    facts: tuple[Fact, ...]
    steps: Graph
    pipeline: PassView | None
    timeline: Timeline
    retries: tuple[RetryRow, ...]
    gates: tuple[telling.CallGates, ...]
    calls: tuple[telling.CallRow, ...]
    changes: run_changes.Changes
    lineage: run_changes.Lineage
    requests: tuple[Link, ...]
    commands: tuple[Next, ...]


def view(visit: Visit) -> RunView:
    run = find(visit, visit.params["run_id"])
    if run is None:
        raise NotHere("No run of that id is on record. `kfm runs` lists them.")
    allowed(visit, run.dataset_id)
    reader = visit.reader
    attempts, retries = reader.attempts(run.run_id), reader.retries(run.run_id)
    calls = sorted(
        reader.invocations(run_id=run.run_id, limit=READ_MAX), key=lambda call: call.requested_at_ms
    )
    changes, lineage = run_changes.changes_and_lineage(visit, run)
    word = words.of_run(run.status, run.error_code)
    return RunView(
        run_id=run.run_id,
        title=f"Run {short(run.run_id)}",
        word=word,
        dataset_id=run.dataset_id,
        source_id=run.source_id,
        window=span(run.window_start_ms, run.window_end_ms),
        story=telling.story(visit, account_of_run(reader, run, visit.now_ms)),
        facts=tuple(_facts(visit, run)),
        steps=graph(_steps(run, attempts)),
        pipeline=_pipeline(visit, run.run_id),
        timeline=timeline(attempts, retries, visit.now_ms),
        retries=tuple(
            RetryRow(
                attempt=each.attempt,
                node=each.node,
                number=each.number,
                at_ms=each.at_ms,
                error_class=each.error_class,
                outcome=each.outcome.replace("-", " "),
                delay_ms=each.delay_ms,
                circuit=each.circuit_open,
            )
            for each in retries[:RETRIES_SHOWN_MAX]
        ),
        gates=tuple(telling.gate_rows(visit, calls)),
        calls=tuple(telling.call_row(visit, call) for call in calls),
        changes=changes,
        lineage=lineage,
        requests=tuple(_requests(visit, run)),
        commands=tuple(_commands(visit, run, word)),
    )


def find(visit: Visit, wanted: str) -> Run | None:
    """By its id, or by the beginning of it if that is enough to tell."""
    run = visit.reader.run(wanted)
    if run is not None or not _PREFIX.fullmatch(wanted):
        return run
    found = [each for each in visit.reader.runs(limit=SEARCHED_MAX) if each.run_id.startswith(wanted.lower())]
    return found[0] if len(found) == 1 else None


def _pipeline(visit: Visit, run_id: str) -> PassView | None:
    """Its nodes may be on record elsewhere; if that place is away, the rest of the page is not."""
    try:
        return pass_view(visit, run_id)
    except BackendUnavailable as error:
        note(error)
        return None


def _facts(visit: Visit, run: Run) -> list[Fact]:
    ended = run.end_time_ms
    took = duration((ended if ended is not None else visit.now_ms) - run.start_time_ms)
    facts = [
        Fact(name="Dataset", text=run.dataset_id, href=visit.href("runs", dataset=run.dataset_id)),
        Fact(name="Source", text=run.source_id, href=visit.href("runs", source=run.source_id)),
        Fact(name="Window (UTC)", text=span(run.window_start_ms, run.window_end_ms).removesuffix(" UTC")),
        Fact(name="Started (UTC)", text="", at_ms=run.start_time_ms),
        Fact(name="Ended (UTC)", text="", at_ms=ended)
        if ended is not None
        else Fact(name="Ended", text="not yet"),
        Fact(name="Took" if ended is not None else "So far", text=took),
        Fact(name="Trigger", text=run.trigger_type),
        Fact(name="Attempts", text=str(run.attempts)),
        Fact(name="Revision", text=str(run.revision)),
        Fact(name="Pipeline", text=f"{run.pipeline_id} {run.pipeline_version[:19]}"),
        Fact(name="Run", text=run.run_id, code=True),
        Fact(name="Work key", text=run.work_key, code=True),
    ]
    if run.partition:
        facts.insert(3, Fact(name="Partition", text=run.partition))
    if run.error_code:
        facts.append(Fact(name="Error", text=run.error_code, code=True))
    waiting = visit.reader.retry_state(run.run_id) if run.status == "failed" else None
    if waiting is not None and waiting.not_before_ms is not None:
        facts.append(Fact(name="Next attempt, not before (UTC)", text="", at_ms=waiting.not_before_ms))
    if run.correction:
        facts.append(Fact(name="Correction", text=run.correction))
    return facts


def _steps(run: Run, attempts: list[Attempt]) -> list[NodeSeen]:
    """The nodes as they began, each as the last attempt that came to it left it."""
    last: dict[str, Attempt] = {}
    for each in attempts:
        if each.node:
            last[each.node] = each
    names = list(last)
    found = []
    for index, name in enumerate(names):
        each = last[name]
        word = word_of(each)
        took = each.ended_at_ms - each.started_at_ms if each.ended_at_ms is not None else None
        reason = ": ".join(part for part in (each.error_code, each.error_message) if part)
        earlier = f"in attempt {each.attempt}" if each.attempt < run.attempts else ""
        found.append(
            NodeSeen(
                name=name,
                word=word,
                reason=reason or earlier,
                took_ms=took,
                reads=(names[index - 1],) if index else (),
            )
        )
    return found


def _requests(visit: Visit, run: Run) -> list[Link]:
    found = visit.reader.request_reader().of_run(run.run_id)
    return [
        Link(text=f"{each.kind} request {short(each.request_id)}", href=visit.at("requests", each.request_id))
        for each in found
    ]


def _commands(visit: Visit, run: Run, word: Word) -> list[Next]:
    """What somebody who looks at this will want to type."""
    name = short(run.run_id)
    found = []
    held = visit.reader.held(state="held", subject=run.run_id, limit=1)
    if held:
        found += held_one.commands(held[0], visit.reader.approvals(subject=held[0].held_id))
    elif run.status == "failed":
        found.append(
            Next(command=retry_command(run, visit.reader, visit.now_ms), why="tries the same work again")
        )
    elif run.status == "running":
        found.append(Next(command=work_command(run), why="takes it over, should its process be gone"))
    if word.text == "blocked":
        found.append(Next(command=f"kfm explain {name}", why="names the rule, and what would let it pass"))
    elif run.status == "success":
        found.append(Next(command=f"kfm lineage show {name}", why="shows its lineage events"))
        found.append(
            Next(command=f"kfm export {name} --to FOLDER", why="bundles its evidence for a stranger")
        )
    if run.error_code and run.error_code.startswith("KFM"):
        found.append(Next(command=f"kfm explain {run.error_code}", why="is the page of the error"))
    return found
