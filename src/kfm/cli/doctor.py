"""`kfm doctor`: checks of machine, store, sources, targets, queues and service. Nothing is changed."""

from __future__ import annotations

import os
import shutil
import socket
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import click

from kfm.cli.options import session_options
from kfm.cli.output import one_line
from kfm.cli.session import CommandSession
from kfm.model.bucket_options import client_options
from kfm.model.dataset_changes import purged
from kfm.model.errors import AddressRefused, BackendUnavailable, KfmError, UpstreamUnavailable
from kfm.model.quantities import counted, duration, readable_size
from kfm.model.redaction import redact_url

FREE_WARN_BYTES = 1024**3
FREE_FAIL_BYTES = 64 * 1024**2
CONNECTIONS_FULL = 0.8  # of a server's, from where on they are told
ADDRESS_TIMEOUT_MS = 5_000
ANSWER_MS_MAX = 2_000
CLOCK_STEP_MS = 20
CLOCK_SLACK_MS = 2_000
YEAR_MS = 31_556_952_000
YEARS_PLAUSIBLE = (2024 - 1970, 2100 - 1970)
OURS = "kfm.cli"  # what our command imports, in its script and in its entry point
SCRIPT_BYTES_MAX = 4_096
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
    "dask": ("distributed", "pipelines on a Dask cluster"),
    "serve": ("uvicorn", "the service, the catalogue as a STAC API"),
}
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@click.option("--offline", is_flag=True, help="Do not try the sources' addresses.")
@click.option("--deep", is_flag=True, help="Read every stored object and compare it with its checksum.")
@session_options
def command(session: CommandSession, offline: bool, deep: bool) -> int:
    """Check this machine, the store, sources and targets.

    Each line says ok, warn or fail, and how to fix it. Nothing is changed; addresses are only asked
    with HEAD. Exit code 4 if a backend fails, 1 if something else does, else 0.
    """

    findings = examine(session.load(bare=True), offline=offline, deep=deep)
    rows = [finding._asdict() for finding in findings]
    failed = [finding for finding in findings if finding.state == "fail"]
    code = 4 if any(finding.backend for finding in failed) else 1 if failed else 0
    warned = sum(finding.state == "warn" for finding in findings)
    lines: list[str] = []
    for finding in findings:
        lines += _lines(finding)
    fine = len(findings) - len(failed) - warned
    lines.append(f"{fine} ok, {counted(warned, 'warning')}, {counted(len(failed), 'failure')}")
    for row in rows:
        del row["backend"]
    session.emit({"ok": not failed, "checks": rows, "exit_code": code}, lines, rows=rows)
    return code


def _lines(finding: Any) -> list[str]:
    state = click.style(finding.state.ljust(4), fg=_COLOURS[finding.state])
    lines = [f"{state}  {finding.name}: {one_line(finding.message)}"]
    return [*lines, f"      fix: {one_line(finding.fix)}"] if finding.fix else lines


class DoctorFinding(NamedTuple):
    name: str
    state: str  # ok | warn | fail
    message: str
    fix: str | None = None
    backend: bool = False


Group = Callable[[Any], Iterator[DoctorFinding]]
Application = Callable[[], Any]  # opens it, read-only, unless it is open


def examine(loaded: Any, *, offline: bool, deep: bool = False) -> list[DoctorFinding]:
    """Every check, in the order in which a run would meet them."""
    message = f"{loaded.path} is right"
    if not loaded.is_file:
        message = f"there is no {loaded.name}: pipelines, their branches and their state are looked at"
    found = [DoctorFinding("config", "ok", message)]
    with ExitStack() as stack:

        @cache  # what it raises is not kept: each check that needs it fails for itself
        def application() -> Any:
            from kfm.app import open_app

            return stack.enter_context(open_app(loaded, read_only=True))

        groups: list[Group] = [_clock, _installation, _environment, _secrets, _state]
        groups += [partial(_store, application)]
        groups += [partial(_objects, application)] if deep else []
        groups += [_contracts, partial(_policies, application), partial(_targets, application)]
        groups += [_extras, _reach, partial(_incidents, application), _service]
        if not offline:
            groups += [
                partial(_buckets, application),
                _branches,
                partial(_ingest, application),
                partial(_sources, application),
            ]
        for group in groups:
            found += _guarded(group, loaded)
    return found


