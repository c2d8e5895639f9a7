"""What a run is asked for, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kfm.model import keys
from kfm.model.admission import Asked
from kfm.model.records import Record, Run, Trigger, Window, Work
from kfm.model.requests import UpdateRequest
from kfm.model.runs import started
from kfm.model.settings import DatasetSettings, SourceSettings
from kfm.runs.kernel import Kernel
from kfm.runs.plan import RunPlan

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader


class RunSubject(Record, frozen=True):
    """What a request is about: source, dataset, window, work and trigger."""

    source: SourceSettings
    dataset: DatasetSettings
    window: Window
    work: Work
    work_base: str
    trigger: Trigger
    environment: str

    @property
    def scope(self) -> str:
        """The lock that this work takes."""
        if self.dataset.lock == "domain":
            return f"domain:{self.dataset.domain}"
        return f"dataset:{self.dataset.id}"

    def new_run(self, revision: int, now_ms: int) -> Run:
        """The row for one revision of the work, on its first attempt."""
        return started(
            self.trigger,
            self.work,
            environment=self.environment,
            revision=revision,
            pipeline_id=self.source.id,
            fence=0,
            now_ms=now_ms,
        )


def describe(
    source: SourceSettings,
    dataset: DatasetSettings,
    window: Window,
    output_version: str,
    trigger: Trigger,
    environment: str,
) -> RunSubject:
    work = Work(source_id=source.id, window=window, partition=source.partition, output_version=output_version)
    return RunSubject(
        source=source,
        dataset=dataset,
        window=window,
        work=work,
        work_base=keys.work_base(work),
        trigger=trigger,
        environment=environment,
    )


def forced(subject: RunSubject, number: int) -> RunSubject:
    """The same subject, requested with --force for the n-th time."""
    return replace(subject, trigger=replace(subject.trigger, force=number))


def key_documents(
    ledger: LedgerReader, subject: RunSubject, revision: int, begun: Run | None = None
) -> dict[str, Any]:
    """What the keys of a run are made of; of a run that has begun, as its first attempt kept it."""
    documents: dict[str, Any] = {"work": keys.work_document(subject.work, revision)}
    kept = ledger.run_documents(begun.run_id) if begun is not None else None
    if kept is not None:
        return documents | kept
    trigger = subject.trigger
    if keys.names_itself(trigger):
        named = keys.trigger_document(trigger, subject.work, revision)
        # Runs of earlier versions kept none: what asks now may be another trigger than theirs.
        if begun is None or keys.key_of(named) == begun.idempotency_key:
            documents["trigger"] = named
            if trigger.envelope:
                documents["envelope"] = trigger.envelope
    return documents


class Start(Record, frozen=True):
    """How a run is asked for."""

    request: UpdateRequest | None = None  # stored and claimed; None: asked for by its own process, at once
    by_person: bool = False
    force: bool = False
    plan: RunPlan | None = None  # what it may publish, and nothing else
    artifacts_dir: str | None = None
    assume: bool = False  # a preview as if a second person had approved it
    together: str | None = None  # what names the windows that are promoted together with it
    leaves_out: bool = False  # of them those that fail are left out: each is then on its own

    @property
    def is_promised(self) -> bool:
        """Is it an attempt that was promised to the run of its request?"""
        return self.request is not None and self.request.run_id is not None

    @property
    def binds(self) -> str | None:
        """The digest that binds every attempt."""
        return self.plan.header.digest if self.plan is not None else None


def asked_for(subject: RunSubject, start: Start) -> Asked:
    """What the decision is told of a request."""
    request = start.request
    return Asked(
        trigger=subject.trigger,
        name=request.request_id if request is not None else "",
        by_person=start.by_person if request is None else request.by_person,
        can_wait=request is not None,
        plan=start.binds,
        promised=start.is_promised,
    )


def as_configured(kernel: Kernel, subject: RunSubject) -> RunSubject | None:
    """The subject with its dataset as it is declared now; None: it is declared no more."""
    dataset = kernel.dataset_now(subject.dataset.id)
    return None if dataset is None else replace(subject, dataset=dataset)
