"""Values that a shell completes: names of the configuration, ids of the ledger or of a service.

Asked for while a person types: a few of the newest, quickly; where they can't be read, none, without a word.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem, add_completion_class, get_completion_class

from kfm.cli.output import clipped
from kfm.cli.session import CommandSession
from kfm.model.quantities import moment, short_id

if TYPE_CHECKING:
    from kfm.app import App

NEWEST = 30
ABOUT_CHARS_MAX = 60
WAIT_MS = 1_500  # for a service
# What a parameter of this name is, in most commands; and in those that begin so.
BY_NAME = {
    **dict.fromkeys(("dataset", "datasets", "dataset_id"), "dataset"),
    **dict.fromkeys(("source", "sources", "source_id"), "source"),
    **dict.fromkeys(("run", "run_id"), "run"),
    **dict.fromkeys(("unit", "units"), "unit"),
    "provider": "provider",
    "schedule": "schedule",
    "replay_id": "replay",
    "request_id": "approval",
    "what": "anything",
}
BY_COMMAND = {
    "schedule": {"name": "schedule", "wanted": "schedule"},
    "cancel": {"wanted": "request"},
    "requests": {"wanted": "request"},
    "incident": {"wanted": "incident"},
    "quarantine": {"wanted": "held"},
    "quarantine add": {"wanted": "unit"},
    "approvals": {"wanted": "approval"},
    "retry": {"run_id": "failed run"},
    "dataset rename": {"old": "dataset"},
    "switch set": {"replays": "feed"},
    "nodd": {"names": "feed", "dataset": "feed"},
    "replay": {"datasets": "feed"},
    "branch": {"source": "branch", "name": "branch", "ref": "branch", "old": "branch", "new": "branch"},
    "pipeline": {"run_id": ""},
    "run-state": {"run": ""},
    "graph": {"run": ""},
    "webhook": {"source": ""},
}


class Value(NamedTuple):
    text: str
    about: str = ""


def kind_of(command: str, parameter: str) -> str:
    """What a parameter of a command is: `""`, if it is nothing of these."""
    words = command.split()
    for count in range(len(words), 0, -1):
        known = BY_COMMAND.get(" ".join(words[:count]), {})
        if parameter in known:
            return known[parameter]
    return BY_NAME.get(parameter, "")


@cache
def complete_values(shell: str) -> None:
    """From now on this shell completes values, too."""
    known = get_completion_class(shell)
    if known is None:
        return

    class WithValues(known):  # type: ignore[valid-type, misc]
        def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
            found: list[CompletionItem[str]] = super().get_completions(args, incomplete)
            with suppress(Exception), redirect_stderr(io.StringIO()):
                found += _values(self.cli, self.ctx_args, self.prog_name, args, incomplete)
            return found

    add_completion_class(WithValues, shell)


def _values(
    cli: click.Command, ctx_args: Any, program: str, args: list[str], incomplete: str
) -> list[CompletionItem[str]]:
    from click.shell_completion import _resolve_context, _resolve_incomplete

    context = _resolve_context(cli, ctx_args, program, args)
    wanted, start = _resolve_incomplete(context, args, incomplete)
    if not isinstance(wanted, click.Parameter):
        return []
    kind = kind_of(context.command_path.partition(" ")[2], wanted.name or "")
    if not kind:
        return []
    server = context.find_root().params.get("server")
    found = _from_service(server, kind) if server else _from_here(context, kind, start)
    return [
        CompletionItem(text, help=clipped(about, ABOUT_CHARS_MAX) or None)
        for text, about in dict.fromkeys(_fitting(found, start))
        if text.startswith(start)
    ]


def _fitting(found: Iterable[Value], start: str) -> Iterable[Value]:
    """Ids as short as they are shown, unless more of one was typed already."""
    return (one if short_id(one.text) < start else one._replace(text=_shown(one.text)) for one in found)


def _shown(text: str) -> str:
    is_id = len(text) in (34, 36) and text.replace("-", "").isalnum() and "-" in text[8:14]
    return short_id(text) if is_id else text


# --- from the configuration and the ledger ---------------------------------------------------


def _from_here(context: click.Context, kind: str, start: str) -> list[Value]:
    session = CommandSession(config=context.params.get("config"))
    with session.app(read_only=True) as app:
        return LEDGER[kind](app, start)


def _datasets(app: App, _start: str) -> list[Value]:
    return [Value(one.name) for one in app.settings.datasets]


def _sources(app: App, _start: str) -> list[Value]:
    return [Value(app.settings.called(one.id), f"of {one.dataset}") for one in app.settings.sources]


def _schedules(app: App, _start: str) -> list[Value]:
    from kfm.config.schedules import load_schedules

    return [Value(one.id, f"of {one.source}") for one in load_schedules(app.loaded)]


def _runs(status: str | None) -> Callable[[App, str], list[Value]]:
    def read(app: App, start: str) -> list[Value]:
        ledger = app.ledger
        found = list(ledger.runs(status=status, limit=NEWEST))
        if len(start) >= 4:
            found += [one for one in ledger.find_runs(start, NEWEST) if status in (None, one.status)]
        return [Value(one.run_id, f"{one.dataset_id}, {moment(one.start_time_ms)}") for one in found]

    return read


def _requests(app: App, start: str) -> list[Value]:
    reader = app.ledger.request_reader()
    found = [*reader.requests(state="running", limit=NEWEST), *reader.requests(limit=NEWEST)]
    found += reader.find(start, NEWEST) if len(start) >= 4 else []
    return [Value(one.request_id, f"{one.kind} of {one.source_id}") for one in found]


def _incidents(app: App, _start: str) -> list[Value]:
    found = app.ledger.incidents(state="open", limit=NEWEST)
    return [Value(one.incident_id, f"{one.name}: {one.error_code}") for one in found]


def _held(app: App, _start: str) -> list[Value]:
    found = app.ledger.held(state="held", limit=NEWEST)
    return [Value(one.held_id, f"{one.dataset_id}: {one.error_code}") for one in found]


def _approvals(app: App, _start: str) -> list[Value]:
    found = app.ledger.approvals(state="requested", limit=NEWEST)
    return [Value(one.request_id, one.about or one.kind) for one in found]


def _units(app: App, start: str) -> list[Value]:
    from kfm.model.units import UnitFilter

    reader = app.ledger.unit_reader()
    if len(start) >= 4:
        return [Value(one) for one in reader.find(start, NEWEST)]
    return [Value(one.wal_id, one.object_uri) for one in reader.find_units(UnitFilter(limit=NEWEST))]


def _providers(app: App, _start: str) -> list[Value]:
    return [Value(one.provider) for one in app.ledger.breakers()]


def _replays(app: App, _start: str) -> list[Value]:
    found = app.ledger.replay_reader().replays(NEWEST)
    return [Value(one.replay_id, f"{one.state}, {one.mode}") for one in found]


def _feeds(app: App, _start: str) -> list[Value]:
    from kfm.nodd.ingest import registry_of

    return [Value(name) for name in registry_of(app).names]


def _branches(app: App, _start: str) -> list[Value]:
    from kfm.runs.branch_merges import reader

    return [Value(one.name) for one in reader(app).branches()]


def _anything(app: App, start: str) -> list[Value]:
    """What `kfm explain` takes; ids, once a digit of one was typed."""
    names = [*_datasets(app, start), *_sources(app, start), *_schedules(app, start), *_providers(app, start)]
    if not start or not set(start) <= set("0123456789abcdef-"):
        return names
    return [*names, *_runs(None)(app, start), *_incidents(app, start), *_approvals(app, start)]


LEDGER: dict[str, Callable[[App, str], list[Value]]] = {
    "dataset": _datasets,
    "source": _sources,
    "schedule": _schedules,
    "run": _runs(None),
    "failed run": _runs("failed"),
    "request": _requests,
    "incident": _incidents,
    "held": _held,
    "approval": _approvals,
    "unit": _units,
    "provider": _providers,
    "replay": _replays,
    "feed": _feeds,
    "branch": _branches,
    "anything": _anything,
}


# --- from a service --------------------------------------------------------------------------

# Where its API lists them: path, parameters, the list, the id of one, what tells about it.
SERVICE: dict[str, tuple[str, dict[str, Any], str, str, Sequence[str]]] = {
    "dataset": ("/datasets", {}, "datasets", "name", ()),
    "source": ("/schedules", {}, "schedules", "source_id", ()),
    "schedule": ("/schedules", {}, "schedules", "schedule_id", ("source_id",)),
    "run": ("/runs", {"limit": NEWEST}, "runs", "run_id", ("dataset_id", "status")),
    "failed run": ("/runs", {"limit": NEWEST, "status": "failed"}, "runs", "run_id", ("dataset_id",)),
    "request": ("/requests", {"limit": NEWEST}, "requests", "request_id", ("kind", "source_id")),
    "incident": ("/incidents", {"limit": NEWEST}, "incidents", "incident_id", ("name", "error_code")),
    "held": ("/quarantine", {"limit": NEWEST}, "held", "held_id", ("dataset_id", "error_code")),
    "approval": ("/approvals", {"limit": NEWEST}, "requests", "request_id", ("about",)),
    "unit": ("/units", {"limit": NEWEST}, "units", "wal_id", ("object_uri",)),
    "provider": ("/breakers", {}, "breakers", "provider", ()),
    "anything": ("/datasets", {}, "datasets", "name", ()),
}


def _from_service(wanted: str, kind: str) -> list[Value]:
    if kind not in SERVICE:
        return []
    from kfm.cli.remote import Client, find_server

    path, asked, rows, name, about = SERVICE[kind]
    with Client(find_server(wanted), WAIT_MS) as client:
        document = client.read(path, asked)
    return [
        Value(row[name], " ".join(str(row[one]) for one in about if row.get(one))) for row in document[rows]
    ]