def _guarded(group: Group, loaded: Any) -> Iterator[DoctorFinding]:
    """A check that fails in an unforeseen way is a finding, not the end of the examination."""
    name = getattr(group, "func", group).__name__.lstrip("_")
    try:
        yield from group(loaded)
    except KfmError as error:
        yield DoctorFinding(name, "fail", error.message, error.way_out, backend=error.exit_code == 4)
    except Exception as error:  # noqa: BLE001 - the doctor must reach the last patient
        yield DoctorFinding(name, "fail", f"{type(error).__name__}: {error}", "Report this.")


# --- clock, installation, environment ----------------------------------------------


def _clock(_loaded: Any) -> Iterator[DoctorFinding]:
    from kfm.db.connection import system_clock

    clock = system_clock()
    wall, steady = clock.now_ms(), clock.monotonic_ms()
    clock.sleep_ms(CLOCK_STEP_MS)
    drift = abs((clock.now_ms() - wall) - (clock.monotonic_ms() - steady))
    years = wall / YEAR_MS
    if not YEARS_PLAUSIBLE[0] <= years <= YEARS_PLAUSIBLE[1]:
        yield DoctorFinding(
            "clock", "fail", f"the year {1970 + int(years)} is not plausible", "Set this machine's clock."
        )
    elif drift > CLOCK_SLACK_MS:
        yield DoctorFinding(
            "clock", "warn", f"the clock jumped by {drift} ms while it was watched", "Check time sync."
        )
    else:
        yield DoctorFinding("clock", "ok", "wall and monotonic time agree")


def _installation(_loaded: Any) -> Iterator[DoctorFinding]:
    """`kfm` and `updater` are other projects' names on the public index; ours is kfm-kernel."""
    found = [*_foreign_kfm(), *_other_command(), *_foreign_updater()]
    yield from found
    if not found:
        from kfm import __version__

        yield DoctorFinding("installation", "ok", f"kfm-kernel {__version__}; nothing else claims its names")


def _foreign_kfm() -> Iterator[DoctorFinding]:
    from importlib.metadata import distributions

    for dist in distributions(name="kfm"):
        commands = [point.value for point in dist.entry_points if point.group == "console_scripts"]
        ours = any(value.startswith(OURS) for value in commands)
        what = "an older kfm, from before it was called kfm-kernel" if ours else "another project"
        yield DoctorFinding(
            "installation",
            "warn",
            f"the distribution kfm {dist.version} is installed, too: {what}, with a command of the same name",
            "pip uninstall kfm, then pip install --force-reinstall --no-deps kfm-kernel",
        )


def _other_command() -> Iterator[DoctorFinding]:
    own = os.path.join(sysconfig.get_path("scripts"), "kfm")
    first = shutil.which("kfm")
    if first is None or not os.path.exists(own) or os.path.samefile(first, own):
        return
    try:
        with open(first, "rb") as file:
            text = file.read(SCRIPT_BYTES_MAX)
    except OSError:
        text = b""
    if os.fsencode(own) in text:
        return  # a wrapper around ours
    what = "another installation of kfm" if OURS.encode() in text else "another program"
    yield DoctorFinding(
        "installation",
        "warn",
        f"the command kfm on PATH is {first}: {what}, not {own}",
        f"Put {os.path.dirname(own)} first on PATH, or call {own}.",
    )


def _foreign_updater() -> Iterator[DoctorFinding]:
    from importlib.metadata import distributions

    import kfm

    spec = find_spec("updater")
    own = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(kfm.__file__))), "updater")
    seen = os.path.dirname(os.path.abspath(spec.origin)) if spec and spec.origin else None
    if seen is not None and os.path.realpath(seen) != os.path.realpath(own):
        yield DoctorFinding(
            "installation",
            "warn",
            f"`import updater` is {seen}, not kfm's module at {own}",
            "pip uninstall updater, or take what shadows it off Python's path; commands do not need it.",
        )
        return
    for dist in distributions(name="updater"):
        yield DoctorFinding(
            "installation",
            "warn",
            f"the distribution updater {dist.version} is installed, too: another project, with a module"
            " of the same name",
            "pip uninstall updater, then pip install --force-reinstall --no-deps kfm-kernel",
        )


def _environment(_loaded: Any) -> Iterator[DoctorFinding]:
    from kfm.config.loader import VARIABLES, unknown_variables
    from kfm.model.quantities import did_you_mean

    for name in unknown_variables():
        hint = did_you_mean(name, sorted(VARIABLES))
        yield DoctorFinding(
            "environment", "warn", f"{name} means nothing to kfm{hint}", f"Unset {name}, or spell it right."
        )


