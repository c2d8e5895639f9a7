"""Checks of a well-shaped configuration: names agree, values make sense."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any
from urllib.parse import urlsplit

from kfm.config.derived_checks import derived_problems
from kfm.config.document import (
    ID,
    NAME,
    NAME_RULE,
    SOME_TIME_MS,
    Document,
    Problem,
    clause,
    gathered,
    has_plugin,
    is_web_address,
)
from kfm.config.secrets import inline_secrets, is_reference
from kfm.config.section_checks import (
    approval_problems,
    ingest_problems,
    licence_problems,
    people_problems,
    retry_problems,
    serve_problems,
    webhook_problems,
)
from kfm.model.addresses import allow_problem
from kfm.model.breaker import PROVIDER_CHARS_MAX, is_provider_name
from kfm.model.bucket_options import client_options, latest_problem, option_problems
from kfm.model.energy import FIGURE_MIN, FIGURES_MAX
from kfm.model.errors import ConfigError, WindowError
from kfm.model.incidents import SEVERITY
from kfm.model.quantities import did_you_mean
from kfm.model.settings import (
    DatasetSettings,
    Expect,
    Hook,
    Settings,
    SourceSettings,
    Target,
    own_places,
    takes_in,
    with_datasets_identified,
)
from kfm.model.windows import NO_WINDOW, parse_duration

DAYS_MAX = 36_500  # of retention: a century
BAD_CHARACTERS = f"has characters that are not allowed: {NAME_RULE}"
_PIPELINE = re.compile(r"[^:]+\.(?:py|mjs):[A-Za-z_]\w*")  # .mjs: run by the Node.js twin

# What each kind of source and target needs, and what only it understands.
NEEDS = {"files": "folder", "http": "url", "bucket": "bucket", "dataset": "datasets", "sync": "members"}
OWN = {
    "files": {"folder", "pattern"},
    "http": {"url", "params", "headers", "pagination", "allow"},
    "bucket": {"bucket", "prefix", "pattern", "bucket_options"},
    "dataset": {"datasets", "lowers_care"},
    "sync": {"members"},
}
WITHOUT_PROVIDER = ("files", "dataset", "sync")  # kinds of sources that call nothing outside by themselves
TARGET_NEEDS = {
    "branch": None,
    "dcat": "url",
    "github-actions": None,
    "local": "path",
    "noop": None,
    "s3": "url",
    "stac": "url",
}
RETRIED_STATUSES = frozenset((408, 425, 429))
CATALOGUES = ("dcat", "stac")
STORES = ("sqlite:", "postgresql://", "postgres://", "env:", "file:")
SCHEMES = {"url": ("http", "https"), "bucket": ("s3", "gs", "az", "file")}


def check(document: Document, settings: Settings) -> None:
    """ConfigError with every problem, in the order of the file's lines."""
    problems = [
        *_names(settings),
        *_datasets(settings),
        *_sources(settings),
        *_sync(settings),
        *derived_problems(with_datasets_identified(settings)),
        *_own_output(document, settings),
        *_targets(settings),
        *_bucket_options(settings),
        *_freezes(settings),
        *_numbers(settings),
        *_evidence(settings),
        *run_state_problems(settings),
        *hook_problems(settings),
        *ingest_problems(settings),
        *people_problems(settings),
        *webhook_problems(settings),
        *approval_problems(settings),
        *licence_problems(settings),
        *retry_problems(settings),
        *serve_problems(settings),
        *inline_secrets(settings),
    ]
    if problems:
        ordered = sorted(problems, key=lambda problem: document.line(problem[0]))
        raise gathered([document.error(path, sentence) for path, sentence in ordered])


def value_problem(settings: Settings, field: str) -> str | None:
    """What is wrong with one field that came from outside the file."""
    problems = [*_names(settings), *_numbers(settings), *_evidence(settings), *run_state_problems(settings)]
    return next((sentence for path, sentence in problems if path == field), None)


