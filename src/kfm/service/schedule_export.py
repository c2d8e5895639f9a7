"""Exports of schedules: a GitHub workflow, DAGs of Airflow, a graph with crons for LangGraph.

What another scheduler can't express is refused, with a remedy; what it does differently is a note, printed
and at the top of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kfm.model.errors import UsageError
from kfm.model.schedules import MINUTE_MS, Schedule
from kfm.model.settings import Settings
from kfm.model.windows import DAY_MS

GITHUB_MINUTES_MIN = 5
# Pinned by commit: a tag can be moved to other code.
CHECKOUT = "actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2"
SETUP_PYTHON = "actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065 # v5.6.0"
UPLOAD_ARTIFACT = "actions/upload-artifact@ea165f8d65b6e75b540449e92b4886f43607fa02 # v4.6.2"
_OWN = re.compile(r"[#LW]", re.IGNORECASE)
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")
_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_NAMES = re.compile(r"\b(?:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC|SUN|MON|TUE|WED|THU|FRI|SAT)\b")


class ScheduleExport(NamedTuple):
    """A file for another scheduler, and what it does differently there."""

    text: str
    notes: tuple[str, ...]


class ExportOptions(NamedTuple):
    """What an export is made with, beside the schedules."""

    settings: Settings
    config: str  # the name of the configuration's file
    file: str  # and of the schedules'
    requirements: RequirementsFile | None = None
    connection: str | None = None  # of Airflow, to a service


class RequirementsFile(NamedTuple):
    """What a job installs: a file of the repository."""

    path: str
    has_hashes: bool


class ExportedJob(NamedTuple):
    """One schedule as cron lines in one zone, and the command that it starts."""

    schedule: Schedule
    lines: tuple[str, ...]
    zone: str
    command: str


def requirements_file(path: str, text: str) -> RequirementsFile:
    """The file of requirements that a workflow names, with its text."""
    if _PATH.fullmatch(path) is None or ".." in path.split("/"):
        raise UsageError(
            f"{path[:100]} can't be named in a workflow.",
            remedy="Give its path in the repository: letters, digits, `.`, `_`, `-` and `/`.",
        )
    return RequirementsFile(path, "--hash=" in text)


def export(target: str, schedules: Sequence[Schedule], options: ExportOptions) -> ScheduleExport:
    """The file for one scheduler; schedules that are not enabled are left out."""
    if options.requirements is not None and target != "github":
        raise UsageError("--requirements is about the workflow of GitHub, which installs what it runs.")
    if options.connection is not None and target != "airflow":
        raise UsageError("--connection is about Airflow, which has connections.")
    enabled = sorted((each for each in schedules if each.enabled), key=lambda each: each.id)
    if not enabled:
        raise UsageError("No schedule is enabled, so there is nothing to export.")
    return TARGETS[target](enabled, options)


# --- what all of them share --------------------------------------------------------------


def _command(schedule: Schedule) -> str:
    """Every part of it has passed the checks of names and durations, so that nothing needs quoting."""
    window = f" --window {schedule.window}" if schedule.window is not None else ""
    return f"kfm run --no-input --source {schedule.source}{window}"


def _job(schedule: Schedule, who: str) -> ExportedJob:
    if schedule.cron is None:
        return ExportedJob(schedule, tuple(_interval_lines(schedule, who)), "UTC", _command(schedule))
    fields = schedule.cron.upper().split()
    if any(_OWN.search(_NAMES.sub("", field)) for field in fields):
        raise _refused(schedule, who, f"`{schedule.cron}` uses `#`, `L` or `W`", "Name the days.")
    if "7" in re.split(r"\D", fields[4]):
        raise _refused(schedule, who, "Sunday is written as 7", "Write 0, or SUN.")
    stars = [field.startswith("*") for field in (fields[2], fields[4])]
    if any(stars) and "*" not in (fields[2], fields[4]):
        raise _refused(
            schedule,
            who,
            f"`{schedule.cron}` restricts both kinds of days, one by a step, which is read in two ways",
            "List the days instead of the step.",
        )
    return ExportedJob(schedule, (schedule.cron,), schedule.time_zone, _command(schedule))


def _interval_lines(schedule: Schedule, who: str) -> Iterator[str]:
    """An interval that divides a day is a list of times of day, in UTC."""
    every_ms = schedule.every_ms or 0
    if not _divides_a_day(schedule):
        raise _refused(
            schedule,
            who,
            f"{every_ms // 1000} s do not divide a day into whole minutes",
            "Choose an interval that does, such as PT90M or PT6H.",
        )
    first = schedule.anchor_ms % every_ms
    by_minutes: dict[int, list[int]] = {}
    for at_ms in range(first, DAY_MS, every_ms):
        hour, minute = divmod(at_ms // MINUTE_MS, 60)
        by_minutes.setdefault(minute, []).append(hour)
    by_hours: dict[tuple[int, ...], list[int]] = {}
    for minute, hours in by_minutes.items():
        by_hours.setdefault(tuple(hours), []).append(minute)
    for hours_, minutes in by_hours.items():
        yield f"{_listed(minutes, 60)} {_listed(hours_, 24)} * * *"


def _divides_a_day(schedule: Schedule) -> bool:
    every_ms = schedule.every_ms or 1
    return not (every_ms % MINUTE_MS or DAY_MS % every_ms or schedule.anchor_ms % MINUTE_MS)


def _listed(values: Sequence[int], all_of: int) -> str:
    return "*" if len(values) == all_of else ",".join(map(str, sorted(values)))


def _refused(schedule: Schedule, who: str, why: str, remedy: str) -> UsageError:
    return UsageError(f"{who} can't keep the schedule {schedule.id}: {why}.", remedy=remedy)


def _notes(schedules: Sequence[Schedule], who: str, cancels: bool) -> tuple[str, ...]:
    def named(wanted: Callable[[Schedule], bool]) -> str:
        return ", ".join(each.id for each in schedules if wanted(each))

    notes = [f"{who} decides what becomes of instants that it misses: `missed` is not exported"]
    if ids := named(lambda each: each.jitter_ms > 0):
        notes.append(f"without jitter: {ids}")
    if not cancels and (ids := named(lambda each: each.overlap == "cancel-older")):
        notes.append(f"a later run does not cancel the older one: {ids}")
    if ids := named(lambda each: each.cron is not None and each.time_zone != "UTC"):
        notes.append(f"on days on which the clocks change {who}'s rules hold, not kfm's: {ids}")
    return tuple(notes)


def export_command(target: str, options: ExportOptions) -> str:
    """The command that makes the same file."""
    command = f"kfm schedule export {target}"
    if options.requirements is not None:
        command += f" --requirements {options.requirements.path}"
    return command if options.connection is None else f"{command} --connection {options.connection}"


def _header(target: str, options: ExportOptions, notes: Sequence[str]) -> list[str]:
    command = export_command(target, options)
    return [
        f"# Made by `{command}` from {options.file}. Edits here are lost;",
        f"# `{command} --check THIS_FILE` tells whether it still says the same.",
        *(f"# - {note}" for note in notes),
    ]


# --- GitHub ------------------------------------------------------------------------------


def _github(schedules: Sequence[Schedule], options: ExportOptions) -> ScheduleExport:
    jobs = [_job(each, "GitHub") for each in schedules]
    _require_five_minutes(jobs)
    _require_distinct(jobs)
    secrets = _secrets(options.settings)
    notes = (
        *_notes(schedules, "GitHub", cancels=True),
        "GitHub may start late, or leave out a start",
        f"secrets of the environment `kfm` in the repository's settings: {', '.join(secrets)}",
        *_install_notes(options),
    )
    lines = [*_header("github", options, notes), "name: kfm schedules", "on:", "  schedule:"]
    for job in jobs:
        for line in job.lines:
            lines.append(f'    - cron: "{line}"  # {job.schedule.id}')
            if job.zone != "UTC":
                lines.append(f'      timezone: "{job.zone}"')
    lines += ["  workflow_dispatch: {}", "", "permissions:", "  contents: read", "", "jobs:"]
    for job in jobs:
        lines += _github_job(job, options, secrets)
    return ScheduleExport("\n".join(lines) + "\n", notes)


def _require_distinct(jobs: Sequence[ExportedJob]) -> None:
    """A job knows by the text of the line alone which one started it."""
    seen: dict[str, ExportedJob] = {}
    for job in jobs:
        for line in job.lines:
            other = seen.setdefault(line, job)
            if other.zone != job.zone:
                raise _refused(
                    job.schedule,
                    "GitHub",
                    f"{other.schedule.id} has the same pattern in another time zone",
                    "Move one of them by a minute.",
                )


def _require_five_minutes(jobs: Sequence[ExportedJob]) -> None:
    from kfm.model.schedules import times_of_day

    for job in jobs:
        times = sorted(time for line in job.lines for time in times_of_day(line))
        gaps = [later - earlier for earlier, later in zip(times, [*times[1:], times[0] + 1440], strict=True)]
        if min(gaps) < GITHUB_MINUTES_MIN:
            raise _refused(
                job.schedule,
                "GitHub",
                f"it fires oftener than every {GITHUB_MINUTES_MIN} minutes",
                "Fire less often, or run `kfm` where it can.",
            )


def _job_name(job: ExportedJob) -> str:
    """Letters, digits, `-` and `_`, not beginning with a digit: a dot of an id is told apart from a dash."""
    return "s-" + job.schedule.id.replace("_", "__").replace(".", "_-")


def _secrets(settings: Settings) -> list[str]:
    """The variables that a job needs: those that the configuration refers to, and the address of the store.

    Webhooks come to a service, not to a job.
    """
    import msgspec

    names: set[str] = set()

    def look(value: object) -> None:
        if isinstance(value, dict):
            for field, inner in value.items():
                if field != "webhook":
                    look(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                look(inner)
        elif isinstance(value, str) and (found := _VARIABLE.fullmatch(value)):
            names.add(found[1])

    look(msgspec.to_builtins(settings))
    if not (settings.store or "").startswith(("env:", "postgres")):
        names.add("KFM_STORE")
    if settings.people:
        names.add("KFM_TOKEN")
    return sorted(names)


def _install_notes(options: ExportOptions) -> Iterator[str]:
    if not (options.settings.store or "").startswith(("env:", "postgres")):
        yield "the runner's disk ends with the job: KFM_STORE is the address of a PostgreSQL database"
    if options.requirements is None:
        yield "what is installed is not pinned: export with --requirements FILE"
    elif not options.requirements.has_hashes:
        yield f"{options.requirements.path} has no hashes: `uv pip compile --generate-hashes` writes them"


def _install(requirements: RequirementsFile | None) -> str:
    if requirements is None:
        return "python -m pip install kfm-kernel"
    hashes = "--require-hashes --only-binary :all: " if requirements.has_hashes else ""
    return f"python -m pip install {hashes}--requirement {requirements.path}"


def _github_job(job: ExportedJob, options: ExportOptions, secrets: Sequence[str]) -> list[str]:
    patterns = ", ".join(f'"{line}"' for line in job.lines)
    mine = f"contains(fromJSON('[{patterns}]'), github.event.schedule)"
    cancel = "true" if job.schedule.overlap == "cancel-older" else "false"
    return [
        f"  {_job_name(job)}:",
        f"    if: github.event_name != 'schedule' || {mine}",
        "    runs-on: ubuntu-latest",
        "    environment: kfm",
        "    concurrency:",
        f"      group: kfm-{job.schedule.source}",
        f"      cancel-in-progress: {cancel}",
        "    steps:",
        f"      - uses: {CHECKOUT}",
        "        with: {persist-credentials: false}",
        f"      - uses: {SETUP_PYTHON}",
        '        with: {python-version: "3.12"}',
        "      - run: |",
        f"          {_install(options.requirements)}",
        f"      - run: {job.command} --output json --artifacts artifacts",
        "        env:",
        f'          KFM_CONFIG: "{options.config}"',
        *(f"          {name}: ${{{{ secrets.{name} }}}}" for name in secrets),
        f"      - uses: {UPLOAD_ARTIFACT}",
        "        if: always()",
        f'        with: {{name: "kfm-{job.schedule.id}", path: artifacts}}',
    ]


# --- Airflow -----------------------------------------------------------------------------


_AIRFLOW = '''\
%(imports)s

START = datetime(2020, 1, 1, tzinfo=timezone.utc)
%(where)s


def made(dag_id, source, dataset, schedule, **run):
    """One at a time, no catch-up: `airflow backfill create` asks for past windows.

    Retries are for services and stores that are away: kfm decides whether work that failed is tried again.
    """
    tags = ["kfm", dataset]
    task = {"owner": "kfm", "retries": 2}
    with DAG(
        dag_id,
        schedule=schedule,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        tags=tags,
        default_args=task,
    ) as dag:
        KfmRunOperator(task_id="run", source=source, outlets=[kfm_asset(dataset, PLACE)], **WHERE, **run)
    return dag


'''
_SERVICE = """\
PLACE = "%s"  # the connection to the service
WHERE = {"conn_id": PLACE}"""
_PROJECT = """\
PLACE = "project"  # in the addresses of assets: kfm://PLACE/DATASET
WHERE = {"project": os.path.dirname(os.environ.get("KFM_CONFIG", "")) or "."}"""


def _airflow(schedules: Sequence[Schedule], options: ExportOptions) -> ScheduleExport:
    notes = [*_notes(schedules, "Airflow", cancels=False)]
    if ids := ", ".join(each.id for each in schedules if each.every_ms and not _divides_a_day(each)):
        notes.append(f"Airflow counts intervals from its own last run: {ids}")
    settings, connection = options.settings, options.connection
    derived = _derived(schedules, settings)
    if connection is None:
        notes.append(f"set KFM_CONFIG on the workers to the full path of {options.config}")
    elif derived:
        ids = ", ".join(source for source, _ in derived)
        notes.append(f"`kfm serve` makes datasets from datasets itself; mostly these find it done: {ids}")
    calls = [
        _made(
            schedule.id,
            schedule.source,
            settings,
            _timetable(schedule),
            f'window="{schedule.window}"' if schedule.window is not None else None,
        )
        for schedule in schedules
    ]
    for source, inputs in derived:
        assets = " | ".join(f'kfm_asset("{dataset}", PLACE)' for dataset in inputs)
        calls.append(_made(f"from.{source}", source, settings, assets, None))
    where = _PROJECT if connection is None else _SERVICE % connection
    body = _AIRFLOW % {"imports": _imports(calls, connection), "where": where}
    lines = [f"dag_{index} = {call}" for index, call in enumerate(calls)]
    header = "\n".join(_header("airflow", options, notes))
    return ScheduleExport(f"{header}\n{body}" + "\n".join(lines) + "\n", tuple(notes))


def _imports(calls: Sequence[str], connection: str | None) -> str:
    text = "".join(calls)
    names = [name for name in ("DeltaTriggerTimetable", "MultipleCronTriggerTimetable") if name in text]
    delta = "timedelta, " if "timedelta(" in text else ""
    return "\n".join(
        [
            *(["import os"] if connection is None else []),
            f"from datetime import datetime, {delta}timezone",
            "",
            "from airflow.sdk import DAG",
            *([f"from airflow.timetables.trigger import {', '.join(names)}"] if names else []),
            "from kfm.integrations.airflow import KfmRunOperator, kfm_asset",
        ]
    )


def _made(name: str, source: str, settings: Settings, schedule: str, more: str | None) -> str:
    dataset = settings.source(source).dataset
    arguments = [f'"kfm.{name}"', f'"{source}"', f'"{dataset}"', schedule, *([more] if more else [])]
    return "made(\n" + "".join(f"    {argument},\n" for argument in arguments) + ")"


def _derived(schedules: Sequence[Schedule], settings: Settings) -> list[tuple[str, list[str]]]:
    """Sources that are made of datasets which these DAGs promote, and which; schedules of their own win."""
    asked = {settings.source(each.source).id for each in schedules}
    made = {settings.source(source).dataset for source in asked}
    found: dict[str, list[str]] = {}
    for _ in settings.sources:  # at most so many steps from a first dataset to a last one
        for source in settings.sources:
            inputs = [name for name in source.datasets if settings.dataset_id(name) in made]
            if inputs and source.id not in asked:
                found[source.id] = inputs
                made.add(source.dataset)
    return sorted(found.items())


def _timetable(schedule: Schedule) -> str:
    if schedule.every_ms and not _divides_a_day(schedule):
        return f"DeltaTriggerTimetable(timedelta(milliseconds={schedule.every_ms}))"
    job = _job(schedule, "Airflow")
    crons = ", ".join(f'"{line}"' for line in job.lines)
    return f'MultipleCronTriggerTimetable({crons}, timezone="{job.zone}")'


# --- LangGraph ---------------------------------------------------------------------------

_LANGGRAPH = '''\
import asyncio
import subprocess
import sys
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

BUSY = 5  # another run is under way
SCHEDULES = {
%s
}


class Update(TypedDict, total=False):
    schedule: str
    exit_code: int


def run(state: Update) -> Update:
    """Bring the schedule's source up to date: done, or nothing to do."""
    ended = subprocess.run(SCHEDULES[state["schedule"]]["command"].split(), stdout=sys.stderr)
    if ended.returncode not in (0, BUSY):
        raise RuntimeError(f"kfm run ended with {ended.returncode}; `kfm status` says why")
    return {"exit_code": ended.returncode}