def _secrets(loaded: Any) -> Iterator[DoctorFinding]:
    from kfm.config.origins import leaves
    from kfm.config.secrets import is_reference

    for field, value in leaves(loaded.settings):
        if isinstance(value, str) and is_reference(value) and not value.startswith("file://"):
            try:
                loaded.secret(value)
            except KfmError as error:
                yield DoctorFinding("secrets", "fail", f"{field}: {error.detail}", error.way_out)
                continue
            place = value.partition(":")[2]
            if value.startswith("file:") and _is_loose(loaded.resolve(place)):
                yield DoctorFinding(
                    "secrets", "warn", f"{field}: others can read {place}", f"chmod 600 {place}"
                )
            else:
                yield DoctorFinding("secrets", "ok", f"{field}: {value} is there")


def _is_loose(path: str) -> bool:
    """Can others read it? The group of a file that is not ours, such as a secret of Kubernetes, is what lets
    us in."""
    found = os.stat(path)
    return bool(found.st_mode & (0o077 if found.st_uid == os.geteuid() else 0o037))


# --- state folder and store --------------------------------------------------------


def _state(loaded: Any) -> Iterator[DoctorFinding]:
    state = loaded.resolve(loaded.settings.state)
    place = _nearest_folder(state)
    if os.path.isdir(state):
        mode = os.stat(state).st_mode & 0o777
        if mode & 0o022:
            yield DoctorFinding(
                "state", "fail", f"{state} can be written by others ({mode:o})", f"chmod 700 {state}"
            )
        elif mode & 0o055:
            yield DoctorFinding(
                "state", "warn", f"{state} can be read by others ({mode:o})", f"chmod 700 {state}"
            )
    yield from _loose_ledger(loaded, state)
    if not os.access(place, os.W_OK | os.X_OK):
        yield DoctorFinding(
            "state", "fail", f"{place} is not writable", "Run as its owner, or set `state`.", backend=True
        )
        return
    from kfm.db.connection import require_local_disk

    try:
        kind = require_local_disk(place)
    except KfmError as error:
        yield DoctorFinding("state", "fail", error.detail, error.way_out, backend=True)
        return
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize
    described = f"{readable_size(free)} free on {kind or 'the disk'} for {state}"
    level = "fail" if free < FREE_FAIL_BYTES else "warn" if free < FREE_WARN_BYTES else "ok"
    fix_space = None if level == "ok" else "Free some space; `kfm gc` removes what no kept version needs."
    yield DoctorFinding("state", level, described, fix_space, backend=level == "fail")


def _loose_ledger(loaded: Any, state: str) -> Iterator[DoctorFinding]:
    """The ledger holds the key by which hidden names are masked."""
    from kfm.db.connection import sqlite_path

    if not (loaded.store or "sqlite:").startswith("sqlite:"):
        return
    path = sqlite_path(loaded.store, state)
    reachable = os.path.isdir(folder := os.path.dirname(path)) and os.stat(folder).st_mode & 0o011
    if reachable and os.path.isfile(path) and os.stat(path).st_mode & 0o077:
        yield DoctorFinding("state", "warn", f"others can read {path}", f"chmod 600 {path}*")


def _nearest_folder(path: str) -> str:
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _store(application: Application, loaded: Any) -> Iterator[DoctorFinding]:
    import apsw

    heads = len(application().ledger.heads())
    if (loaded.settings.store or "sqlite:").startswith("sqlite:"):
        version = apsw.sqlite_lib_version()
        yield DoctorFinding(
            "store",
            "ok",
            f"SQLite {version}, WAL with synchronous=FULL on every connection; {counted(heads, 'dataset')}",
        )
    else:
        yield DoctorFinding(
            "store", "ok", f"the database answers and its schema is known; {counted(heads, 'dataset')}"
        )
        yield from _server(application().ledger.database)
        yield _skew(application())
    yield from _schema(application().ledger.database.session)


def _schema(session: Any) -> Iterator[DoctorFinding]:
    """Whether the ledger and this kfm are of one version."""
    from kfm.db.queries import applied, newest

    done = applied(session)
    if (level := max(done)) > newest():
        yield DoctorFinding(
            "store",
            "warn",
            f"the ledger is of a newer kfm, at migration {level}; this one, which knows up to {newest()}, "
            "may go on",
            "Upgrade kfm here, too.",
        )
    elif level < newest():
        yield DoctorFinding(
            "store",
            "warn",
            f"the ledger is at migration {level}; what this kfm would take away, up to {newest()}, is there",
            "Once no older process is at work: `kfm migrate --plan`, then `kfm migrate`.",
        )