def _names(settings: Settings) -> Iterator[Problem]:
    if not ID.fullmatch(settings.environment):
        yield (
            "environment",
            f"the environment `{settings.environment[:40]}` {BAD_CHARACTERS}",
        )
    groups: dict[str, tuple[Any, ...]] = {"datasets": settings.datasets, "sources": settings.sources}
    for group, things in groups.items():
        seen: dict[str, str] = {}
        for index, thing in enumerate(things):
            path = f"{group}[{index}].id"
            word = group.removesuffix("s")
            if not ID.fullmatch(thing.id):
                yield path, f"the {word} id `{thing.id[:40]}` {BAD_CHARACTERS}"
            earlier = seen.setdefault(thing.id.casefold(), thing.id)
            if any(other.id == thing.id for other in things[:index]):
                yield path, f"two {group} have the id `{thing.id}`"
            elif earlier != thing.id:
                yield path, f"the {word} ids `{earlier}` and `{thing.id}` differ in case only"
    yield from _former_names(settings)


def _former_names(settings: Settings) -> Iterator[Problem]:
    """A name stands for one source, and for one dataset, now and before."""
    groups: dict[str, tuple[Any, ...]] = {"sources": settings.sources, "datasets": settings.datasets}
    for group, things in groups.items():
        word, owners = group.removesuffix("s"), {one.id.casefold(): one.id for one in things}
        for index, one in enumerate(things):
            for position, name in enumerate(one.formerly):
                path = f"{group}[{index}].formerly[{position}]"
                owner = owners.setdefault(name.casefold(), f"{one.id}, formerly")
                if not ID.fullmatch(name):
                    yield path, f"the former id `{name[:40]}` {BAD_CHARACTERS}"
                elif owner == one.id and position == 0 and len(one.formerly) > 1:
                    continue  # it has its first name again
                elif owner == one.id:
                    yield path, f"`{name}` is the id of {word} `{one.id}` now; leave it out of `formerly`"
                elif owner != f"{one.id}, formerly" or name in one.formerly[:position]:
                    yield path, f"{word} `{one.id}` can't have been `{name}`: that name is used twice"


def _datasets(settings: Settings) -> Iterator[Problem]:
    for index, dataset in enumerate(settings.datasets):
        path = f"datasets[{index}]"
        if not ID.fullmatch(dataset.domain):
            yield (
                f"{path}.domain",
                f"the domain `{dataset.domain[:40]}` {BAD_CHARACTERS}",
            )
        if dataset.bbox is not None:
            west, south, east, north = dataset.bbox
            right = -180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= north <= 90
            if not right:
                yield f"{path}.bbox", "`bbox` must be west, south, east, north in degrees"
        rights = dataset.rights
        if rights is not None and not rights.license.strip():
            yield f"{path}.rights.license", "`license` must not be empty"
        if rights is not None and not rights.care.label.strip():
            yield f"{path}.rights.care.label", "`label` must not be empty"


def _sources(settings: Settings) -> Iterator[Problem]:
    datasets = [name for dataset in settings.datasets for name in dataset.names]
    for index, source in enumerate(settings.sources):
        path = f"sources[{index}]"
        if source.dataset not in datasets:
            hint = did_you_mean(source.dataset, datasets)
            yield (
                f"{path}.dataset",
                f"source `{source.id}` names the dataset `{source.dataset}`, which is not there{hint}",
            )
        yield from _kind(source, path)
        yield from _time(source, path)
        yield from expectation_problems(source, path)
        if source.pipeline is not None and not _PIPELINE.fullmatch(source.pipeline):
            yield (
                f"{path}.pipeline",
                f"`pipeline` must be `path/to/file.py:function`, not `{source.pipeline[:60]}`",
            )
        for field in ("partition", "output_version"):
            if getattr(source, field) == "":
                yield f"{path}.{field}", f"`{field}` must not be empty; leave it out instead"
        yield from _templates(source, path)
        yield from _provider(source, path)
        for position, entry in enumerate(source.allow):
            if problem := allow_problem(entry):
                yield f"{path}.allow[{position}]", problem


def _provider(source: SourceSettings, path: str) -> Iterator[Problem]:
    if source.provider is None:
        return
    if source.kind in WITHOUT_PROVIDER:
        why = "nothing outside is called" if source.kind != "sync" else "its members call; give it to them"
        yield f"{path}.provider", f"`provider` does not apply to a source of kind `{source.kind}`: {why}"
    else:
        yield from _provider_name(source.provider, path)


