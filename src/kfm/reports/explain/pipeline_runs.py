"""Explains a node of a pipeline, or a pipeline run: why it ran, was skipped or failed."""

from __future__ import annotations

from collections.abc import Mapping

from kfm.model.errors import UnhashableInput
from kfm.model.quantities import counted, duration, moment, readable_size, stopped
from kfm.model.records import Node, Run
from kfm.model.run_state import UNCHANGED, Pass
from kfm.ports import RunStates
from kfm.reports.explain.inputs import InputChange, changes, outside, upstream
from kfm.reports.explain.sentences import Explanation, Ref, Sentence, of_run
from kfm.reports.state_words import NODES, of_pipeline_run

HISTORY_MAX = 1000
SHOWN_MAX = 10
WORDS = {**NODES, "done": "done before"}


def explain_node(
    states: RunStates, found: Pass, name: str, run: Run | None = None, word: str = ""
) -> Explanation:
    """Of one node of a pipeline run; `run` is the governed run that it was a part of, `word` its state."""
    node = states.one(found.run_id, name)
    reads = dict(found.graph).get(name, ())
    if node is None:
        reason, chain = _without_record(states, found, name, reads)
    else:
        before = _success_before(states, node)
        changed, sentences = _changed(states, node, before)
        reason = _reason(node, before, changed)
        chain = [*sentences, *_read(states, node, reads), *_made(node)]
    return Explanation(
        kind="node",
        id=f"{found.run_id}/{name}",
        reason=reason,
        chain=(*chain, _of_pass(found), *_governed(run, word)),
    )


def explain_pipeline_run(states: RunStates, found: Pass) -> Explanation:
    """Of a pipeline run as a whole: its failures first, then what ran."""
    failed, ran, count = [], [], 0
    for node in states.of_run(found.run_id):
        count += 1
        if node.outcome in ("failed", "partial"):
            failed.append(node)
        elif node.outcome == "success":
            ran.append(node)
    sentences = [_of(_ending(node), node) for node in failed[:SHOWN_MAX]]
    sentences += [
        _of(f"{node.dataset_id} ran: {node.reason or 'no reason was kept'}.", node)
        for node in ran[:SHOWN_MAX]
    ]
    left = len(failed[SHOWN_MAX:]) + len(ran[SHOWN_MAX:])
    if left:
        sentences.append(_about(f"And {counted(left, 'more node')}: `kfm graph {found.run_id}`.", found))
    missing = len(found.graph) - count
    if missing > 0:
        sentences.append(
            _about(f"Of {counted(missing, 'node')} there is no record: they have not ended in it.", found)
        )
    return Explanation(kind="pass", id=found.run_id, reason=_of_pass(found), chain=tuple(sentences))


# --- the one reason ----------------------------------------------------------------------


def _reason(node: Node, before: Node | None, changed: list[InputChange]) -> Sentence:
    name = f"{node.dataset_id} in run {node.run_id}"
    if node.outcome == "skipped":
        why = f": {node.reason}" if node.reason and not node.reason.startswith(UNCHANGED) else ""
        return _of(f"{name} is unchanged{why}; run {node.skipped_because} made its result.", node)
    if node.outcome == "failed":
        return _of(_ending(node), node)
    word = "ran" if node.outcome == "success" else "ran, and was partly done"
    why = node.reason or "no reason was kept"
    if why == "inputs changed" and changed:
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        why = f"its inputs changed: {changed[0].text}{more}"
    elif why == "code changed" and before is not None and before.code_sha != node.code_sha:
        why = f"its code changed from {before.code_sha or 'nothing'} to {node.code_sha or 'nothing'}"
    elif why == "first run":
        why = f"no run had made it on {node.lakefs_branch} before"
    return _of(f"{name} {word}: {why}.", node)


def _ending(node: Node) -> str:
    name = f"{node.dataset_id} in run {node.run_id}"
    if node.outcome == "partial":
        return f"{name} was partly done: that never counts as done."
    said = stopped(node.error_message or "No message was kept.")
    return f"{name} failed: {node.error_code or 'no code'}: {said}"


