"""Status: what work is blocked by first, then everything else. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from kfm.datasets.completeness import completeness_of
from kfm.model.dataset_changes import active
from kfm.model.dataset_names import Rename, of_dataset, present_name
from kfm.model.quantities import counted, instant, one_line, short_id
from kfm.model.targets import removal_command, takes, taking, target_name
from kfm.reports.blockers import OPERATOR, failures, frozen, halted, switched
from kfm.reports.coverage import cause_text, health_command, health_document, worst
from kfm.reports.datasets import still_shown, to_withdraw
from kfm.reports.runs import word_of_run
from kfm.reports.state_words import of_waiting

ATTENTION_MAX = 20  # works named; more are counted


def gather(app: Any, schedules: Any = None) -> dict[str, Any]:
    """All of it, as one document. `schedules`: those that are in force; None: as they are written."""
    return read_status(app, schedules).document


class StatusRead(NamedTuple):
    """A status as it was read."""

    document: dict[str, Any]
    words: dict[str, str]  # that people read for the newest run of each dataset
    sentence: str = ""  # how things are, where the needs were asked for


def read_status(app: Any, schedules: Any = None, *, with_needs: bool = False) -> StatusRead:
    """`with_needs`: also what needs someone, by cause; others do not pay for it."""
    with app.ledger.moment():
        return _read(app, schedules, with_needs=with_needs)


def _read(app: Any, schedules: Any, *, with_needs: bool) -> StatusRead:
    settings, ledger, now_ms = app.settings, app.ledger, app.ledger.now_ms()
    heads = {head.dataset_id: head for head in ledger.heads()}
    switches = [switch for switch in ledger.switches() if switch.position != "running"]
    running = ledger.runs(status="running", limit=100)
    locks = [lock for lock in ledger.locks() if lock.holder is not None]
    gone = {lock.scope for lock in locks if app.liveness.is_dead(lock.holder.worker_id)}
    alive = [lock for lock in locks if lock.scope not in gone]
    retired = {one.dataset_id for one in active(ledger.change_reader().withdrawals()) if one.retires}
    living = [dataset for dataset in settings.datasets if dataset.id not in retired]
    newest = {dataset.id: run for dataset in living if (run := ledger.newest_run(dataset.id)) is not None}
    completeness = completeness_of(app, now_ms, schedules)
    healths = [completeness.health(name) for name in completeness.names() if name not in retired]
    renames = ledger.change_reader().renames()
    datasets = [_dataset(each, heads, newest.get(each.dataset_id), renames) for each in healths]
    projected = ledger.projected()
    pending = _pending(app, heads, projected)
    attention = [run for run in failures(completeness, ledger) if run.dataset_id not in retired]
    document: dict[str, Any] = {
        "environment": settings.environment,
        "at": instant(now_ms),
        "datasets": datasets,
        "to_withdraw": to_withdraw(settings, ledger),
        "still_shown": still_shown(settings, ledger),
        "needs_attention": [_needing(run, ledger, now_ms, settings) for run in attention[:ATTENTION_MAX]],
        "needs_attention_more": max(len(attention) - ATTENTION_MAX, 0),
        "running": [_running(run, alive, now_ms) for run in running],
        "locks": [_lock(lock, now_ms, lock.scope in gone) for lock in locks],
        "switches": [switch_document(switch) for switch in switches],
        "breakers": _breakers(settings, ledger),
        "incidents": _incidents(ledger),
        "pending_projections": pending,
        "stale": _stale(ledger, settings),
        "not_taken": not_taken(settings, ledger),
        "lineage": _lineage(ledger),
        "units": _units(ledger),
        "requests": _requests(ledger),
        **_ahead(ledger),
        "not_in_force": [],  # of a service: what its files say now and can't be used
    }
    words = {
        name: _word(ledger, run, _promise(ledger, run) if run.status == "failed" else None)
        for name, run in newest.items()
    }
    halts = {each.what: each for each in halted(settings, ledger, now_ms)} if document["held"] else {}
    headline = _headline(settings, switches, halts, document, healths, now_ms)
    if headline["state"] in ("empty", "clear"):
        headline = _quiet(headline, healths, len(settings.datasets) - len(living))
    sentence = ""
    if with_needs:
        from kfm.reports import needs

        found = needs.needs(settings, ledger, completeness, now_ms, healths)
        document["needs"] = [needs.need_document(one) for one in found]
        sentence = needs.headline(healths, found)
    return StatusRead({"headline": headline, **document}, words, sentence)


def _promise(ledger: Any, run: Any) -> Any:
    """What was decided about the last attempt of a failed run, if another one is promised."""
    state = ledger.retry_state(run.run_id)
    is_ahead = state is not None and state.fate == "retry" and state.attempt == run.attempts
    return state if is_ahead else None


def _word(ledger: Any, run: Any, promise: Any) -> str:
    return of_waiting(promise.reason) if promise is not None else word_of_run(ledger, run)


def _breakers(settings: Any, ledger: Any) -> list[dict[str, Any]]:
    """The circuits that are not as usual."""
    found = [each for each in ledger.breakers() if each.state != "closed" or each.closed_at_ms is not None]
    if not found:
        return []
    from kfm.reports.breakers import breaker_document

    documents = [breaker_document(breaker, ledger.now_ms(), settings) for breaker in found]
    return [each for each in documents if each["state"] != "closed" or each["recovered_at"]]


def _incidents(ledger: Any) -> list[dict[str, Any]]:
    """Those that are open, the newest first."""
    found = ledger.incidents(state="open", limit=ATTENTION_MAX)
    if not found:
        return []
    from kfm.reports.incidents import present_document

    silences = ledger.silences()
    return [present_document(ledger, incident, silences) for incident in found]


def _stale(ledger: Any, settings: Any) -> list[dict[str, Any]]:
    """Derived datasets whose inputs have changed since."""
    if not any(source.datasets for source in settings.sources):
        return []
    from kfm.reports.derived import stale_documents

    return stale_documents(ledger, settings)


def _lineage(ledger: Any) -> dict[str, Any]:
    backlog = ledger.backlog("openlineage")
    return {"waiting": backlog.waiting, "oldest": instant(backlog.oldest_ms)}


def _units(ledger: Any) -> dict[str, Any] | None:
    figures = ledger.unit_figures()
    if not figures:
        return None
    from kfm.reports.units import unit_documents

    return unit_documents(figures)


def _requests(ledger: Any) -> dict[str, Any]:
    """What was asked for and has no end yet; of what waits, what for."""
    found: dict[str, Any] = {"open": 0, "running": 0, "awaiting_approval": 0}
    waiting: dict[str, int] = {}
    for state, blocked_by, count in ledger.unsettled_requests():
        found[state.replace("-", "_")] += count
        if state == "open":
            word = of_waiting(blocked_by)
            waiting[word] = waiting.get(word, 0) + count
    return {**found, "waiting": waiting}


def _ahead(ledger: Any) -> dict[str, Any]:
    ahead = ledger.ahead()
    if not ahead.held and not ahead.waiting:
        return {"held": None, "next_retry": None}
    from kfm.reports.quarantine import ahead_documents

    return ahead_documents(ahead)


# --- the first line ------------------------------------------------------------------


def _headline(
    settings: Any,
    switches: list[Any],
    halts: dict[str, Any],
    document: dict[str, Any],
    healths: list[Any],
    now_ms: int,
) -> dict[str, Any]:
    """State, one sentence, who can change it and the command.

    First what readers can still see and may not; then stops, and what a review holds; then
    what fails, what is late, and last what is paused on purpose. A pause of a dataset comes before a failure
    of its own alone. Of a dataset that is halted the halt, not the pause that it has set: lifting that alone
    starts nothing.
    """
    for one in document["to_withdraw"]:
        sentence = f"readers still see dataset {one['dataset_id']}, though {one['why']}"
        return _line("failing", sentence, OPERATOR, one["command"])
    for one in document["still_shown"]:
        return _line("failing", one["sentence"], OPERATOR, one["command"])
    thrown = [each for each in switched(switches) if each.kind != "replays"]
    for each in chain((each for each in thrown if not each.is_on_purpose), halts.values()):
        return _blocked(each)
    on_purpose = [*thrown, *frozen(settings, now_ms)]
    held = {
        dataset.id
        for dataset in settings.datasets
        if any(each.holds(dataset.id, dataset.domain) for each in on_purpose)
    }
    others = [each for each in healths if each.dataset_id not in held]
    if (wrong := _wrong(document, others, held)) is not None:
        return wrong
    for each in on_purpose:
        return _blocked(each)
    if (unwell := worst(healths, ("paused",))) is not None:
        return _unwell(unwell)
    announced = settings.ingest.queues and not settings.sources  # nothing that `kfm run` could do
    if announced and document["units"] is None:
        return _line("empty", "nothing was taken in yet", "anyone who may operate", "kfm worker")
    if not announced and not any(dataset["last_run"] for dataset in document["datasets"]):
        return _line("empty", "nothing has run yet", "anyone who may run it", "kfm run")
    return _line("clear", "all clear", None, None)


def _quiet(headline: dict[str, Any], healths: list[Any], retired: int) -> dict[str, Any]:
    """Where nothing is wrong: what readers do not see on purpose, and no work that would be refused."""
    withdrawn = sum(each.state == "withdrawn" for each in healths)
    gone = [
        f"{counted(many, 'dataset')} {'is' if many == 1 else 'are'} {word}"
        for word, many in (("withdrawn", withdrawn), ("retired", retired))
        if many
    ]
    if headline["state"] == "empty" and len(healths) > withdrawn:
        return headline
    return _line("clear", "; ".join(("all clear", *gone)), None, None) if gone else headline


def _blocked(blocker: Any) -> dict[str, Any]:
    who = blocker.who if blocker.kind == "halt" else OPERATOR
    return _line("blocked", blocker.sentence, who, blocker.command)


def _wrong(document: dict[str, Any], healths: list[Any], held: set[str]) -> dict[str, Any] | None:
    """What is not as it was meant: failing before waiting before behind; without the datasets `held`."""
    for breaker in document["breakers"]:
        if breaker["state"] != "closed":
            from kfm.reports.breakers import breaker_headline

            sentence, command = breaker_headline(breaker)
            return _line("blocked", sentence, OPERATOR, command)
    needing = [each for each in document["needs_attention"] if each["dataset_id"] not in held]
    for last in needing:
        if last["next_attempt"] is None:
            return _line("failing", f"failing: {_ended(last)}", OPERATOR, last["command"])
    incidents = [
        each for each in document["incidents"] if each["about"] != "dataset" or each["name"] not in held
    ]
    if incidents:
        from kfm.reports.incidents import incident_headline

        return _line(*incident_headline(incidents))
    if (failing := worst(healths, ("failing",))) is not None:
        return _unwell(failing)
    for shown in document["not_taken"]:
        return _line("failing", shown["sentence"], OPERATOR, shown["command"])
    for last in needing:
        return _line("waiting", f"waiting for a retry: {_ended(last)}", OPERATOR, last["command"])
    return _behind(document, healths)


def _behind(document: dict[str, Any], healths: list[Any]) -> dict[str, Any] | None:
    """What is not up to date although nothing failed."""
    for pending in document["pending_projections"]:
        sentence = (
            f"behind: target {pending['target']} does not show version {pending['promoted']} "
            f"of dataset {pending['dataset_id']}"
        )
        return _line("behind", sentence, OPERATOR, "kfm project")
    for stale in document["stale"]:
        for gone in stale["gone"]:  # nothing makes it anew, and nothing takes it down by itself
            more = f"; {stale['inputs_gone'] - 1} more" if stale["inputs_gone"] > 1 else ""
            return _line("behind", f"behind: {gone['sentence']}{more}", OPERATOR, gone["command"])
    for stale in document["stale"]:
        windows = f"{stale['windows']} window{'s' if stale['windows'] > 1 else ''}"
        sentence = f"behind: inputs of {windows} of dataset {stale['dataset_id']} have changed"
        return _line("behind", sentence, OPERATOR, "kfm schedule run-due")
    if (unwell := worst(healths, ("late", "incomplete"))) is not None:
        return _unwell(unwell)
    return None


def _unwell(health: Any) -> dict[str, Any]:
    """A dataset that is not fresh, by its first cause."""
    sentence = f"{health.state}: dataset {health.dataset_id}: {cause_text(health.causes[0])}"
    return _line(health.state, sentence, OPERATOR, health_command(health))


def _ended(last: dict[str, Any]) -> str:
    return (
        f"dataset {last['dataset_id']}, run {short_id(last['run_id'])} ended with "
        f"{last['error_code'] or 'an error'}: {last['error_message'] or 'no message was kept'}"
    )


def _line(state: str, sentence: str, who: str | None, command: str | None) -> dict[str, Any]:
    return {"state": state, "sentence": one_line(sentence).rstrip("."), "who": who, "command": command}


# --- the rest ------------------------------------------------------------------------


def _dataset(health: Any, heads: dict[str, Any], run: Any, renames: Sequence[Rename]) -> dict[str, Any]:
    head = heads.get(health.dataset_id)
    return {
        "dataset_id": health.dataset_id,
        "name": present_name(health.dataset_id, of_dataset(health.dataset_id, renames)),
        "health": health_document(health),
        "version": head.sequence if head else None,
        "version_id": head.version_id if head else None,
        "promoted_at": instant(head.promoted_at_ms) if head else None,
        "last_run": _brief(run) if run is not None else None,
    }


def _brief(run: Any) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "source_id": run.source_id,
        "status": run.status,
        "window_start": instant(run.window_start_ms),
        "window_end": instant(run.window_end_ms),
        "started_at": instant(run.start_time_ms),
        "ended_at": instant(run.end_time_ms),
        "error_code": run.error_code,
        "error_message": run.error_message,
    }


def _needing(run: Any, ledger: Any, now_ms: int, settings: Any) -> dict[str, Any]:
    from kfm.reports.next_steps import step_of_run

    step, promise = step_of_run(ledger, run, now_ms, settings), _promise(ledger, run)
    return {
        "dataset_id": run.dataset_id,
        **_brief(run),
        "attempts": run.attempts,
        "next_attempt": instant(promise.not_before_ms) if promise is not None else None,
        "command": step.command if step else None,
        "next_step": step,
    }


def _running(run: Any, locks: list[Any], now_ms: int) -> dict[str, Any]:
    lock = next((lock for lock in locks if lock.holder.run_id == run.run_id), None)
    return {
        "run_id": run.run_id,
        "source_id": run.source_id,
        "dataset_id": run.dataset_id,
        "window_start": instant(run.window_start_ms),
        "window_end": instant(run.window_end_ms),
        "attempt": run.attempts,
        "started_at": instant(run.start_time_ms),
        "holder": lock.holder.worker_id if lock else None,
        "lease_left_ms": max(lock.lease_until_ms - now_ms, 0) if lock else 0,
    }


def _lock(lock: Any, now_ms: int, gone: bool) -> dict[str, Any]:
    return {
        "scope": lock.scope,
        "fence": lock.fence,
        "holder": lock.holder.worker_id,
        "run_id": lock.holder.run_id,
        "acquired_at": instant(lock.acquired_at_ms),
        # A process that is known to be gone is not waited for.
        "lease_left_ms": 0 if gone else max(lock.lease_until_ms - now_ms, 0),
    }


def switch_document(switch: Any) -> dict[str, Any]:
    return {
        "scope": switch.scope,
        "position": switch.position,
        "rationale": switch.rationale,
        "actor": switch.actor,
        "set_at": instant(switch.set_at_ms),
    }


def _pending(app: Any, heads: dict[str, Any], known: dict[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Targets that do not show the promoted head, as far as is known, or as can be seen in a folder."""
    pending, renames = [], app.ledger.change_reader().renames()
    for dataset_id, head in sorted(heads.items()):
        dataset = app.settings.declared(dataset_id)
        for target in app.settings.publish:
            if dataset is not None and not takes(target, dataset):
                continue
            name = target_name(target)
            shown = known.get((dataset_id, name))
            if (
                shown is not None
                and target.kind == "local"
                and _is_emptied(
                    app, target, dataset_id, present_name(dataset_id, of_dataset(dataset_id, renames))
                )
            ):
                shown = None
            if target.kind != "noop" and (shown or 0) < head.sequence:
                facts = {"dataset_id": dataset_id, "target": name, "promoted": head.sequence, "shown": shown}
                pending.append(facts)
    return pending