def _provider_name(provider: str, path: str) -> Iterator[Problem]:
    if not is_provider_name(provider):
        yield (
            f"{path}.provider",
            f"`provider` must be one word of plain characters, at most {PROVIDER_CHARS_MAX}",
        )


_PLAIN = SourceSettings(id="", dataset="", kind="")


def _kind(source: SourceSettings, path: str) -> Iterator[Problem]:
    if source.kind not in NEEDS:
        if not has_plugin("kfm.sources", source.kind):
            yield (
                f"{path}.kind",
                f"there is no kind of source `{source.kind[:40]}`{did_you_mean(source.kind, sorted(NEEDS))}",
            )
        return
    needed = NEEDS[source.kind]
    if not getattr(source, needed):
        yield path, f"source `{source.id}` is of kind `{source.kind}` and needs `{needed}`"
    foreign = set().union(*OWN.values()) - OWN[source.kind]
    for field in sorted(foreign):
        if getattr(source, field) != getattr(_PLAIN, field):
            yield f"{path}.{field}", f"`{field}` does not apply to a source of kind `{source.kind}`"
    if needed in SCHEMES and getattr(source, needed):
        yield from _address(getattr(source, needed), needed, f"{path}.{needed}")


def _address(address: str, field: str, path: str) -> Iterator[Problem]:
    schemes = SCHEMES[field]
    try:
        parts = urlsplit(address)
        whole = parts.scheme in schemes and bool(parts.netloc or (parts.scheme == "file" and parts.path))
        _ = parts.port
    except ValueError:
        whole = False
    if not whole:
        field = path.rpartition(".")[2]
        yield path, f"`{field}` must begin with {' or '.join(f'`{s}://`' for s in schemes)} and name a place"


def _time(source: SourceSettings, path: str) -> Iterator[Problem]:
    if not _zone_exists(source.time_zone):
        from zoneinfo import available_timezones

        hint = did_you_mean(source.time_zone, sorted(available_timezones()))
        yield f"{path}.time_zone", f"there is no time zone `{source.time_zone[:40]}`{hint}"
        return
    from kfm.model.windows import resolve_window

    try:
        resolve_window(source.window, source.time_zone, SOME_TIME_MS)
    except WindowError as error:
        yield f"{path}.window", f"`window` can't be used: {clause(error.detail)}"


def _templates(source: SourceSettings, path: str) -> Iterator[Problem]:
    """Fields in braces that nothing fills in."""
    from kfm.model.templates import PATH_FIELDS, PLACE_FIELDS, WINDOW_FIELDS, template_problem

    windowless = WINDOW_FIELDS if source.window == NO_WINDOW else ()
    places = {"url": source.url, "prefix": source.prefix, "pattern": source.pattern}
    places |= {f"params.{name}": value for name, value in source.params.items()}
    written = [(field, text, PLACE_FIELDS) for field, text in places.items()]
    for field, text, allowed in [*written, ("path", source.path, PATH_FIELDS)]:
        problem = template_problem(text, allowed=allowed) if text else None
        used = next((name for name in windowless if f"{{{name}" in (text or "")), None)
        if used is not None:
            yield f"{path}.{field}", f"`{{{used}}}` in `{field}` has no value: `window` is `{NO_WINDOW}`"
        elif problem:
            yield f"{path}.{field}", f"`{field}` can't be used: {clause(problem)}"


def _zone_exists(name: str) -> bool:
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return True
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return False
    return True


def expectation_problems(source: SourceSettings, path: str) -> Iterator[Problem]:
    """What is expected of a source, and which answers it waits through."""
    if source.expect is not None and _zone_exists(source.time_zone):
        yield from _expect(source, source.expect, f"{path}.expect")
    if source.not_yet and source.window == NO_WINDOW:
        yield f"{path}.not_yet", f"`not_yet` waits for a window's data: `window` is `{NO_WINDOW}`"
        return
    for position, answer in enumerate(source.not_yet):
        here = f"{path}.not_yet[{position}]"
        if answer in source.not_yet[:position]:
            yield here, f"`not_yet` names `{answer}` twice"
        elif isinstance(answer, int):
            yield from _not_yet_status(source, answer, here)
        elif answer == "unchanged" and _names_window(source):
            yield (
                here,
                "`unchanged` compares with the newest published window, but the place of this source has the "
                "window in its name, so that it is always another one; list what it answers before the data "
                "is there, as `404` or `empty`",
            )