def _server(database: Any) -> Iterator[DoctorFinding]:
    """Whether what a server of PostgreSQL acknowledges outlives it, and whether it has room."""
    from kfm.db.postgres import PostgresDatabase

    if not isinstance(database, PostgresDatabase):  # nothing has been written there yet
        return
    server = database.server()
    if server.synchronous_commit in ("local", "remote_write"):
        yield DoctorFinding(
            "store",
            "warn",
            f"synchronous_commit={server.synchronous_commit}: a failover may lose what was acknowledged",
            "Set synchronous_commit=on on the server, the database and the role.",
        )
    if server.hidden:
        yield DoctorFinding(
            "store",
            "warn",
            f"{counted(server.standbys, 'standby')}: this role may not see whether commits wait for one",
            "GRANT pg_monitor TO the role, and look again.",
        )
    elif server.standbys and not server.synchronous:
        yield DoctorFinding(
            "store",
            "warn",
            f"{counted(server.standbys, 'standby')}, asynchronous: a failover may lose what was acknowledged",
            "Name one in synchronous_standby_names, and promote no other.",
        )
    elif server.named_standbys and not server.synchronous:
        yield DoctorFinding(
            "store",
            "warn",
            f"synchronous_standby_names={server.named_standbys}, and no such standby is there: commits wait",
            "Start it, or take it out of synchronous_standby_names.",
        )
    is_full = server.connections >= server.connections_max * CONNECTIONS_FULL
    between = ", behind a pooler" if server.pooled else ""
    standbys = ""
    if server.synchronous:
        others = server.standbys - server.synchronous
        standbys = f"; {server.synchronous} synchronous and {others} asynchronous standbys"
    yield DoctorFinding(
        "store",
        "warn" if is_full else "ok",
        f"PostgreSQL {server.version}{between}: {server.connections} of {server.connections_max} connections "
        f"in use, {server.connections_ours} by kfm here{standbys}",
        "Lower `limits.store_connections`, raise max_connections, or put a pooler before it."
        if is_full
        else None,
    )


def _skew(app: Any) -> DoctorFinding:
    """How far this machine's clock is from the server's, as well as one question can tell."""
    asked_ms = app.clock.now_ms()
    server_ms = app.ledger.now_ms()
    answered_ms = app.clock.now_ms()
    ahead_ms = (asked_ms + answered_ms) // 2 - server_ms
    if abs(ahead_ms) <= CLOCK_SLACK_MS + (answered_ms - asked_ms) // 2:
        return DoctorFinding("clock", "ok", f"{duration(abs(ahead_ms))} from the database server's")
    return DoctorFinding(
        "clock",
        "warn",
        f"{duration(abs(ahead_ms))} {'ahead of' if ahead_ms > 0 else 'behind'} the database server's",
        "Check time sync on both machines. Leases, waits and schedules go by the server's clock; logs, "
        "signatures and dates that upstream gives go by this one's.",
    )


def _objects(application: Application, loaded: Any) -> Iterator[DoctorFinding]:
    """Every stored object against its name, and what kept versions need and is not there."""
    from kfm.model.errors import StoreCorrupt
    from kfm.objects.local import missing, verify_object
    from kfm.publish.targets.folder_builder import lost

    app = application()
    owners = _owners(app, loaded.settings.limits.versions_kept)
    pinned = set(app.ledger.branch_reader().objects_kept(0))
    count = size = damaged = 0
    for sha256 in app.objects.all():
        count += 1
        try:
            size += verify_object(app.objects, sha256)
            owners.pop(sha256, None)
        except (OSError, StoreCorrupt) as error:
            damaged += 1
            problem = error if isinstance(error, StoreCorrupt) else StoreCorrupt(f"{sha256}: {error}")
            if sha256 in owners:
                dataset_id, item = owners.pop(sha256)
                problem = lost(dataset_id, item, problem)
                fix = problem.way_out
            else:
                place = app.objects.local_path(sha256) or f"sha256:{sha256} from the bucket"
                fix = f"No kept version has it: remove {place}."
                if sha256 in pinned:
                    fix = "`kfm pipeline run NAME --verify` makes it again, with the pipeline that made it."
            yield DoctorFinding("objects", "fail", problem.detail, fix, backend=True)
    for sha256, (dataset_id, item) in owners.items():
        problem = lost(dataset_id, item, missing(sha256))
        yield DoctorFinding("objects", "fail", problem.detail, problem.way_out, backend=True)
    state, read = "warn" if damaged else "ok", f"{counted(count, 'object')}, {readable_size(size)}"
    yield DoctorFinding("objects", state, f"{read} were read; {damaged} damaged, {len(owners)} missing")


