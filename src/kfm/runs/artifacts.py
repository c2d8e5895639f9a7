"""The files that a run leaves behind: run.jsonl, event_log.jsonl, publisher_trace.jsonl, idempotency.json."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kfm.lineage.change_provenance import prov_of_change
from kfm.lineage.collectors import MaskKey
from kfm.lineage.provenance import prov_bytes, prov_of, prov_of_call
from kfm.model.canonical import INT_MAX, canonical_bytes
from kfm.model.contracts import require_valid
from kfm.model.errors import UsageError
from kfm.model.keys import attempt_id
from kfm.model.records import Record, Run
from kfm.model.redaction import MASK_KEY, Discretion, is_masked, within
from kfm.model.settings import DatasetSettings, Rights
from kfm.model.times import rfc3339
from kfm.pipelines.evidence import add_pass
from kfm.ports import Clock, Files, Writer
from kfm.telemetry import log_records

if TYPE_CHECKING:
    from kfm.lineage.collectors import LineageContext
    from kfm.runs.kernel import RunReport


_READ_BYTES = 1 << 20
RunEventName = Literal["run.start", "run.metrics", "run.end"]
Level = Literal["info", "warning", "error"]
LEVELS: dict[Level, int] = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
logger = logging.getLogger(__name__)
steps = logging.getLogger(f"{__name__}.steps")  # of every run: commands show them with --verbose


class RunEvent(Record, frozen=True):
    """One line of run.jsonl: one change of state."""

    at: str
    event: RunEventName
    run_id: str
    attempt: int
    trace_id: str  # of its spans; also its lineage run, without dashes
    dry_run: bool
    facts: dict[str, Any] = {}


class LogEvent(Record, frozen=True):
    """One line of event_log.jsonl: one step."""

    at: str
    run_id: str
    trace_id: str
    phase: str
    level: Level
    message: str
    facts: dict[str, Any] = {}


class RunLog:
    """Writes whole, valid lines. Without a folder it writes nothing: a dry-run without --artifacts."""

    def __init__(
        self,
        files: Files,
        folder: str | None,
        clock: Clock,
        run_id: str,
        attempt: int,
        *,
        dry_run: bool,
        redact: Discretion,
        dataset_id: str | None = None,
        source_id: str | None = None,
    ) -> None:
        self.folder = folder
        self._redact = redact
        self._files = files
        self._clock = clock
        self._run_id = run_id
        self._attempt = attempt
        self._trace_id = attempt_id(run_id, attempt).replace("-", "")
        self._dry_run = dry_run
        self._open: dict[str, Writer] = {}
        self.phase = "admit"
        log_records.begin(
            log_records.Correlation(run_id, attempt, self._trace_id, dataset_id, source_id, phase=self.phase)
        )
        if folder is not None:
            files.make_dirs(folder)
            for name in ("run.jsonl", "event_log.jsonl", "publisher_trace.jsonl"):
                self._open[name] = fresh_file(files, f"{folder}/{name}")

    def _line(self, name: str, schema: str, record: Record) -> None:
        if name not in self._open:
            return
        plain = msgspec.to_builtins(record)
        require_valid(schema, plain)
        self._write(name, canonical_bytes(plain) + b"\n")

    def _write(self, name: str, line: bytes) -> None:
        """A copy of what the ledger knows: that it can't be written is logged once and changes nothing."""
        writer = self._open.get(name)
        if writer is None:
            return
        try:
            writer.write(line)
        except OSError as error:
            logger.warning("artifacts: %s ends here: %s", name, error.strerror or error)
            del self._open[name]
            with contextlib.suppress(OSError):
                writer.close()

    def run_event(self, event: RunEventName, **facts: Any) -> None:
        self._line(
            "run.jsonl",
            "run-event",
            RunEvent(
                at=rfc3339(self._clock.now_ms()),
                event=event,
                run_id=self._run_id,
                attempt=self._attempt,
                trace_id=self._trace_id,
                dry_run=self._dry_run,
                facts=self._kept(facts),
            ),
        )

    def step(self, phase: str, message: str, *, level: Level = "info", **facts: Any) -> None:
        self.phase = phase
        phase, message = self._redact(_text(phase)), self._redact(_text(message))
        log_records.begin(log_records.current()._replace(phase=phase))
        steps.log(LEVELS[level], "%s: %s", phase, message)
        self._line(
            "event_log.jsonl",
            "event-log",
            LogEvent(
                at=rfc3339(self._clock.now_ms()),
                run_id=self._run_id,
                trace_id=self._trace_id,
                phase=phase,
                level=level,
                message=message,
                facts=self._kept(facts),
            ),
        )

    def _kept(self, facts: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = within(_loggable(facts), self._redact)
        return kept

    def trace_line(self, line: bytes) -> None:
        """The sink of the publisher's trace."""
        self._write("publisher_trace.jsonl", line)

    def ledger_record(self, run: Run, documents: Mapping[str, Any], outcome: str) -> None:
        """idempotency.json: the ledger's row, and what its keys were made of."""
        if self.folder is None:
            return
        document = idempotency_document(run, documents, outcome, dry_run=self._dry_run)
        require_valid("idempotency", document)
        writer = fresh_file(self._files, f"{self.folder}/idempotency.json.tmp")
        writer.write(canonical_bytes(document) + b"\n")
        writer.close()
        self._files.rename(f"{self.folder}/idempotency.json.tmp", f"{self.folder}/idempotency.json")

    def rest(self) -> None:
        """No file stays open until the run goes on: it waits for others, which may be many."""
        for name, writer in self._open.items():
            writer.close()
            self._open[name] = _LaterLines(self._files, f"{self.folder}/{name}")

    def close(self) -> None:
        log_records.end()
        while self._open:
            self._open.popitem()[1].close()


class _LaterLines:
    """Lines for a file that was closed: they are in it once this is closed."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._lines: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._lines.append(data)

    def fsync(self) -> None:
        """Nothing is written before it is closed."""

    def close(self) -> None:
        if not self._lines:
            return
        try:
            with contextlib.closing(self._files.open(self._path)) as reader:
                before = b"".join(iter(lambda: reader.read(_READ_BYTES), b""))
            with contextlib.closing(fresh_file(self._files, self._path)) as whole:
                whole.write(before + b"".join(self._lines))
        except OSError as error:  # a copy of what the ledger knows
            logger.warning("artifacts: %s is not whole: %s", self._path, error.strerror or error)


def _text(text: str) -> str:
    """Half a surrogate pair is no text, and no strict reader would take it."""
    return text.encode("utf-8", "replace").decode()


def _loggable(value: Any) -> Any:
    """Anything as a value that every reader of JSON takes: what is none becomes its text."""
    if isinstance(value, dict):
        return {_text(str(name)): _loggable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_loggable(each) for each in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= INT_MAX:
        return int(value)
    return _text(str(value))


def fresh_file(files: Files, path: str) -> Writer:
    """A new file in the place of an older one: a folder of artifacts may be used again."""
    with contextlib.suppress(FileNotFoundError):
        files.unlink(path)
    return files.create(path)


def idempotency_document(
    run: Run, documents: Mapping[str, Any], outcome: str, *, dry_run: bool
) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "dataset_id": run.dataset_id,
        "pipeline_id": run.pipeline_id,
        "idempotency_key": run.idempotency_key,
        "work_key": run.work_key,
        "revision": run.revision,
        "trigger_type": run.trigger_type,
        "window_spec": run.window_spec,
        "window_start_utc": rfc3339(run.window_start_ms),
        "window_end_utc": rfc3339(run.window_end_ms),
        "pipeline_version": run.pipeline_version,
        "start_time_utc": rfc3339(run.start_time_ms),
        "end_time_utc": rfc3339(run.end_time_ms) if run.end_time_ms is not None else None,
        "status": run.status,
        "outcome": outcome,
        "attempts": run.attempts,
        "fence": run.fence,
        "fingerprint": run.fingerprint,
        "version_id": run.version_id,
        "error_code": run.error_code,
        "dry_run": dry_run,
        "key_documents": {name: documents[name] for name in ("trigger", "work") if name in documents},
    }


def provenance(app: LineageContext, wanted: str, *, internal: bool = False) -> bytes:
    """The PROV-O document of a run, of an invocation that never became one, or of a change of a dataset."""
    run = app.ledger.run(wanted)
    call = None if run else app.ledger.invocation(wanted)
    change = None if run or call else app.ledger.change_reader().change(wanted)
    about = run or call or change
    if about is None:
        raise UsageError(f"There is no run, call or change `{wanted}`.", remedy="`kfm runs` lists runs.")
    rights, hidden = _rights_of(app, about.dataset_id)
    key = MaskKey()
    key.value = app.ledger.mark(MASK_KEY)
    hide = key.mask if hidden and not internal else None
    make: Callable[..., dict[str, Any]] = prov_of if run else prov_of_call if call else prov_of_change
    document = make(app.ledger, wanted, mask=hide, environment=app.settings.environment, rights=rights)
    if run is not None:
        add_pass(app, document, run.run_id, hide or str)
    return prov_bytes(document)


def _rights_of(app: LineageContext, dataset_id: str) -> tuple[Rights | None, bool]:
    """Rights now, and whether the name is masked: what was published under restriction stays under it."""
    configured = app.settings.declared(dataset_id)
    head = app.ledger.head(dataset_id)
    published = DatasetSettings(id=dataset_id, rights=head[1].header.rights) if head else None
    known = [one for one in (configured, published) if one is not None]
    return (known[0].rights if known else None), not known or any(map(is_masked, known))


def leave_provenance(app: LineageContext, report: RunReport) -> None:
    """Write the document beside the artifacts of the run. It can be made again from the ledger."""
    if report.run is None or report.artifacts_dir is None:
        return
    path = f"{report.artifacts_dir}/prov.jsonld"
    with open(f"{path}.tmp", "wb") as file:
        file.write(provenance(app, report.run.run_id, internal=True))
    os.replace(f"{path}.tmp", path)
