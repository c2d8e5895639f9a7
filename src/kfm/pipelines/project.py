"""Project of a pipeline: its folder, state and ledger, the file that declares it, and how it is run."""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from kfm.config.state_folder import StateFolder
from kfm.decoders import prepare_decoders
from kfm.model.errors import ConfigNotFound, PipelineError, UsageError
from kfm.model.quantities import stopped, suggest
from kfm.model.run_state import Pass
from kfm.periodic import LeaseHeartbeat
from kfm.pipelines.declaration import Pipeline
from kfm.pipelines.execution import PipelineExecutor
from kfm.pipelines.options import NodeReport, OptionArguments, PipelineKernel, PipelineOptions, PipelineReport
from kfm.pipelines.planner import PipelinePlanner
from kfm.pipelines.workers import InlineWorker, ThreadWorkers, WorkerContext, Workers

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.calls.breakers import SharedBreakers
    from kfm.config.loader import Loaded
    from kfm.db.queries import Upgrading
    from kfm.db.run_state import RunStateTables
    from kfm.model.settings import Settings
    from kfm.objects.local import DiskProject
    from kfm.pipelines.evidence import ProjectEvidence
    from kfm.pipelines.run_state_store import StoreParts
    from kfm.ports import BranchReader, Clock, InputVersions, Objects

JOBS_MAX = 256
REMEDY = "Name a Python file that makes a kfm.Pipeline: `FILE`, or `FILE:NAME` where it makes several."


def _redacted(text: str) -> str:
    """A text for the records, where no configuration knows any secrets."""
    from kfm.model.redaction import Discretion  # late: only failures need it

    return Discretion()(text)


class PipelineProject:
    """Project of a pipeline: its folder, its state folder, its ledger."""

    def __init__(
        self,
        root: str,
        folder: StateFolder,
        *,
        read_only: bool = False,
        loaded: Loaded | None = None,
        moving: bool = False,
    ) -> None:
        self.root = root
        self.state = folder.path
        self.clock = folder.clock
        self.ids = folder.ids
        self.liveness = folder.liveness
        self.loaded = loaded  # the configuration, where there is one
        self.worker_id = self.ids.new()
        self._folder = folder
        self._read_only = read_only
        self._moving = moving
        self._evidence: ProjectEvidence | None = None
        self.store: Any = folder.open_reader() if read_only else folder.open_ledger()
        try:
            if not read_only:
                _ = self.tables  # an environment keeps to its store: refused before anything is done
        except BaseException:
            self.store.close()
            raise

    @cached_property
    def files(self) -> DiskProject:
        from kfm.objects.local import DiskProject

        return DiskProject(self.root)

    @cached_property
    def objects(self) -> Objects:
        return self._folder.values(self.loaded)

    @cached_property
    def breakers(self) -> SharedBreakers:
        """The circuits of all providers, shared through the ledger."""
        from kfm.calls.breakers import BreakerAccess, SharedBreakers
        from kfm.model.breaker import limits_of

        folder, providers = self._folder, self.loaded.settings.providers if self.loaded else {}
        another = folder.open_reader if self._read_only else folder.open_ledger
        access = BreakerAccess(self.store, None if self._read_only else self.store, another)
        return SharedBreakers(access, self.clock, limits=lambda provider: limits_of(provider, providers))

    def store_parts(self) -> StoreParts:
        from kfm.pipelines.run_state_store import StoreParts

        folder = self._folder
        return StoreParts(
            self.store, self.state, self.objects, folder.clock, folder.ids, folder.rng, self.loaded
        )

    @cached_property
    def tables(self) -> RunStateTables:
        """Run-state in the store that this environment has."""
        from kfm.model.settings import RunStateSettings
        from kfm.pipelines import run_state_store

        chosen = self.loaded.settings.run_state if self.loaded else RunStateSettings()
        if self._moving:
            begun = run_state_store.begun_with(self.store) or run_state_store.RELATIONAL
            return run_state_store.make(self.store_parts(), run_state_store.named(begun, chosen))
        return run_state_store.open_run_states(self.store_parts(), chosen, read_only=self._read_only)

    def kernel(self, on_node: Callable[[NodeReport], None]) -> PipelineKernel:
        self._evidence = evidence = self._evidence or self._make_evidence()
        return PipelineKernel(
            states=self.tables,
            pipeline_runs=self.tables,
            objects=self.objects,
            object_size=self._object_size(),
            object_sizes=getattr(self.objects, "sizes_of", None),  # a bucket's alone
            files=self.files,
            input_versions=LazyInputVersions(self.clock, self.store.branch_reader, lambda: self.breakers),
            clock=self.clock,
            liveness=self.liveness,
            worker_id=self.worker_id,
            workers=_local_workers(WorkerContext(self.objects, self.files, self.clock)),
            actor=_who(self.loaded),
            lease_ms=round(self._settings.lease.seconds * 1000),
            heartbeat=LeaseHeartbeat(self._folder.open_for_renewals),
            ledger=self.store,
            run_ms=self.loaded.settings.limits.run_seconds * 1000 if self.loaded else None,
            redact=self.loaded.discretion if self.loaded else _redacted,
            on_node=on_node,
            **({} if evidence is None else evidence.fields()),
        )

    @cached_property
    def _settings(self) -> Settings:
        from kfm.model.settings import Settings

        return self.loaded.settings if self.loaded else Settings()

    def _object_size(self) -> Callable[[str], int | None]:
        if self._settings.objects is None:
            return _sizes(f"{self.state}/objects/sha256/")
        return self.objects.size_of

    def _make_evidence(self) -> ProjectEvidence | None:
        """None for readers: they leave no evidence."""
        if self._read_only:
            return None
        from kfm.pipelines.evidence import ProjectEvidence

        return ProjectEvidence(self.loaded, self.root, self.state, self.store, self.clock, self.ids)

    def close(self) -> None:
        if self._evidence is not None:
            self._evidence.hand_over()
        self._folder.release(self.store, self.worker_id)
        if "breakers" in self.__dict__:
            self.breakers.close()
        self.store.close()


