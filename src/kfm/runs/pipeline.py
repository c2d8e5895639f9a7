"""What a pipeline function is given, and what happens when there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from kfm.core.errors import KfmError, PipelineFailed
from kfm.core.records import Asset, Fetched, Window
from kfm.ports import Objects, Reader


class FilePublisher(Protocol):
    """The part of a publisher that every pipeline uses."""

    def write_file(self, path: str, data: Any, metadata: Any = None) -> Asset: ...


class Input:
    """One fetched object, as a pipeline sees it."""

    def __init__(self, fetched: Fetched, objects: Objects) -> None:
        self.fetched = fetched
        self.path = fetched.found.path
        self.uri = fetched.found.uri
        self.media_type = fetched.found.media_type
        self.size = fetched.size
        self.sha256 = fetched.sha256
        self._objects = objects

    @contextmanager
    def open(self) -> Iterator[Reader]:
        reader = self._objects.open(self.sha256)
        try:
            yield reader
        finally:
            reader.close()

    def read(self) -> bytes:
        """All of it; for objects that fit in memory."""
        with self.open() as reader:
            return b"".join(iter(lambda: reader.read(1024 * 1024), b""))


class Context:
    """A pipeline's world: its inputs, its window, its publisher, its log."""

    def __init__(
        self,
        inputs: Sequence[Input],
        window: Window,
        publisher: FilePublisher,
        log: Callable[[str], None],
        *,
        dataset_id: str,
        source_id: str,
        partition: str | None,
        dry_run: bool,
    ) -> None:
        self.inputs = inputs
        self.window = window
        self.publisher = publisher
        self.log = log
        self.dataset_id = dataset_id
        self.source_id = source_id
        self.partition = partition
        self.dry_run = dry_run


def publish_as_fetched(context: Context) -> None:
    """The built-in pipeline: every object as it came, at the path that discovery gave it."""
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)


def run_pipeline(function: Callable[[Any], None], context: Context) -> None:
    """Call a person's function; whatever it raises is the pipeline's failure, said once."""
    try:
        function(context)
    except KfmError:
        raise
    except (Exception, SystemExit) as error:
        from kfm.core.redact import shapeless  # late: only failures need it

        # It goes to screens and into records: the place to mask what a library quotes of its requests.
        raise PipelineFailed(f"{type(error).__name__}: {shapeless(str(error))}") from error