def not_taken(settings: Any, ledger: Any) -> list[dict[str, Any]]:
    """What targets show and do not take, or do not take any more: nothing updates it, and nothing removes it
    but a withdrawal."""
    found: list[dict[str, Any]] = []
    known = {place: shown for place, shown in ledger.projected().items() if shown}
    if not known:
        return found
    for one in ledger.change_reader().target_withdrawals():
        place = (one.dataset_id, one.target)
        if one.is_active and known.get(place, 0) >= one.since_sequence:
            del known[place]  # it shows a tombstone
    for target in settings.publish:
        for dataset in settings.datasets:
            name = target_name(target)
            shown, why = known.get((dataset.id, name)), taking(target, dataset)
            if not shown or target.kind == "noop" or why == "taken":
                continue
            found.append(
                {
                    "dataset_id": dataset.id,
                    "target": name,
                    "shown": shown,
                    "reason_code": why,
                    "sentence": f"target {name} shows version {shown} of dataset {dataset.id}, "
                    f"which it does not take: {NOT_TAKEN[why]}",
                    "command": removal_command(dataset.id, name),
                }
            )
    return sorted(found, key=lambda one: (one["dataset_id"], one["target"]))


NOT_TAKEN = {
    "no-rights": "its rights are not declared",
    "blocked": "its CARE level is blocked",
    "other-datasets": "`datasets` of the target does not name it",
    "care": "the target does not take its CARE level",
}


def _is_emptied(app: Any, target: Any, dataset_id: str, name: str) -> bool:
    """Is what it showed gone? A dataset that is not configured any more is not looked for."""
    if not any(dataset.id == dataset_id for dataset in app.settings.datasets):
        return False
    folder = app.loaded.resolve(target.path or ".")
    return not app.files.exists(f"{folder}/{name}/current/manifest.json")