@contextmanager
def open_project(
    directory: str | None = None,
    config: str | None = None,
    *,
    loaded: Loaded | None = None,
    read_only: bool = False,
    moving: bool = False,
    upgrading: Upgrading | None = None,
) -> Iterator[PipelineProject]:
    """By the configuration, where there is one; else the folder itself, with its state in `.kfm`."""
    from kfm.telemetry.log_records import install

    if loaded is None and directory is None:
        from kfm.config.loader import load

        try:
            loaded = load(config, {})
        except ConfigNotFound:
            if config is not None:
                raise
    if loaded is not None:
        root, folder = loaded.folder, StateFolder.of(loaded)
        install(loaded.discretion)
    else:
        root = os.path.abspath(directory or ".")
        folder = StateFolder(os.path.join(root, ".kfm"))
        install()
    folder.upgrading = upgrading
    project = PipelineProject(root, folder, read_only=read_only, loaded=loaded, moving=moving)
    try:
        yield project
    finally:
        project.close()


# --- runs and plans ----------------------------------------------------------------------


def run_pipeline(
    pipeline: Pipeline,
    *,
    directory: str | None = None,
    config: str | None = None,
    workers: str | None = None,
    on_node: Callable[[NodeReport], None] = lambda _report: None,
    **arguments: Unpack[OptionArguments],
) -> PipelineReport:
    with open_project(directory, config) as project:
        options = make_options(pipeline, project, **arguments)
        kernel = with_workers(project.kernel(on_node), project, pipeline, workers, arguments.get("jobs"))
        return PipelineExecutor(PipelinePlanner(kernel, pipeline, options)).run()


def plan_pipeline(
    pipeline: Pipeline,
    *,
    directory: str | None = None,
    config: str | None = None,
    **arguments: Unpack[OptionArguments],
) -> PipelineReport:
    with open_project(directory, config, read_only=True) as project:
        return plan_in_project(project, pipeline, make_options(pipeline, project, **arguments))


def plan_in_project(project: PipelineProject, pipeline: Pipeline, options: PipelineOptions) -> PipelineReport:
    """The plan of a pipeline run, from the records that it would read: also of reverted commits."""
    from kfm.db.run_state import PlanningView

    graph = tuple(pipeline.graph().reads.items())
    states: Any = PlanningView(project.tables, project.store.database.session, graph)
    kernel = replace(project.kernel(lambda _report: None), states=states)
    return PipelinePlanner(kernel, pipeline, options).plan()


