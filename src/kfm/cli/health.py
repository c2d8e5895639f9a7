"""The checks of `kfm doctor`. Each looks at one thing, changes nothing and never raises."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from kfm.core.errors import KfmError
from kfm.core.wording import counted, readable_size

FREE_WARN_BYTES = 1024**3
FREE_FAIL_BYTES = 64 * 1024**2
ADDRESS_TIMEOUT_S = 5.0
CLOCK_STEP_MS = 20
CLOCK_SLACK_MS = 2_000
YEAR_MS = 31_556_952_000
YEARS_PLAUSIBLE = (2024 - 1970, 2100 - 1970)

# Extra → (module that it brings, what it is for).
EXTRAS = {
    "progress": ("rich", "progress bars"),
    "objects": ("obstore", "buckets"),
    "postgres": ("psycopg", "PostgreSQL"),
    "parquet": ("arro3", "Parquet contracts, the catalogue as GeoParquet"),
    "delta": ("deltalake", "run-state in a Delta table"),
    "lakefs": ("lakefs_sdk", "branches on a lakeFS server"),
    "lineage": ("openlineage", "lineage over HTTP"),
    "otel": ("opentelemetry", "spans and metrics by OTLP"),
    "aws": ("boto3", "queues of SQS"),
    "serve": ("uvicorn", "the service, the catalogue as a STAC API"),
}


class Finding(NamedTuple):
    name: str
    state: str  # ok | warn | fail
    message: str
    fix: str | None = None
    backend: bool = False


def examine(loaded: Any, *, offline: bool) -> list[Finding]:
    """Every check, in the order in which a run would meet them."""
    groups: tuple[Callable[[Any], Iterator[Finding]], ...] = (
        _clock,
        _environment,
        _secrets,
        _state,
        _store,
        _contracts,
        _policies,
        _targets,
        _extras,
        _incidents,
        _service,
    )
    found = [Finding("config", "ok", f"{loaded.path} is right")]
    for group in groups:
        found += _guarded(group, loaded)
    if not offline:
        found += _guarded(_branches, loaded)
        found += _guarded(_ingest, loaded)
        found += _guarded(_sources, loaded)
    return found


def _guarded(group: Callable[[Any], Iterator[Finding]], loaded: Any) -> Iterator[Finding]:
    """A check that fails in an unforeseen way is a finding, not the end of the examination."""
    name = group.__name__.lstrip("_")
    try:
        yield from group(loaded)
    except KfmError as error:
        yield Finding(name, "fail", error.message, error.way_out, backend=error.exit_code == 4)
    except Exception as error:  # noqa: BLE001 - the doctor must reach the last patient
        yield Finding(name, "fail", f"{type(error).__name__}: {error}", "Report this.")


def _clock(_loaded: Any) -> Iterator[Finding]:
    from kfm.wiring import system_clock

    clock = system_clock()
    wall, steady = clock.now_ms(), clock.monotonic_ms()
    clock.sleep_ms(CLOCK_STEP_MS)
    drift = abs((clock.now_ms() - wall) - (clock.monotonic_ms() - steady))
    years = wall / YEAR_MS
    if not YEARS_PLAUSIBLE[0] <= years <= YEARS_PLAUSIBLE[1]:
        yield Finding(
            "clock", "fail", f"the year {1970 + int(years)} is not plausible", "Set this machine's clock."
        )
    elif drift > CLOCK_SLACK_MS:
        yield Finding(
            "clock", "warn", f"the clock jumped by {drift} ms while it was watched", "Check time sync."
        )
    else:
        yield Finding("clock", "ok", "wall and monotonic time agree")


def _environment(_loaded: Any) -> Iterator[Finding]:
    from kfm.config import VARIABLES, unknown_variables
    from kfm.configuration.shape import nearest

    for name in unknown_variables():
        hint = nearest(name, sorted(VARIABLES))
        yield Finding(
            "environment", "warn", f"{name} means nothing to kfm{hint}", f"Unset {name}, or spell it right."
        )


def _secrets(loaded: Any) -> Iterator[Finding]:
    from kfm.configuration.inline_secrets import is_reference
    from kfm.configuration.origins import leaves

    for field, value in leaves(loaded.settings):
        if isinstance(value, str) and is_reference(value) and not value.startswith("file://"):
            try:
                loaded.secret(value)
            except KfmError as error:
                yield Finding("secrets", "fail", f"{field}: {error.detail}", error.way_out)
                continue
            place = value.partition(":")[2]
            loose = value.startswith("file:") and os.stat(loaded.resolve(place)).st_mode & 0o077
            if loose:
                yield Finding("secrets", "warn", f"{field}: others can read {place}", f"chmod 600 {place}")
            else:
                yield Finding("secrets", "ok", f"{field}: {value} is there")


# --- the state folder and the store --------------------------------------------------


def _state(loaded: Any) -> Iterator[Finding]:
    state = loaded.resolve(loaded.settings.state)
    place = _nearest_folder(state)
    if os.path.isdir(state):
        mode = os.stat(state).st_mode & 0o777
        if mode & 0o022:
            yield Finding(
                "state", "fail", f"{state} can be written by others ({mode:o})", f"chmod 700 {state}"
            )
        elif mode & 0o055:
            yield Finding("state", "warn", f"{state} can be read by others ({mode:o})", f"chmod 700 {state}")
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding(
            "state", "fail", f"{place} is not writable", "Run as its owner, or set `state`.", backend=True
        )
        return
    from kfm.wiring import require_local_disk

    try:
        kind = require_local_disk(place)
    except KfmError as error:
        yield Finding("state", "fail", error.detail, error.way_out, backend=True)
        return
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize
    described = f"{readable_size(free)} free on {kind or 'the disk'} for {state}"
    level = "fail" if free < FREE_FAIL_BYTES else "warn" if free < FREE_WARN_BYTES else "ok"
    fix_space = None if level == "ok" else "Free some space; `kfm gc` removes what no kept version needs."
    yield Finding("state", level, described, fix_space, backend=level == "fail")


def _nearest_folder(path: str) -> str:
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _store(loaded: Any) -> Iterator[Finding]:
    import apsw

    from kfm import wiring

    with wiring.open_app(loaded, read_only=True) as app:
        heads = len(app.ledger.heads())
    if (loaded.settings.store or "sqlite:").startswith("sqlite:"):
        version = apsw.sqlite_lib_version()
        yield Finding(
            "store",
            "ok",
            f"SQLite {version}, WAL with synchronous=FULL on every connection; {counted(heads, 'dataset')}",
        )
    else:
        yield Finding(
            "store", "ok", f"the database answers and its schema is known; {counted(heads, 'dataset')}"
        )


# --- files, targets, extras ----------------------------------------------------------


def _contracts(loaded: Any) -> Iterator[Finding]:
    from kfm.publish.contract.reading import load_contract

    for path in dict.fromkeys(source.contract for source in loaded.settings.sources if source.contract):
        try:
            with open(loaded.resolve(path), "rb") as file:
                contract = load_contract(file.read(), path)
        except KfmError as error:
            yield Finding("contract", "fail", error.message, error.way_out)
        else:
            yield Finding("contract", "ok", f"{path} is version {contract.version}")


def _policies(loaded: Any) -> Iterator[Finding]:
    from kfm import wiring

    with wiring.open_app(loaded, read_only=True) as app:
        bundle = app.policies.bundle_id
    yield Finding(
        "policies",
        "ok",
        f"all parse, with {counted(len(loaded.settings.policies), 'own file')}: bundle {bundle[:12]}",
    )


def _targets(loaded: Any) -> Iterator[Finding]:
    if not loaded.settings.publish and (loaded.settings.sources or not loaded.settings.ingest.queues):
        yield Finding(
            "targets", "warn", "there is no target, so nobody sees what is promoted", "Add one to `publish`."
        )
    for target in loaded.settings.publish:
        name = target.name or target.kind
        if target.kind == "local":
            path = loaded.resolve(target.path or ".")
            place = _nearest_folder(path)
            if os.access(place, os.W_OK | os.X_OK):
                yield Finding("targets", "ok", f"{name}: {path} can be written")
            else:
                yield Finding(
                    "targets", "fail", f"{name}: {place} is not writable", "Change its owner or mode.", True
                )
        elif target.kind == "s3" and find_spec("obstore") is None:
            yield Finding(
                "targets", "fail", f"{name} needs the extra `objects`", "pip install 'kfm[objects]'"
            )
        else:
            yield Finding("targets", "ok", f"{name}: nothing to check before it is used")


def _extras(loaded: Any) -> Iterator[Finding]:
    settings = loaded.settings
    needed = {
        "objects": settings.ingest.reads_buckets
        or any(s.kind == "bucket" and not (s.bucket or "").startswith("file:") for s in settings.sources),
        "postgres": (settings.store or "").startswith(("postgres", "env:", "file:")),
        "delta": settings.run_state.store == "delta",
        "lakefs": settings.lakefs is not None,
        "lineage": settings.lineage.export == "http",
        "otel": settings.telemetry.otlp is not None,
        "aws": any(queue.kind == "sqs" for queue in settings.ingest.queues),
        "serve": any(source.webhook is not None for source in settings.sources),
    }
    for extra, (module, purpose) in EXTRAS.items():
        if find_spec(module) is not None:
            yield Finding("extras", "ok", f"{extra} is installed ({purpose})")
        elif needed.get(extra):
            yield Finding("extras", "fail", f"{extra} is needed for {purpose}", f"pip install 'kfm[{extra}]'")


def _incidents(loaded: Any) -> Iterator[Finding]:
    if loaded.settings.incidents:
        from kfm.cli.hook_checks import examine_hooks

        yield from examine_hooks(loaded)


def _service(loaded: Any) -> Iterator[Finding]:
    from kfm.cli.service_checks import examine_service

    yield from examine_service(loaded)


def _ingest(loaded: Any) -> Iterator[Finding]:
    ingest = loaded.settings.ingest
    if ingest.queues or ingest.mirrors or ingest.replicas:
        from kfm.cli.ingest_checks import examine_ingest

        yield from examine_ingest(loaded)


def _branches(loaded: Any) -> Iterator[Finding]:
    if loaded.settings.lakefs is not None:
        from kfm.wiring.lakefs import default_branch

        found = default_branch(loaded, round(ADDRESS_TIMEOUT_S * 1000))
        name = loaded.settings.lakefs.repository
        yield Finding("branches", "ok", f"lakeFS answers: repository {name}, default branch {found}")


# --- sources -------------------------------------------------------------------------


def _sources(loaded: Any) -> Iterator[Finding]:
    from kfm import wiring

    with wiring.open_app(loaded, read_only=True) as app:
        for source in loaded.settings.sources:
            try:
                yield from _source(app, source)
            except KfmError as error:
                yield Finding("sources", "fail", f"{source.id}: {error.message}", error.way_out)


def _source(app: Any, source: Any) -> Iterator[Finding]:
    if source.kind == "files":
        folder = app.loaded.resolve(source.folder or ".")
        if os.access(folder, os.R_OK | os.X_OK) and os.path.isdir(folder):
            yield Finding("sources", "ok", f"{source.id}: {folder} can be read")
        else:
            yield Finding(
                "sources", "fail", f"{source.id}: there is no folder {folder}", "Create or mount it.", True
            )
    elif source.kind == "http":
        from kfm.engine.requests import RunRequest

        decision = app.admission(RunRequest(source_id=source.id, actor=app.actor))
        if decision.allowed:
            yield _address(source, *app.address(source))
        else:
            why = f"{source.id}: not asked, because a run would be refused"
            yield Finding("sources", "warn", f"{why}: {decision.first_blocker.reason}")


def _address(source: Any, url: str, shown: str, headers: dict[str, str]) -> Finding:
    """Ask an address with HEAD. Any answer but a server's failure or a refusal shows that it is there."""
    import httpx

    from kfm.core.redact import redact

    try:
        answer = httpx.head(url, headers=headers, timeout=ADDRESS_TIMEOUT_S, follow_redirects=True)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = redact(str(error)) or type(error).__name__
        return Finding(
            "sources", "fail", f"{source.id}: {shown}: {why}", "Check the address and the network.", True
        )
    if answer.status_code in (401, 403):
        fix = "Check the credentials that `headers` refers to."
        return Finding(
            "sources", "fail", f"{source.id}: {shown} refuses us ({answer.status_code})", fix, True
        )
    if answer.status_code >= 500:
        return Finding(
            "sources", "fail", f"{source.id}: {shown} answers {answer.status_code}", "Try later.", True
        )
    if answer.status_code == 404:
        fix = "Check the address; some only exist once the window's data is there."
        return Finding("sources", "warn", f"{source.id}: {shown} is not there", fix)
    return Finding("sources", "ok", f"{source.id}: {shown} answers")