def _without_record(
    states: RunStates, found: Pass, name: str, reads: tuple[str, ...]
) -> tuple[Sentence, list[Sentence]]:
    where = f"{name} in run {found.run_id}"
    for each in reads:
        other = states.one(found.run_id, each)
        if other is not None and other.outcome == "failed":
            return _of(f"{where} was blocked: {each}, from which it reads, failed.", other), [
                _of(_ending(other), other)
            ]
    absent = [each for each in reads if states.one(found.run_id, each) is None]
    if found.state == "running":
        waits = (
            f" It reads from {', '.join(absent[:SHOWN_MAX])}, of which there is none either."
            if absent
            else ""
        )
        return _about(
            f"No record of {where} yet: the pipeline run is running, or was killed.{waits}", found
        ), []
    if absent:
        why = f"{absent[0]}, from which it reads, has no record of success either"
        return _about(f"{where} was blocked: {why}.", found), []
    end = f"ended ({of_pipeline_run(found.state)}) before this node did"
    return _about(f"No record of {where}: the pipeline run {end}.", found), []


# --- what led to it ----------------------------------------------------------------------


def _success_before(states: RunStates, node: Node) -> Node | None:
    """The newest success on its branch that is older than this record."""
    older = False
    for each in states.history(node.dataset_id, branch=node.lakefs_branch, limit=HISTORY_MAX):
        if older and each.outcome == "success":
            return each
        older = older or each.run_id == node.run_id
    return None


def _changed(states: RunStates, node: Node, before: Node | None) -> tuple[list[InputChange], list[Sentence]]:
    """What is not as it was at the last success, field by field."""
    if node.outcome == "skipped":
        maker = states.one(node.skipped_because or "", node.dataset_id)
        if maker is None:
            return [], [
                _of(f"No evidence of run {node.skipped_because} itself: its record is not here.", node)
            ]
        when = moment(maker.recorded_at_ms)
        text = f"Run {maker.run_id} made it at {when}, from the same inputs {maker.inputs_hash}."
        return [], [_of(text, maker)]
    sentences = []
    if node.error_code == UnhashableInput.code:
        return [], [_of("It was not executed: its inputs can't be hashed.", node)]
    if node.reason and node.outcome != "success":  # of a success it is the first thing that is said
        sentences.append(_of(f"It ran because: {node.reason}.", node))
    if before is None:
        return [], [*sentences, _of(f"No evidence of an earlier success on {node.lakefs_branch}.", node)]
    when = f"run {before.run_id} at {moment(before.recorded_at_ms)}"
    if before.code_sha != node.code_sha:
        then_code, code = before.code_sha or "not kept", node.code_sha or "not kept"
        sentences.append(_of(f"Its code was {then_code} in {when}; now it is {code}.", before))
    if before.inputs_hash == node.inputs_hash:
        sentences.append(_of(f"Its inputs equal those of {when}: both are {node.inputs_hash}.", before))
        return [], sentences
    sentences.append(
        _of(f"Its inputs are {node.inputs_hash}; those of {when} were {before.inputs_hash}.", before)
    )
    then, now = states.document(before.inputs_hash), states.document(node.inputs_hash)
    if then is None or now is None:
        lost = before.inputs_hash if then is None else node.inputs_hash
        text = "No evidence of which input changed: what was hashed is not kept."
        return [], [*sentences, Sentence(text=text, record=Ref(type="document", id=lost))]
    found = changes(then, now)
    ref = Ref(type="document", id=node.inputs_hash)
    if not found:
        sentences.append(
            Sentence(
                text="What changed is not shown: it is, or looks like, a secret, a place or personal data.",
                record=ref,
            )
        )
    for each in found[:SHOWN_MAX]:
        text = stopped(each.text[:1].upper() + each.text[1:])
        sentences.append(Sentence(text=text, record=ref))
    if len(found) > SHOWN_MAX:
        sentences.append(Sentence(text=f"And {counted(len(found) - SHOWN_MAX, 'more change')}.", record=ref))
    return found, sentences