def _not_yet_status(source: SourceSettings, status: int, here: str) -> Iterator[Problem]:
    if source.kind in ("files", "bucket", "dataset"):
        yield here, f"a source of kind `{source.kind}` has no HTTP status; use `empty` or `unchanged`"
    elif not 400 <= status <= 499 or status in RETRIED_STATUSES:
        yield (
            here,
            "`not_yet` takes HTTP statuses that say that something is not there, such as 404, "
            f"not `{status}`: what may pass by itself is retried anyway",
        )


def _names_window(source: SourceSettings) -> bool:
    places = (source.url, source.folder, source.prefix, *source.params.values())
    return any("{" in place for place in places if place is not None)


def _expect(source: SourceSettings, rule: Expect, path: str) -> Iterator[Problem]:
    from kfm.model.windows import parse_duration, parse_instant, time_of_day, window_of

    def tried(field: str, way_out: str, read: Callable[[], object]) -> Iterator[Problem]:
        try:
            read()
        except WindowError as error:
            yield f"{path}.{field}", f"`{field}` can't be used: {clause(error.detail)}; {way_out}"

    zone = source.time_zone
    by, within, every, since = rule.by, rule.within, rule.every, rule.since
    if source.window == NO_WINDOW:
        for field, value in (("by", by), ("within", within), ("every", every)):
            if value is not None:
                yield (
                    f"{path}.{field}",
                    f"`{field}` counts from the end of a window: `window` is `{NO_WINDOW}`",
                )
        return
    if by is not None:
        way_out = 'write it as `"08:00"`, in quotes'
        yield from tried("by", way_out, lambda: time_of_day(by, zone, SOME_TIME_MS))
    if within is not None:
        yield from tried("within", "write it as `P2D` or `PT6H`", lambda: parse_duration(within))
    if every is not None:
        yield from tried("every", "write it as `P1D` or `PT1H`", lambda: window_of(every, zone, SOME_TIME_MS))
    if since is not None:
        yield from tried("from", "write it as `2026-01-31`", lambda: parse_instant(since, zone))
    if rule.rows_min is not None and rule.rows_min < 1:
        yield f"{path}.rows_min", "`rows_min` must be at least 1; leave it out where nothing is expected"


def _sync(settings: Settings) -> Iterator[Problem]:
    sources = {source.id: source for source in settings.sources}
    for index, source in enumerate(settings.sources):
        path = f"sources[{index}].members"
        for position, member in enumerate(source.members):
            here = f"{path}[{position}]"
            if member not in sources:
                hint = did_you_mean(member, list(sources))
                yield here, f"sync `{source.id}` names the member `{member}`, which is not there{hint}"
            elif member in source.members[:position]:
                yield here, f"sync `{source.id}` names the member `{member}` twice"
            elif problem := _member(source, sources[member]):
                yield here, problem


def _member(sync: SourceSettings, member: SourceSettings) -> str | None:
    """Reasons against a source as a member of a sync."""
    if member.id == sync.id:
        return f"sync `{sync.id}` contains itself"
    if member.kind == "sync":
        return (
            f"sync `{sync.id}` has the sync `{member.id}` among its members; name the members of "
            f"`{member.id}` instead"
        )
    if member.kind == "dataset":
        return (
            f"sync `{sync.id}` has `{member.id}` among its members, which reads other datasets; give it a "
            "schedule of its own, or none: a change of its inputs starts it"
        )
    if member.dataset != sync.dataset:
        return (
            f"sync `{sync.id}` publishes the dataset `{sync.dataset}`, "
            f"but its member `{member.id}` belongs to `{member.dataset}`"
        )
    if member.pipeline is not None:
        return (
            f"sync `{sync.id}` would publish what its member `{member.id}` fetches without running the "
            "member's `pipeline`; give the sync itself a pipeline"
        )
    for field in ("expect", "not_yet"):
        if getattr(member, field):
            return (
                f"`{field}` of `{member.id}` has no effect, since the sync `{sync.id}` runs it; "
                "give it to the sync"
            )
    for field in ("webhook", "follows", "approvals"):
        if getattr(member, field):
            return (
                f"`{field}` of `{member.id}` would run it alone, and the sync `{sync.id}` publishes its "
                "data, too; give it to the sync"
            )
    if member.approval == "required":
        return (
            f"`approval` of `{member.id}` would not be asked for, since the sync `{sync.id}` publishes its "
            "data; give it to the sync"
        )
    return None