graph = StateGraph(Update).add_node("run", run).add_edge(START, "run").add_edge("run", END).compile()


async def register(url: str, assistant: str) -> None:
    """Make the crons of a LangGraph server those of this file; crons of others stay."""
    from langgraph_sdk import get_client

    crons = get_client(url=url).crons
    for cron in await crons.search(assistant_id=assistant, limit=1000):
        if "kfm_schedule" in (cron.get("metadata") or {}):
            await crons.delete(cron["cron_id"])
    for name, schedule in SCHEDULES.items():
        for line in schedule["crons"]:
            await crons.create(
                assistant,
                schedule=line,
                timezone=schedule["timezone"],
                input={"schedule": name},
                metadata={"kfm_schedule": name},
            )


if __name__ == "__main__":
    asyncio.run(register(*sys.argv[1:3]))
'''


def _langgraph(schedules: Sequence[Schedule], options: ExportOptions) -> ScheduleExport:
    notes = (
        *_notes(schedules, "LangGraph", cancels=False),
        f"set KFM_CONFIG on the server to the full path of {options.config}",
        "register the crons with `python THIS_FILE URL ASSISTANT`",
    )
    entries = []
    for schedule in schedules:
        job = _job(schedule, "LangGraph")
        crons = ", ".join(f'"{line}"' for line in job.lines)
        entries.append(
            f'    "{schedule.id}": {{\n'
            f'        "crons": [{crons}],\n'
            f'        "timezone": "{job.zone}",\n'
            f'        "command": "{job.command}",\n'
            "    },"
        )
    body = _LANGGRAPH % "\n".join(entries)
    return ScheduleExport("\n".join(_header("langgraph", options, notes)) + "\n" + body, notes)


TARGETS: dict[str, Callable[[Sequence[Schedule], ExportOptions], ScheduleExport]] = {
    "github": _github,
    "airflow": _airflow,
    "langgraph": _langgraph,
}