def _read(states: RunStates, node: Node, reads: tuple[str, ...]) -> list[Sentence]:
    """What it read, and which run made that."""
    document = states.document(node.inputs_hash)
    seen: Mapping[str, str] = dict(upstream(document)) if document is not None else {}
    sentences = []
    for each in reads[:SHOWN_MAX]:
        checksum = f" ({seen[each]})" if seen.get(each) else ""
        other = states.one(node.run_id, each)
        if other is None:
            sentences.append(_of(f"It reads from {each}{checksum}; no record of that in this run.", node))
        elif other.skipped_because is not None:
            maker = states.one(other.skipped_because, each)
            text = f"It reads from {each}{checksum}, which run {other.skipped_because} made."
            sentences.append(_of(text, maker or other))
        else:
            sentences.append(_of(f"It reads from {each}{checksum}, which this run made.", other))
    if len(reads) > SHOWN_MAX:
        sentences.append(_of(f"And from {counted(len(reads) - SHOWN_MAX, 'more node')}.", node))
    if document is None:
        sentences.append(_of("No evidence of what else it read: what was hashed is not kept.", node))
        return sentences
    ref = Ref(type="document", id=node.inputs_hash)
    files = outside(document)
    if files:
        more = f" and {len(files) - SHOWN_MAX} more" if len(files) > SHOWN_MAX else ""
        text = f"From outside it reads {', '.join(files[:SHOWN_MAX])}{more}."
        sentences.append(Sentence(text=text, record=ref))
    return sentences


def _made(node: Node) -> list[Sentence]:
    sentences = []
    if node.outcome in ("success", "partial"):
        named = ", ".join(f"{each.name} ({readable_size(each.size)})" for each in node.outputs[:SHOWN_MAX])
        more = f" and {len(node.outputs) - SHOWN_MAX} more" if len(node.outputs) > SHOWN_MAX else ""
        sentences.append(_of(f"It made {named or 'nothing'}{more}.", node))
    if node.validation_summary.get("checks"):
        summary = node.validation_summary
        sentences.append(
            _of(
                f"Of {summary['checks']} checks {summary['passed']} passed, {summary['failed']} failed.", node
            )
        )
    if node.output_commit is not None:
        sentences.append(
            _of(f"Its outputs are in commit {node.output_commit} of {node.lakefs_branch}.", node)
        )
    if node.duration_ms is not None:
        again = f", at the {node.attempt}. attempt in this run" if node.attempt > 1 else ""
        sentences.append(_of(f"It took {duration(node.duration_ms)}{again}.", node))
    return sentences


def _of_pass(found: Pass) -> Sentence:
    what = f"Run {found.run_id} was a run of pipeline {found.pipeline_id} on {found.branch}"
    if found.state == "running":
        since = moment(found.started_at_ms)
        return _about(f"{what}, running since {since}, or killed: its end is not recorded.", found)
    counts = ", ".join(f"{count} {WORDS.get(name, name)}" for name, count in found.counts.items() if count)
    error = f" ({found.error_code})" if found.error_code else ""
    return _about(f"{what}: {of_pipeline_run(found.state)}{error}; {counts or 'no nodes'}.", found)


def _governed(run: Run | None, word: str) -> list[Sentence]:
    if run is None:
        return []
    what = f"which brings {run.source_id} into {run.dataset_id}"
    text = f"It was a part of run {run.run_id}, {what}: {word}."
    return [of_run(text, run)]


def _of(text: str, node: Node) -> Sentence:
    return Sentence(text=text, record=Ref(type="run-state", id=f"{node.run_id}/{node.dataset_id}"))


def _about(text: str, found: Pass) -> Sentence:
    return Sentence(text=text, record=Ref(type="pass", id=found.run_id))