def _own_output(document: Document, settings: Settings) -> Iterator[Problem]:
    """Folders of sources and of what we write, as they are spelt; links are looked at in a run."""
    here = os.path.dirname(os.path.abspath(document.name))

    def absolute(path: str) -> str:
        return os.path.normpath(os.path.join(here, path))

    for index, source in enumerate(settings.sources):
        if source.kind != "files" or not source.folder:
            continue
        for what, own in own_places(settings):
            if takes_in(absolute(source.folder), absolute(own), source.dataset, what):
                yield (
                    f"sources[{index}].folder",
                    (
                        f"the folder `{source.folder}` of source `{source.id}` and the {what} `{own}` "
                        "overlap: kfm would take in its own output; keep them apart"
                    ),
                )


def _targets(settings: Settings) -> Iterator[Problem]:
    names: set[str] = set()
    for index, target in enumerate(settings.publish):
        path = f"publish[{index}]"
        yield from _target(target, path)
        name = target.name or target.kind
        if not ID.fullmatch(name):
            yield (
                f"{path}.name",
                f"the target name `{name[:40]}` {BAD_CHARACTERS}",
            )
        elif name in names:
            yield path, f"two targets are called `{name}`; give one of them a `name`"
        names.add(name)
        yield from _taken(settings, target, path)


def _taken(settings: Settings, target: Target, path: str) -> Iterator[Problem]:
    """Ids and levels that contradict the datasets that are there."""
    known = {name: dataset for dataset in settings.datasets for name in dataset.names}
    for field in ("datasets", "care"):
        if getattr(target, field) == ():
            yield (
                f"{path}.{field}",
                f"`{field}` must not be empty: the target would show nothing; leave it out",
            )
    for position, pattern in enumerate(target.datasets):
        here = f"{path}.datasets[{position}]"
        if set(pattern) & set("*?["):
            continue
        if pattern not in known:
            hint = did_you_mean(pattern, list(known))
            yield here, f"the target names `{pattern}`, which is not one of the datasets{hint}"
            continue
        rights = known[pattern].rights
        level = rights.care.level if rights else None
        if level == "blocked":
            yield here, f"the target names `{pattern}`, whose CARE level is blocked: it is shown nowhere"
        elif level is not None and target.care is not None and level not in target.care:
            yield (
                here,
                (
                    f"the target names `{pattern}`, whose CARE level is {level}, and its `care` does not "
                    "take that level; add it, or name no levels"
                ),
            )


def _target(target: Target, path: str) -> Iterator[Problem]:
    if target.kind not in TARGET_NEEDS:
        if not has_plugin("kfm.publishers", target.kind):
            words = did_you_mean(target.kind, sorted(TARGET_NEEDS))
            yield f"{path}.kind", f"there is no kind of target `{target.kind[:40]}`{words}"
        return
    needed = TARGET_NEEDS[target.kind]
    if needed and not getattr(target, needed):
        yield path, f"a target of kind `{target.kind}` needs `{needed}`"
    if target.kind == "s3" and target.url and not target.url.startswith("s3://"):
        yield f"{path}.url", "`url` must begin with `s3://` and name a place"
    if target.kind == "s3" and (problem := latest_problem(target.options)):
        yield f"{path}.options.latest", problem
    if target.kind in CATALOGUES:
        if target.url and not is_web_address(target.url):
            yield f"{path}.url", "`url` must begin with `http://` or `https://` and name a place"
        if not target.options.get("assets"):
            yield (
                f"{path}.options",
                f"a target of kind `{target.kind}` needs `assets`: where its files are read",
            )
    if target.provider is not None:
        yield from _provider_name(target.provider, path)
        if target.kind not in ("s3", *CATALOGUES):
            why = "nothing outside is called"
            yield f"{path}.provider", f"`provider` does not apply to a target of kind `{target.kind}`: {why}"


