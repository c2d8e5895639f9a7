"""What a call is about: the work, its keys, its lock."""

from __future__ import annotations

from msgspec.structs import replace

from kfm.core import keys
from kfm.core.records import Record, Run, Trigger, Window, Work
from kfm.core.settings import Dataset, Source


class Subject(Record):
    source: Source
    dataset: Dataset
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
        work_key = keys.work_key(self.work, revision)
        return Run(
            run_id=keys.run_id(self.environment, work_key),
            source_id=self.source.id,
            dataset_id=self.dataset.id,
            pipeline_id=self.source.id,
            idempotency_key=keys.trigger_key(self.trigger, self.work, revision),
            work_key=work_key,
            work_base=self.work_base,
            revision=revision,
            trigger_type=self.trigger.type,
            window_spec=self.window.spec,
            window_start_ms=self.window.start_ms,
            window_end_ms=self.window.end_ms,
            partition=self.work.partition,
            pipeline_version=self.work.output_version,
            status="running",
            attempts=1,
            fence=0,
            start_time_ms=now_ms,
            force=self.trigger.force,
            correction=self.trigger.correction,
        )


def describe(
    source: Source,
    dataset: Dataset,
    window: Window,
    output_version: str,
    trigger: Trigger,
    environment: str,
) -> Subject:
    work = Work(
        source_id=source.id, window=window, partition=source.partition, output_version=output_version
    )
    return Subject(
        source=source,
        dataset=dataset,
        window=window,
        work=work,
        work_base=keys.work_base(work),
        trigger=trigger,
        environment=environment,
    )


def forced(subject: Subject, number: int) -> Subject:
    """The same subject, asked for by force for the n-th time."""
    return replace(subject, trigger=replace(subject.trigger, force=number))