def _owners(app: Any, keep: int) -> dict[str, Any]:
    """Of each object that a kept version has: the dataset and the item in it."""
    found: dict[str, Any] = {}
    for head in app.ledger.heads():
        withdrawals = app.ledger.change_reader().withdrawals(head.dataset_id)
        for promotion in app.ledger.promotions(head.dataset_id, limit=max(1, keep)):
            version = app.ledger.version(promotion.version_id)
            if version is None or purged(promotion.sequence, version, withdrawals):
                continue
            for item in version.items():
                for asset in item.assets:
                    found.setdefault(asset.sha256, (version.dataset_id, item))
    return found


# --- files, targets, extras --------------------------------------------------------


def _contracts(loaded: Any) -> Iterator[DoctorFinding]:
    from kfm.publish.contract.reader import load_contract

    for path in dict.fromkeys(source.contract for source in loaded.settings.sources if source.contract):
        try:
            with open(loaded.resolve(path), "rb") as file:
                contract = load_contract(file.read(), path)
        except KfmError as error:
            yield DoctorFinding("contract", "fail", error.message, error.way_out)
        else:
            yield DoctorFinding("contract", "ok", f"{path} is version {contract.version}")


def _policies(application: Application, loaded: Any) -> Iterator[DoctorFinding]:
    bundle = application().policies.bundle_id
    yield DoctorFinding(
        "policies",
        "ok",
        f"all parse, with {counted(len(loaded.settings.policies), 'own file')}: bundle {bundle[:12]}",
    )


def _targets(application: Application, loaded: Any) -> Iterator[DoctorFinding]:
    if not loaded.settings.publish and (loaded.settings.sources or not loaded.settings.ingest.queues):
        yield DoctorFinding(
            "targets",
            "warn",
            "there is no target, so what is promoted is not published anywhere",
            "Add one to `publish`.",
        )
    yield from _taken(application, loaded.settings)
    for target in loaded.settings.publish:
        name = target.name or target.kind
        if target.kind == "local":
            path = loaded.resolve(target.path or ".")
            place = _nearest_folder(path)
            if os.access(place, os.W_OK | os.X_OK):
                fallen = _fallen(application(), name)
                yield from fallen
                if not fallen:
                    yield DoctorFinding("targets", "ok", f"{name}: {path} can be written")
                yield from _crowded(application(), name)
            else:
                yield DoctorFinding(
                    "targets", "fail", f"{name}: {place} is not writable", "Change its owner or mode.", True
                )
        elif target.kind == "s3" and find_spec("obstore") is None:
            yield DoctorFinding(
                "targets", "fail", f"{name} needs the extra `objects`", "pip install 'kfm-kernel[objects]'"
            )
        elif target.kind != "s3":  # of a bucket `buckets` tells
            yield DoctorFinding("targets", "ok", f"{name}: nothing to check before it is used")


def _taken(application: Application, settings: Any) -> Iterator[DoctorFinding]:
    """Restricted data beside other data, and what is shown by a target that does not take it."""
    if not settings.publish:
        return
    from kfm.model.targets import shared
    from kfm.reports.status import not_taken

    for name, restricted, others in shared(settings):
        yield DoctorFinding(
            "targets",
            "warn",
            f"{name}: restricted data ({', '.join(restricted)}) shares it with other data "
            f"({', '.join(others)}): its readers see both",
            "Give restricted data a target of its own, with `datasets` and `care`.",
        )
    for shown in not_taken(settings, application().ledger):
        yield DoctorFinding("targets", "warn", shown["sentence"], shown["command"])


def _crowded(app: Any, name: str) -> Iterator[DoctorFinding]:
    """Folders that cost too much to make anew with every version."""
    from kfm.publish.targets.folder import crowded

    for dataset_id, target in sorted(app.ledger.projected()):
        head = app.ledger.head(dataset_id) if target == name else None
        for folder, entries in crowded(head[1]) if head is not None else ():
            yield DoctorFinding(
                "targets",
                "warn",
                f"{name}: {dataset_id} has {entries:,} entries in {folder or 'one folder'}, which every "
                "version with a change in it makes anew",
                "Give its source a `path` with date folders, such as "
                '"{window.start:%Y/%m/%d}/{name}"; new windows are placed by it.',
            )