def _bucket_options(settings: Settings) -> Iterator[Problem]:
    """Options that the client of a bucket does not know: it would not refuse them, but fall over."""
    given = [
        (f"sources[{index}].bucket_options", source.bucket, source.bucket_options)
        for index, source in enumerate(settings.sources)
        if source.kind == "bucket"
    ]
    given += [
        (
            f"publish[{index}].options",
            target.url,
            client_options(target.options),
        )
        for index, target in enumerate(settings.publish)
        if target.kind == "s3"
    ]
    given.append(("objects_options", settings.objects, settings.objects_options))
    given += [
        (f"ingest.object_options.{place}", place, options)
        for place, options in settings.ingest.object_options.items()
        if place.startswith(("s3://", "gs://", "az://"))
    ]
    for path, address, options in given:
        for name, sentence in option_problems(address, options) if address else ():
            yield f"{path}.{name}", sentence


def _freezes(settings: Settings) -> Iterator[Problem]:
    from kfm.model.gates import freeze_span_ms

    known = {
        "datasets": [name for d in settings.datasets for name in d.names],
        "domains": [d.domain for d in settings.datasets],
    }
    for index, freeze in enumerate(settings.freezes):
        path = f"freezes[{index}]"
        try:
            freeze_span_ms(freeze)
        except ConfigError as error:
            yield f"{path}.start", clause(error.detail)
        for field, names in known.items():
            for position, pattern in enumerate(getattr(freeze, field)):
                if not set(pattern) & set("*?[") and pattern not in names:
                    hint = did_you_mean(pattern, names)
                    sentence = f"the freeze names `{pattern}`, which is not one of the {field}{hint}"
                    yield f"{path}.{field}[{position}]", sentence


def _numbers(settings: Settings) -> Iterator[Problem]:
    for field in settings.limits.__struct_fields__:
        limit = getattr(settings.limits, field)
        if limit is not None and limit < 1:
            yield f"limits.{field}", f"`{field}` must be at least 1"
    for field in settings.retention.__struct_fields__:
        days = getattr(settings.retention, field)
        if field != "enabled" and days is not None and not 1 <= days <= DAYS_MAX:
            yield f"retention.{field}", f"`{field}` must be from 1 to {DAYS_MAX}; leave it empty for ever"
    lease = settings.lease
    if not 1 <= lease.seconds <= 86_400:
        yield "lease.seconds", "`seconds` must be from 1 to 86400"
    if lease.heartbeat_seconds is not None and not 0 < lease.heartbeat_seconds < lease.seconds:
        yield "lease.heartbeat_seconds", "`heartbeat_seconds` must be more than 0 and less than `seconds`"
    for index, source in enumerate(settings.sources):
        if source.run_seconds is not None and source.run_seconds < 1:
            yield f"sources[{index}].run_seconds", "`run_seconds` must be at least 1"
        if source.pagination is not None:
            for field in ("page_size", "pages_max"):
                if getattr(source.pagination, field) < 1:
                    yield f"sources[{index}].pagination.{field}", f"`{field}` must be at least 1"
    store = settings.store
    if store is not None and not store.startswith(STORES):
        yield (
            "store",
            "`store` must be `sqlite:PATH`, a `postgresql://` address, `env:NAME` or `file:PATH`",
        )


