"""`kfm status` without the argument parser, and the lines that it prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kfm.cli.output import between, duration, one_line, short_id, table, utc
from kfm.cli.process import clean, data, name_config, with_config
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.records import UNIT_STATUSES
from kfm.reports.state_words import of_unit
from kfm.reports.status import StatusRead, read_status

if TYPE_CHECKING:
    from kfm.ports import Clock


def read_session(arguments: Sequence[str]) -> CommandSession | None:
    """The session that these arguments of `status` mean, or None if the parser should decide."""
    config, output = None, "text"
    rest = [word for word in arguments if word != "--all"]
    while rest:
        word = rest.pop(0)
        if word == "--json":
            output = "json"
        elif word in ("-c", "--config") and rest and not rest[0].startswith("-"):
            config = rest.pop(0)
        else:
            return None
    return CommandSession(config=config, output=output)


def quick_status(arguments: Sequence[str]) -> int | None:
    """Run `status` and return its exit code; None: the parser has to read these arguments."""
    session = read_session(arguments)
    if session is None:
        return None
    from kfm.cli.process import guarded

    return guarded(lambda: show_status(session, everything="--all" in arguments), arguments, logs=False)


def show_status(session: CommandSession, *, everything: bool = False) -> int:
    """In brief where a person looks at a terminal, unless `everything` is asked for."""
    name_config(session.config)
    is_brief = session.output == "text" and not everything and data().isatty()
    read = _read(session, with_needs=is_brief or session.output != "text")
    session.emit(read.document, _brief(session, read) if is_brief else render(read.document, read.words))
    return 0


def watch_status(session: CommandSession, clock: Clock) -> int:
    """The brief form, again every few seconds."""
    from kfm.cli.status_brief import watch

    if session.output != "text" or not data().isatty():
        raise UsageError(
            "--watch draws on a terminal; it has no JSON form, and none for files and pipes.",
            remedy="Ask again from a loop: `kfm status --json`.",
        )

    def write(text: str) -> None:
        data().write(clean(with_config(text)))
        data().flush()

    return watch(lambda: _brief(session, _read(session, with_needs=True)), write, clock)


def _read(session: CommandSession, *, with_needs: bool) -> StatusRead:
    with session.app(read_only=True) as app:
        return read_status(app, with_needs=with_needs)


def _brief(session: CommandSession, read: StatusRead) -> list[str]:
    import shutil

    from kfm.cli.status_brief import brief, coloured

    lines = brief(read.document, read.sentence, shutil.get_terminal_size().columns)
    return coloured(lines) if session.colour else lines


def render(document: dict[str, Any], words: dict[str, str]) -> list[str]:
    """`words`: of the newest run of each dataset."""
    head = document["headline"]
    first = head["sentence"]
    if head["state"] == "empty":
        first = f"{first}: {head['command']}"
    elif head["command"]:
        first = f"{first}: {head['who']} can lift it with `{head['command']}`"
        if head["state"] != "blocked":
            first = f"{head['sentence']}: try `{head['command']}`"
    lines = [first, f"environment {document['environment']}, {utc(document['at'])}"]
    if datasets := _dataset_rows(document, words):
        lines += [
            "",
            *table(
                ("DATASET", "HEALTH", "VERSION", "PROMOTED", "LAST RUN", "RUN ID"),
                datasets,
                spare=("VERSION", "LAST RUN"),
            ),
        ]
    for title, rows in (
        ("to be withdrawn", _withdraw_rows(document)),
        ("withdrawn, and not gone yet", _still_shown_rows(document)),
        ("needs attention", _attention_rows(document)),
        ("running", _running_rows(document)),
        ("locks", _lock_rows(document)),
        ("switches", _switch_rows(document)),
        ("providers", _breaker_rows(document)),
        ("incidents", _incident_rows(document)),
        ("quarantine and retries", _ahead_rows(document)),
        ("requests", _request_rows(document)),
        ("stale", _stale_rows(document)),
        ("not shown", _pending_rows(document)),
        ("shown by a target that does not take it", _not_taken_rows(document)),
        ("not delivered yet", _lineage_rows(document)),
        ("announced objects", _unit_rows(document)),
    ):
        if rows:
            lines += ["", f"{title}:", *rows]
    return lines


def _dataset_rows(document: dict[str, Any], words: dict[str, str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for dataset in document["datasets"]:
        last = dataset["last_run"]
        rows.append(
            (
                dataset["name"],
                dataset["health"]["state"],
                str(dataset["version"] or "-"),
                utc(dataset["promoted_at"]) if dataset["promoted_at"] else "-",
                words[dataset["dataset_id"]] if last else "-",
                short_id(last["run_id"]) if last else "-",
            )
        )
    return rows


def _withdraw_rows(document: dict[str, Any]) -> list[str]:
    return [f"  {one['dataset_id']}: {one['why']}: `{one['command']}`" for one in document["to_withdraw"]]


def _still_shown_rows(document: dict[str, Any]) -> list[str]:
    return [f"  {one['sentence']}: `{one['command']}`" for one in document["still_shown"]]


def _unit_rows(document: dict[str, Any]) -> list[str]:
    if document["units"] is None:
        return []

    return unit_status_rows(document["units"])


def _attention_rows(document: dict[str, Any]) -> list[str]:
    rows = []
    for run in document["needs_attention"]:
        tries = f", {run['attempts']} attempts" if run["attempts"] > 1 else ""
        rows.append(
            f"  {short_id(run['run_id'])}  {run['dataset_id']} from {run['source_id']}, "
            f"{between(run['window_start'], run['window_end'])}: {run['error_code'] or 'an error'}{tries}"
        )
        rows.append(f"                 {one_line(run['next_step'].line)}")
    if document["needs_attention_more"]:
        rows.append(f"  … and {document['needs_attention_more']} more: kfm runs --status failed")
    return rows


def _running_rows(document: dict[str, Any]) -> list[str]:
    rows = []
    for run in document["running"]:
        held = (
            f"held by {run['holder']}"
            if run["holder"]
            else "held by no process: the next `kfm run` takes it over"
        )
        left = f", lease ends in {duration(run['lease_left_ms'])}" if run["holder"] else ""
        rows.append(
            f"  {short_id(run['run_id'])}  {run['dataset_id']} from {run['source_id']}, "
            f"attempt {run['attempt']}, since {utc(run['started_at'])}, {held}{left}"
        )
    return rows


def _lock_rows(document: dict[str, Any]) -> list[str]:
    return [
        f"  {lock['scope']}  fence {lock['fence']}, run {short_id(lock['run_id'])}, "
        + (f"lease ends in {duration(lock['lease_left_ms'])}" if lock["lease_left_ms"] else "lease lapsed")
        for lock in document["locks"]
    ]


def _switch_rows(document: dict[str, Any]) -> list[str]:
    return [
        f"  {switch['scope']}  {switch['position']} since {utc(switch['set_at'])} "
        f"by {one_line(switch['actor'])}: {one_line(switch['rationale'])}"
        for switch in document["switches"]
    ]


def _breaker_rows(document: dict[str, Any]) -> list[str]:
    if not document["breakers"]:
        return []
    from kfm.reports.breakers import breaker_text

    return [f"  {breaker_text(breaker)}" for breaker in document["breakers"]]


def _incident_rows(document: dict[str, Any]) -> list[str]:
    if not document["incidents"]:
        return []
    from kfm.reports.incidents import incident_text

    return [f"  {short_id(each['incident_id'])}  {incident_text(each)}" for each in document["incidents"]]


def _ahead_rows(document: dict[str, Any]) -> list[str]:
    if document["held"] is None and document["next_retry"] is None:
        return []

    return ahead_rows(document)


def _request_rows(document: dict[str, Any]) -> list[str]:
    counts = document["requests"]
    parts = [f"{counts['running']} running"] if counts["running"] else []
    parts += [f"{count} {word}" for word, count in counts["waiting"].items()]
    if counts["awaiting_approval"]:
        parts.append(f"{counts['awaiting_approval']} waiting for approval (`kfm approvals list`)")
    return [f"  {', '.join(parts)}: `kfm requests list`"] if parts else []


def _lineage_rows(document: dict[str, Any]) -> list[str]:
    waiting, oldest = document["lineage"]["waiting"], document["lineage"]["oldest"]
    if not waiting:
        return []
    events = f"{waiting} lineage event{'s' if waiting != 1 else ''}"
    return [f"  {events} since {utc(oldest)}; send with `kfm lineage deliver`"]


def _stale_rows(document: dict[str, Any]) -> list[str]:
    if not document["stale"]:
        return []
    from kfm.reports.derived import stale_line

    return [f"  {one_line(stale_line(each))}" for each in document["stale"]]


def _pending_rows(document: dict[str, Any]) -> list[str]:
    return [
        f"  {pending['dataset_id']} on {pending['target']}: shows {pending['shown'] or 'nothing'}, "
        f"promoted is {pending['promoted']}; make it with `kfm project`"
        for pending in document["pending_projections"]
    ]


def _not_taken_rows(document: dict[str, Any]) -> list[str]:
    return [
        f"  {shown['dataset_id']} on {shown['target']}: version {shown['shown']} stays until it is removed "
        f"with `{shown['command']}`"
        for shown in document["not_taken"]
    ]


def ahead_rows(document: dict[str, Any]) -> list[str]:
    rows = []
    held, upcoming = document["held"], document["next_retry"]
    if held is not None:
        since = utc(held["oldest"])
        rows.append(f"  {held['count']} quarantined, the oldest since {since}: `{held['command']}`")
    if upcoming is not None:
        more = f", {upcoming['waiting'] - 1} more after it" if upcoming["waiting"] > 1 else ""
        when = "due since" if upcoming["at"] <= document["at"] else "due at"
        rows.append(
            f"  {short_id(upcoming['run_id'])} of {upcoming['dataset_id']} is tried again, "
            f"{when} {utc(upcoming['at'])}{more}: `{upcoming['command']}`"
        )
    return rows


def unit_status_rows(document: dict[str, Any]) -> list[str]:
    rows = []
    for one in document["datasets"]:
        parts = [f"{one[name]} {of_unit(name)}" for name in UNIT_STATUSES if one[name]]
        newest = f"; newest {utc(one['newest'])}" if one["newest"] else ""
        rows.append(f"  {one['dataset']}  {', '.join(parts) or 'nothing'}{newest}")
    given_up = [one for one in document["datasets"] if one["failed"] or one["quarantined"]]
    if given_up:
        rows.append("  quarantined: `kfm nodd units --status failed`, `kfm quarantine list`")
    if document["dead_messages"]:
        rows.append(f"  dead messages came {document['dead_messages']} times: `kfm nodd dead list`")
    return rows