def _fallen(app: Any, name: str) -> list[DoctorFinding]:
    """What this target was known to show, and does not show any more."""
    from kfm.model.dataset_names import of_dataset
    from kfm.model.targets import takes, target_name
    from kfm.runs.target_updates import has_fallen

    (target,) = (each for each in app.projections if each.name == name)
    known, renames = app.ledger.projected(), app.ledger.change_reader().renames()
    (chosen,) = (each for each in app.settings.publish if target_name(each) == name)
    taken = {dataset.id for dataset in app.settings.datasets if takes(chosen, dataset)}
    heads = (head for head in app.ledger.heads() if (head.dataset_id, name) in known)
    return [
        DoctorFinding(
            "targets",
            "fail",
            f"{name}: it does not show version {head.sequence} of {head.dataset_id}",
            "kfm project",
        )
        for head in heads
        if head.dataset_id in taken
        and has_fallen(app.kernel, target, head, of_dataset(head.dataset_id, renames))
    ]


def _buckets(application: Application, loaded: Any) -> Iterator[DoctorFinding]:
    settings = loaded.settings
    asked = [
        (target.name or target.kind, target.url or "", client_options(target.options))
        for target in settings.publish
        if target.kind == "s3"
    ]
    if settings.objects is not None:
        asked.append(("objects", settings.objects, settings.objects_options))
    if asked and find_spec("obstore") is not None:  # else `targets` or `extras` tells of it
        for name, address, options in asked:
            yield _bucket(application(), "buckets", name, address, options)


def _bucket(app: Any, group: str, name: str, address: str, options: Any) -> DoctorFinding:
    """Ask a bucket for the first entry of its list, with the client and the credentials of a run."""
    try:
        app.try_bucket(address, options, ADDRESS_TIMEOUT_MS)
    except KfmError as error:
        return DoctorFinding(
            group, "fail", f"{name}: {error.message}", error.way_out, backend=error.exit_code == 4
        )
    return DoctorFinding(group, "ok", f"{name}: {redact_url(address)} can be listed")


def _extras(loaded: Any) -> Iterator[DoctorFinding]:
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
            yield DoctorFinding("extras", "ok", f"{extra} is installed ({purpose})")
        elif needed.get(extra):
            yield DoctorFinding(
                "extras", "fail", f"{extra} is needed for {purpose}", f"pip install 'kfm-kernel[{extra}]'"
            )


def _branches(loaded: Any) -> Iterator[DoctorFinding]:
    if loaded.settings.lakefs is not None:
        from kfm.branches_remote.lakefs_client import default_branch

        found = default_branch(loaded, ADDRESS_TIMEOUT_MS)
        name = loaded.settings.lakefs.repository
        yield DoctorFinding("branches", "ok", f"lakeFS answers: repository {name}, default branch {found}")


# --- sources -----------------------------------------------------------------------


def _sources(application: Application, loaded: Any) -> Iterator[DoctorFinding]:
    app = application()
    for source in loaded.settings.sources:
        try:
            yield from _source(app, source)
        except KfmError as error:
            yield DoctorFinding("sources", "fail", f"{source.id}: {error.message}", error.way_out)


def _source(app: Any, source: Any) -> Iterator[DoctorFinding]:
    if source.kind == "files":
        folder = app.loaded.resolve(source.folder or ".")
        if os.access(folder, os.R_OK | os.X_OK) and os.path.isdir(folder):
            yield DoctorFinding("sources", "ok", f"{source.id}: {folder} can be read")
        else:
            yield DoctorFinding(
                "sources", "fail", f"{source.id}: there is no folder {folder}", "Create or mount it.", True
            )
    elif source.kind in ("http", "bucket"):
        from kfm.runs.kernel import RunRequest

        decision = app.admission(RunRequest(source_id=source.id, actor=app.actor))
        if decision.allowed and source.kind == "http":
            yield _address(app, source)
        elif decision.allowed:
            yield _bucket(app, "sources", source.id, source.bucket or "", source.bucket_options)
        else:
            why = f"{source.id}: not asked, because a run would be refused"
            yield DoctorFinding("sources", "warn", f"{why}: {decision.first_blocker.reason}")