def _evidence(settings: Settings) -> Iterator[Problem]:
    """Checks of lineage, telemetry, energy and audit."""
    model = settings.energy
    for field, most in FIGURES_MAX.items():
        figure = getattr(model, field)
        none = field == "carbon_g_per_kwh" and figure == 0  # true of some grids, but of no machine
        if not (none or FIGURE_MIN <= figure <= most):  # NaN compares with nothing
            yield f"energy.{field}", f"`{field}` must be more than 0 and at most {most}"
    if not re.fullmatch(r"[\w .,()/-]{1,60}", model.region):
        yield "energy.region", "`region` must be a name of at most 60 letters, digits, spaces, `.,()/-`"
    for path, value in (("lineage.url", settings.lineage.url), ("telemetry.otlp", settings.telemetry.otlp)):
        if value is not None:
            yield from _address(value, "url", path)
    for field in ("rotate_bytes", "rotate_hours"):
        if getattr(settings.lineage, field) < 0:
            yield f"lineage.{field}", f"`{field}` must not be negative; 0 is never"
    for path, value in (("lineage.path", settings.lineage.path), ("audit.anchors", settings.audit.anchors)):
        if value is not None and not value.strip():
            yield path, f"`{path.rpartition('.')[2]}` must not be empty"


OWNER_CHARS_MAX = 200
HOOKS_MAX = 10  # each may cost a run its time
TIMEOUT_MIN_S, TIMEOUT_MAX_S = 0.1, 60.0
OWN_HOOKS = {
    "command": {"command"},
    "webhook": {"url", "secret"},
    "file": {"path"},
    "email": {"host", "sender", "to"},
    "chat": {"url"},
}
HOOKS_MAY = {"email": {"port", "security", "ca_file", "user", "password"}}  # beyond what they need
RECIPIENTS_MAX = 20
_PLAIN_HOOK = Hook(kind="")


def hook_problems(settings: Settings) -> Iterator[Problem]:
    names: set[str] = set()
    for index, hook in enumerate(settings.incidents):
        path = f"incidents[{index}]"
        yield from _hook(hook, path)
        name = hook.name or hook.kind
        if not NAME.fullmatch(name):
            yield f"{path}.name", f"the hook name `{name[:40]}` has characters that are not allowed"
        elif name in names:
            yield path, f"two hooks are called `{name}`; give one of them a `name`"
        names.add(name)
        yield from _hook_scope(settings, hook, path)
    if len(settings.incidents) > HOOKS_MAX:
        yield "incidents", f"there are more than {HOOKS_MAX} hooks"
    for index, dataset in enumerate(settings.datasets):
        yield from _responsible(dataset, names, f"datasets[{index}]")


def _hook_scope(settings: Settings, hook: Hook, path: str) -> Iterator[Problem]:
    known = [name for dataset in settings.datasets for name in dataset.names]
    for dataset in hook.datasets:
        if dataset not in known and not settings.ingest.queues:  # announced datasets need no declaration
            hint = did_you_mean(dataset, known)
            yield f"{path}.datasets", f"there is no dataset `{dataset[:40]}`{hint}"
    for kind in hook.kinds:
        if kind not in SEVERITY:
            hint = did_you_mean(kind, sorted(SEVERITY))
            yield f"{path}.kinds", f"there is no kind of incident `{kind[:40]}`{hint}"
    if hook.escalation and (hook.datasets or hook.kinds or hook.severity != "warning"):
        yield path, "a hook with `escalation` gets what is escalated to it, and can't choose further"


def _responsible(dataset: DatasetSettings, hooks: Collection[str], path: str) -> Iterator[Problem]:
    owner, escalate = dataset.owner, dataset.escalate
    for field, value in (("name", owner.name), ("contact", owner.contact)) if owner is not None else ():
        if value is not None and not (
            value.strip() and len(value) <= OWNER_CHARS_MAX and value.isprintable()
        ):
            yield (
                f"{path}.owner.{field}",
                f"`{field}` must be one line of at most {OWNER_CHARS_MAX} characters",
            )
    if escalate is None:
        return
    try:
        parse_duration(escalate.after)
    except WindowError as error:
        yield f"{path}.escalate.after", f"`after` must be a length of time such as `PT4H`: {error.detail}"
    if not escalate.to:
        yield f"{path}.escalate.to", "`to` must name a hook of `incidents`"
    for name in escalate.to:
        if name not in hooks:
            yield (
                f"{path}.escalate.to",
                f"there is no hook `{name[:40]}` among `incidents`{did_you_mean(name, sorted(hooks))}",
            )


