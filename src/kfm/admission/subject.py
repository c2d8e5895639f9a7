"""What a call is about: the work, its keys, its lock."""

from __future__ import annotations

from msgspec.structs import replace

from kfm.core import keys
from kfm.core.records import Record, Run, Trigger, Window, Work
from kfm.core.run_transitions import started
from kfm.core.settings import Dataset, Source


class Subject(Record, frozen=True):
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
    source: Source,
    dataset: Dataset,
    window: Window,
    output_version: str,
    trigger: Trigger,
    environment: str,
) -> Subject:
    work = Work(source_id=source.id, window=window, partition=source.partition, output_version=output_version)
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