def make_options(
    pipeline: Pipeline,
    project: PipelineProject,
    *,
    branch: str | None = None,
    run_id: str | None = None,
    resume: str | None = None,
    fork: str | None = None,
    fork_from: str | None = None,
    force: Collection[str] = (),
    only: Collection[str] = (),
    jobs: int | None = None,
    keep_going: bool = False,
    verify: bool = False,
) -> PipelineOptions:
    if (fork is None) != (fork_from is None):
        raise UsageError("A fork needs both: the run to fork, and the node to begin from.")
    if resume is not None and (fork is not None or run_id is not None):
        raise UsageError("A run is resumed as it is: with no other id, and no fork.")
    earlier = _earlier_run(project, resume or fork, pipeline)
    branch = branch or (earlier.branch if earlier else pipeline.branch)
    return PipelineOptions(
        run_id=resume or run_id or project.ids.new(),
        pipeline_id=pipeline.id,
        branch=branch,
        scope=f"pipeline:{pipeline.id}@{branch}",
        jobs=_jobs(jobs or pipeline.jobs),
        keep_going=keep_going,
        force=tuple(force),
        only=tuple(only),
        fork_of=earlier.run_id if fork is not None and earlier else None,
        fork_from=fork_from,
        verify=verify,
    )


def _earlier_run(project: PipelineProject, run_id: str | None, pipeline: Pipeline) -> Pass | None:
    if run_id is None:
        return None
    found = project.tables.get(run_id)
    if found is None:
        raise UsageError(f"There is no pipeline run {run_id}.", remedy="`kfm run-state list` shows them.")
    if found.pipeline_id != pipeline.id:
        raise UsageError(f"Run {run_id} is one of {found.pipeline_id}, not of {pipeline.id}.")
    return found


def _jobs(wanted: int | None) -> int:
    jobs = wanted or min(4, os.cpu_count() or 1)
    if not 1 <= jobs <= JOBS_MAX:
        raise UsageError(f"jobs is {jobs}; 1 to {JOBS_MAX} are possible.")
    return jobs


# --- dependencies of a pipeline run ------------------------------------------------------


def governed_kernel(app: App, objects: Objects, *, dry_run: bool) -> PipelineKernel:
    """What the nodes of a governed run work with. A dry-run keeps nothing, and so knows nothing."""
    from kfm.objects.local import DiskProject
    from kfm.pipelines.evidence import governed_evidence
    from kfm.pipelines.run_state_store import NullRunState

    files = DiskProject(app.loaded.folder)
    states: RunStateTables | NullRunState = NullRunState()
    if not dry_run:
        from kfm.pipelines.run_state_store import open_run_states, parts_of

        states = open_run_states(parts_of(app, app.store, objects), app.settings.run_state)
    return PipelineKernel(
        states=states,
        pipeline_runs=states,
        objects=objects,
        object_size=objects.size_of,
        files=files,
        input_versions=app.input_versions(),
        clock=app.clock,
        liveness=app.liveness,
        worker_id=app.kernel.worker_id,
        workers=_local_workers(WorkerContext(objects, files, app.clock)),
        actor=_who(app.loaded),
        redact=app.loaded.discretion,
        **({} if dry_run else governed_evidence(app)),
    )


def with_workers(
    kernel: PipelineKernel,
    project: PipelineProject,
    pipeline: Pipeline,
    executor: str | None,
    jobs: int | None = None,
) -> PipelineKernel:
    """The kernel with the workers that the caller or the pipeline asks for: threads, processes, a cluster.

    What can't run there is refused before anything is begun."""
    asked = executor or pipeline.workers
    if asked == "threads":
        return kernel
    from kfm.pipelines.children import home_of
    from kfm.pipelines.executor_address import executor_of

    address = executor_of(asked)
    home_of(pipeline)
    if address.kind == "processes":
        from kfm.pipelines.process_workers import ProcessWorkers

        return replace(kernel, workers=lambda jobs: ProcessWorkers(project, pipeline, jobs))
    from kfm.pipelines import dask_workers

    dask_workers.require(address, project, pipeline)
    at_once = jobs or pipeline.jobs  # else as many as the cluster has threads for
    return replace(
        kernel, workers=lambda _jobs: dask_workers.DaskWorkers(project, pipeline, address, at_once)
    )