def _address(app: Any, source: Any) -> DoctorFinding:
    """Ask an address with HEAD. Any answer but a server's failure or a refusal shows that it is there."""
    try:
        shown, status = app.ask_address(source, ADDRESS_TIMEOUT_MS)
    except AddressRefused:
        raise
    except UpstreamUnavailable as error:
        fix = "Check the address and the network."
        return DoctorFinding("sources", "fail", f"{source.id}: {error.detail}", fix, True)
    if status in (401, 403):
        fix = "Check the credentials that `headers` refers to."
        return DoctorFinding("sources", "fail", f"{source.id}: {shown} refuses us ({status})", fix, True)
    if status >= 500:
        return DoctorFinding("sources", "fail", f"{source.id}: {shown} answers {status}", "Try later.", True)
    if status == 404:
        fix = "Check the address; some only exist once the window's data is there."
        return DoctorFinding("sources", "warn", f"{source.id}: {shown} is not there", fix)
    return DoctorFinding("sources", "ok", f"{source.id}: {shown} answers")


def _reach(loaded: Any) -> Iterator[DoctorFinding]:
    """Which addresses that are not public the sources may connect to, and by what they may."""
    from urllib.parse import urlsplit

    from kfm.model.addresses import is_local_name, is_public, parse_address

    for source in loaded.settings.sources:
        if source.kind != "http":
            continue
        own = urlsplit(source.url or "").hostname or ""
        address = parse_address(own)
        private = not is_public(address) if address is not None else is_local_name(own)
        places = [f"{own} (its own address)"] if private else []
        places += [f"{entry} (`allow`)" for entry in source.allow]
        if places:
            named = ", ".join(places)
            yield DoctorFinding("reach", "ok", f"{source.id}: beside public addresses it may reach {named}")


# --- incident hooks ----------------------------------------------------------------


def _incidents(application: Application, loaded: Any) -> Iterator[DoctorFinding]:
    if not loaded.settings.incidents:
        return
    from kfm.service.incidents import hook_name, probe

    app = application()
    for hook in loaded.settings.incidents:
        name = hook_name(hook)
        try:
            probe(app, hook)
        except (KfmError, OSError) as error:
            problem = error.detail if isinstance(error, KfmError) else str(error)
            fix = "Correct the hook in `incidents`."
            yield DoctorFinding("incidents", "fail", f"{name}: {problem}", fix, backend=True)
            continue
        waiting = app.ledger.hook_backlog(name).waiting
        if waiting:
            problem = f"{name} has still to be notified of {counted(waiting, 'change')}"
            yield DoctorFinding("incidents", "warn", problem, "kfm incident deliver")
        else:
            yield DoctorFinding("incidents", "ok", f"{name} can be used")


# --- queues and replicas -----------------------------------------------------------


def _ingest(application: Application, loaded: Any) -> Iterator[DoctorFinding]:
    ingest = loaded.settings.ingest
    if not (ingest.queues or ingest.mirrors or ingest.replicas):
        return
    from kfm.nodd.dataset_registry import require_known_datasets

    try:
        require_known_datasets(loaded)
    except KfmError as error:
        yield DoctorFinding("ingest", "fail", error.message, error.way_out)
    app = application()
    for queue in ingest.queues:
        try:
            yield _queue(app, queue)
        except KfmError as error:
            yield DoctorFinding(
                "queues", "fail", f"{queue.name}: {error.message}", error.way_out, backend=True
            )
    for bucket, path in ingest.mirrors.items():
        yield _folder("mirrors", bucket, loaded.resolve(path), os.R_OK | os.X_OK, "read")
    for replica in ingest.replicas:
        try:
            yield _replica(loaded, replica)
        except KfmError as error:
            yield DoctorFinding("replicas", "fail", f"{replica.name}: {error.message}", error.way_out)


def _queue(app: Any, queue: Any) -> DoctorFinding:
    if queue.kind == "folder":
        # What was taken in is removed, so reading alone does not do.
        return _folder(
            "queues", queue.name, app.loaded.resolve(queue.path), os.R_OK | os.W_OK | os.X_OK, "emptied"
        )
    from kfm.nodd.ingest import NoddIngest

    place = NoddIngest(app)
    opened: Any = place.queue(queue)
    try:
        opened.probe()
    except BackendUnavailable as error:
        if error.facts.get("cause") != "access":
            raise
        problem = f"{queue.name}: it answers, but not whether we may use it (no sqs:GetQueueAttributes)"
        return DoctorFinding(
            "queues", "warn", problem, "Allow that action too, or see what `kfm worker --once` says."
        )
    finally:
        opened.close()
        place.close()
    return DoctorFinding("queues", "ok", f"{queue.name}: the queue answers")