def _hook(hook: Hook, path: str) -> Iterator[Problem]:
    if not TIMEOUT_MIN_S <= hook.timeout_seconds <= TIMEOUT_MAX_S:
        yield (
            f"{path}.timeout_seconds",
            f"`timeout_seconds` must be from {TIMEOUT_MIN_S:g} to {TIMEOUT_MAX_S:g}",
        )
    if hook.kind not in OWN_HOOKS:
        if not has_plugin("kfm.notifiers", hook.kind):
            hint = did_you_mean(hook.kind, sorted(OWN_HOOKS))
            yield f"{path}.kind", f"there is no kind of hook `{hook.kind[:40]}`{hint}"
        return
    for field in sorted(OWN_HOOKS[hook.kind]):
        if not getattr(hook, field):
            yield path, f"a hook of kind `{hook.kind}` needs `{field}`"
    own = OWN_HOOKS[hook.kind] | HOOKS_MAY.get(hook.kind, set())
    for field in sorted(set().union(*OWN_HOOKS.values(), *HOOKS_MAY.values(), {"options"}) - own):
        if getattr(hook, field) != getattr(_PLAIN_HOOK, field):
            yield f"{path}.{field}", f"`{field}` does not apply to a hook of kind `{hook.kind}`"
    if hook.kind == "command" and any(not word or "\0" in word for word in hook.command[:1]):
        yield f"{path}.command", "`command` must begin with the name of a program"
    if hook.kind == "email":
        yield from _email(hook, path)
    url = hook.url if hook.kind in ("webhook", "chat") else None
    if url and not is_reference(url) and not is_web_address(url):
        yield f"{path}.url", "`url` must begin with `http://` or `https://` and name a place"


_MAIL = re.compile(r"(?:[^<>@\r\n]{0,100}<)?[^\s<>@,;]{1,64}@[^\s<>@,;]{1,255}>?", re.ASCII)


def _email(hook: Hook, path: str) -> Iterator[Problem]:
    for field, value in (("sender", hook.sender), *(("to", one) for one in hook.to)):
        if value and not _MAIL.fullmatch(value):
            yield f"{path}.{field}", f"`{field}` must be an e-mail address, such as `desk@example.org`"
    if len(hook.to) > RECIPIENTS_MAX:
        yield f"{path}.to", f"there are more than {RECIPIENTS_MAX} recipients; use a list of your mail server"
    if hook.port is not None and not 1 <= hook.port <= 65_535:
        yield f"{path}.port", "`port` must be from 1 to 65535"
    if (hook.user is None) != (hook.password is None):
        yield path, "`user` and `password` go together"
    if hook.security == "none" and (hook.user or hook.password):
        yield f"{path}.security", "user and password are sent only with `starttls` or `tls`"


_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")


def run_state_problems(settings: Settings) -> Iterator[Problem]:
    """Path and sentence: one store, and only what belongs to it."""
    chosen = settings.run_state
    if chosen.store != "delta":
        for field in ("path", "options"):
            if getattr(chosen, field):
                yield (
                    f"run_state.{field}",
                    f"`{field}` names a Delta table, and `store` says `{chosen.store}`: an environment keeps"
                    " its run-state in one store",
                )
    elif chosen.path is not None and not chosen.path.strip():
        yield "run_state.path", "`path` must not be empty"
    yield from _lakefs_problems(settings)


def _lakefs_problems(settings: Settings) -> Iterator[Problem]:
    """Branches are in one place, and the records of nodes with them."""
    server, store = settings.lakefs, settings.run_state.store
    if (server is None) == (store == "lakefs"):
        said = "`run_state.store` is `lakefs`, and" if server is None else "`lakefs` is set, and"
        rest = "`lakefs` names no server" if server is None else f"`run_state.store` is `{store}`"
        yield (
            "lakefs" if server is None else "run_state.store",
            f"{said} {rest}: branches and the records of their nodes are in one place",
        )
    if server is None:
        return
    if not server.endpoint.startswith(("https://", "http://", "env:", "file:")):
        yield (
            "lakefs.endpoint",
            "`endpoint` must be an https:// or http:// address, `env:NAME` or `file:PATH`",
        )
    if not _REPOSITORY.fullmatch(server.repository):
        yield (
            "lakefs.repository",
            "`repository` must have 3 to 63 lower-case letters, digits and dashes, and begin with no dash",
        )
