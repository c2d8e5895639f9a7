"""`kfm explain`: the page of an error code, or why something is as it is, from the records."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import click

from kfm.cli.options import directory_option, opened, session_options
from kfm.cli.output import one_line, short_id
from kfm.cli.session import CommandSession
from kfm.model.errors import ConfigError, UsageError
from kfm.reports.explain.subjects import error_page, explain_subject, is_code
from kfm.reports.lookup import unit_of_activity

_DIGEST = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")
OF_PIPELINES = ("pass", "run-state")  # whose sentences name digests


@click.command()
@click.argument("what", metavar="ID")
@directory_option
@session_options
def command(session: CommandSession, directory: str | None, what: str) -> None:
    """Explain an error code, a run, a dataset, a unit, or what blocks one.

    ID is a code such as KFM204; a run, or the beginning of its id; one of its steps (3fa9c2/fetch), also of
    an earlier attempt (3fa9c2#2/fetch); a pipeline run, or a node of it (3fa9c2/soil.map; of the newest
    one: last/soil.map); an invocation that was refused or did nothing; a request of a schedule, a webhook
    or a person; a unit (wal_id), or an attempt at one (its OpenLineage run, or urn:kfm:attempt:… of its
    provenance); a dataset or a source; a schedule; a provider, for its circuit breaker; an incident, a
    request for an approval, a replay, an entry in quarantine. Where a source and a schedule have one name:
    schedule:NAME, provider:NAME. The first line is the reason: what blocks it, who can lift that and the
    command, if something does. The others are what led to it; each ends with the record that it was read
    from. Nothing is changed.
    """
    if is_code(what):
        page = error_page(what.upper())
        session.emit(page, page_lines(page))
        return
    with opened(session, directory) as place:
        settings = place.loaded.settings if place.loaded is not None else None
        explain = partial(
            explain_subject,
            place.store,
            lambda: place.tables,
            settings,
            now_ms=place.store.now_ms(),
            schedules=partial(_schedules, place.loaded),
            health=partial(_health, place),
        )
        try:
            explanation = explain(what)
        except UsageError:
            wal_id = unit_of_activity(place.store.unit_reader(), what) if settings is not None else None
            if wal_id is None:
                raise
            explanation = explain(wal_id)
    lines = [_line(sentence) for sentence in (explanation.reason, *explanation.chain)]
    if explanation.reason.record.type in OF_PIPELINES:
        lines = [_DIGEST.sub(r"\1", line) for line in lines]
    session.emit(explanation, lines)


def _health(place: Any, dataset_id: str) -> Any:
    from kfm.datasets.completeness import completeness_in
    from kfm.nodd.dataset_registry import shipped_feed

    return completeness_in(
        place.loaded,
        place.store,
        place.liveness.is_dead,
        schedules=partial(_schedules, place.loaded),
        shipped=shipped_feed,
    ).health(dataset_id)


def _schedules(loaded: Any) -> tuple[Any, ...]:
    from kfm.config.schedules import load_schedules

    try:
        return load_schedules(loaded)
    except ConfigError:  # `kfm config check` says what is wrong; other records are explained all the same
        return ()


def _line(sentence: Any) -> str:
    record = f"[{sentence.record.type}:{_shortened(sentence.record.type, sentence.record.id)}]"
    return f"{one_line(sentence.text)} {click.style(one_line(record), dim=True)}"


def _shortened(kind: str, name: str) -> str:
    """Enough to find it again; JSON has all of it."""
    if kind in ("run", "pass", "request", "incident", "approval", "replay"):
        return short_id(name)
    if kind == "run-state":
        run_id, slash, node = name.partition("/")
        return f"{short_id(run_id)}{slash}{node}"
    if kind == "attempt":
        run_id, mark, rest = name.partition("#")
        return f"{short_id(run_id)}{mark}{rest}"
    return _DIGEST.sub(r"\1", name)


def page_lines(page: dict[str, Any]) -> list[str]:
    lines = [f"{page['code']} {page['name']} (exit code {page['exit_code']})", "", page["message"]]
    if page["page"]:
        lines += ["", *page["page"].splitlines()]
    return [*lines, "", f"fix: {page['remedy']}"]