def _folder(group: str, name: str, path: str, mode: int, deed: str) -> DoctorFinding:
    if not os.path.isdir(path):
        return DoctorFinding(group, "fail", f"{name}: there is no folder {path}", "Create or mount it.", True)
    if not os.access(path, mode):
        return DoctorFinding(
            group, "fail", f"{name}: {path} can't be {deed}", "Change its owner or mode.", True
        )
    return DoctorFinding(group, "ok", f"{name}: {path} can be {deed}")


def _replica(loaded: Any, replica: Any) -> DoctorFinding:
    """Its landing page. A replica that is away for a while loses nothing: deliveries wait."""
    from kfm.objects.http_client import HttpxClient

    url = loaded.secret(replica.url)
    headers = {"Authorization": f"Bearer {loaded.secret(replica.token)}"} if replica.token else {}
    shown = f"{replica.name}: {redact_url(url)}"
    try:
        with (
            closing(HttpxClient()) as client,
            client.send("GET", url, headers, None, ADDRESS_TIMEOUT_MS, shown=shown) as answer,
        ):
            status = answer.status
    except UpstreamUnavailable as error:
        fix = "Check the address and the network; deliveries wait meanwhile."
        return DoctorFinding("replicas", "fail", loaded.hide(error.detail), fix, backend=True)
    if status in (401, 403):
        return DoctorFinding("replicas", "fail", f"{shown} refuses us ({status})", "Check `token`.", True)
    if status != 200:
        return DoctorFinding("replicas", "fail", f"{shown} answers {status}", "Check the address.", True)
    return DoctorFinding("replicas", "ok", f"{shown} answers")


# --- service and webhooks ----------------------------------------------------------


def _service(loaded: Any) -> Iterator[DoctorFinding]:
    from kfm.config.schedules import load_schedules
    from kfm.web.listener import address_of, is_private

    serve = loaded.settings.serve
    schedules = len(load_schedules(loaded))
    hooked = sum(source.webhook is not None for source in loaded.settings.sources)
    if not (schedules or hooked or serve != type(serve)()):
        return  # none is configured
    yield DoctorFinding("service", "ok", f"{counted(schedules, 'schedule')}, {counted(hooked, 'webhook')}")
    address = address_of(serve.host)
    if not is_private(address) and not any(person.token_hashes for person in loaded.people()):
        problem = f"other machines could reach {address}, and no person has a token"
        fix = "Give people tokens under `people`, or let `serve.host` be 127.0.0.1."
        yield DoctorFinding("service", "fail", problem, fix)
    yield from _webhooks(loaded)
    if serve.port:
        yield _port(address, serve.port)


def _webhooks(loaded: Any) -> Iterator[DoctorFinding]:
    """A secret that is missing stops the service; an older form of signature is only a pity."""
    from kfm.config.section_checks import webhook_secrets
    from kfm.model.errors import ConfigError

    for source in loaded.settings.sources:
        if source.webhook is None:
            continue
        try:
            webhook_secrets(source, loaded.secret)
        except ConfigError as error:
            yield DoctorFinding("webhook", "fail", f"{source.id}: {error.detail}", error.way_out)
            continue
        if source.webhook.signature == "legacy-concat":
            problem = f"{source.id}: sha256(secret + body) passes as a signature; a message can be lengthened"
            yield DoctorFinding(
                "webhook", "warn", problem, "Have its sender use HMAC, then remove `signature`."
            )


def _port(host: str, port: int) -> DoctorFinding:
    """Bound for a moment, never listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if _is_ours(host, port):
                return DoctorFinding("service", "ok", f"one answers on port {port} of {host}")
            why = (error.strerror or str(error)).lower()
            problem = f"port {port} of {host} can't be had ({why}), and no service of kfm answers there"
            return DoctorFinding(
                "service", "warn", problem, "Set `serve.port`, unless it is one with a --prefix."
            )
    return DoctorFinding("service", "ok", f"port {port} of {host} is free")


def _is_ours(host: str, port: int) -> bool:
    import json

    from kfm.objects.http_client import HttpxClient

    asked = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - asked, not listened on
    shown = f"[{asked}]" if ":" in asked else asked
    url = f"http://{shown}:{port}/livez"
    try:
        with (
            closing(HttpxClient()) as client,
            client.send("GET", url, {}, None, ANSWER_MS_MAX) as answer,
        ):
            found = json.loads(next(answer.chunks(), b"")[:1024])
            return answer.status == 200 and bool(found == {"status": "ok"})
    except (UpstreamUnavailable, ValueError):
        return False