def _local_workers(context: WorkerContext) -> Callable[[int], Workers]:
    """Workers in this process: threads, or the calling thread for one job at a time."""
    return lambda jobs: ThreadWorkers(context, jobs, prepare_decoders) if jobs > 1 else InlineWorker(context)


def _who(loaded: Loaded | None) -> str:
    """The subject of the token, else the account; never what the environment claims."""
    from kfm.config.loader import actor

    return loaded.identity().subject if loaded is not None else actor()


def _sizes(folder: str) -> Callable[[str], int | None]:
    stat = os.stat

    def size(sha256: str) -> int | None:
        try:
            return stat(f"{folder}{sha256[:2]}/{sha256[2:]}").st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    return size


class LazyInputVersions:
    """Implements `ports.InputVersions`; loads the clients once there is a remote input."""

    def __init__(
        self, clock: Clock, branches: Callable[[], BranchReader], breakers: Callable[[], SharedBreakers]
    ) -> None:
        self._clock = clock
        self._branches = branches
        self._breakers = breakers
        self._versions: InputVersions | None = None

    def of(self, uri: str) -> Mapping[str, Any]:
        if self._versions is None:
            from kfm.pipelines.inputs import unconfigured_input_versions

            self._versions = unconfigured_input_versions(self._clock, self._branches, self._breakers())
        return self._versions.of(uri)


# --- pipeline files ----------------------------------------------------------------------


def load_pipeline(wanted: str) -> Pipeline:
    """The pipeline of a file: the one that is named, or the only one."""
    path, name = split(wanted)
    found = pipelines_of(path)
    if name is not None:
        if name in found:
            return found[name]
        known = f"it has {', '.join(found)}" if found else "it makes none"
        close = suggest(name, found)
        hint = f"; did you mean `{close}`?" if close else ""
        raise PipelineError(stopped(f"{path} has no pipeline {name}: {known}{hint}"), remedy=REMEDY)
    distinct = list({id(value): value for value in found.values()}.values())
    if len(distinct) == 1:
        return distinct[0]
    if not distinct:
        raise PipelineError(f"{path} makes no kfm.Pipeline.", remedy=REMEDY)
    raise PipelineError(
        f"{path} makes several pipelines: {', '.join(found)}.",
        remedy=f"Name one: `{path}:{next(iter(found))}`.",
    )


def pipelines_of(path: str) -> dict[str, Pipeline]:
    """All that a file makes, by the names that it gives them."""
    return {key: value for key, value in vars(_executed(path)).items() if isinstance(value, Pipeline)}


def split(wanted: str) -> tuple[str, str | None]:
    """A file may have a colon in its name: then it is there."""
    path, colon, name = wanted.rpartition(":")
    if colon and name.isidentifier() and not os.path.exists(wanted):
        return path, name
    return wanted, None


def _executed(path: str) -> ModuleType:
    try:
        # Not through the import system: that would leave bytecode beside the person's file.
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise PipelineError(f"{path} can't be read: {(why or str(error)).lower()}.", remedy=REMEDY) from None
    absolute = os.path.abspath(path)
    name = "kfm_pipeline_" + hashlib.sha256(absolute.encode()).hexdigest()[:12]
    module = ModuleType(name)
    module.__file__ = absolute
    sys.modules[name] = module
    linecache.checkcache(absolute)  # the code's hash is that of the text as it is now
    folder = os.path.dirname(absolute)
    if folder not in sys.path:
        sys.path.append(folder)  # last: its neighbours can be imported, and hide nothing
    try:
        exec(compile(text, absolute, "exec"), module.__dict__)  # noqa: S102 - a pipeline is code that its owner asked to run
    except PipelineError:
        raise
    except (Exception, SystemExit) as error:
        line = _line(error, absolute)
        raise PipelineError(
            f"{path}{line}: {type(error).__name__}: {error}", remedy="Mend the file; it did not load."
        ) from error
    return module


def _line(error: BaseException, path: str) -> str:
    """`:12`, the line of the file at which it went wrong."""
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        return f":{error.lineno}"
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""
