"""The lineage emitter that the ledger calls inside its transactions, and one that emits nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kfm.lineage.events import ENDINGS, EventType, Name, RunEventBuilder
from kfm.lineage.facets import Facets
from kfm.lineage.masking import Mask, masked_attempt, masked_circumstances, masked_invocation, masked_run
from kfm.model.attempts import Attempt, Circumstances, LineageEvent
from kfm.model.canonical import INT_MAX, canonical_bytes
from kfm.model.errors import UnhashableInput
from kfm.model.keys import refused_call_id, uuid5
from kfm.model.records import Invocation, Run

if TYPE_CHECKING:
    from kfm.lineage.pipeline_emitter import PipelineEmitter

TOPIC = "openlineage"


class LineageEmitter:
    """Makes OpenLineage events of attempts and calls. Pure: the same facts make the same bytes."""

    def __init__(
        self,
        *,
        namespace: str,
        producer_version: str,
        outputs: Callable[[str], Sequence[Name]] = lambda _dataset_id: (),
        masked: Callable[[str], bool] = lambda _dataset_id: False,
        mask: Callable[[str], str] = lambda text: text,
        folder: str = "",
        hide: Callable[[str], str] = lambda text: text,
        check: Callable[[dict[str, Any]], None] = lambda _event: None,
        passes: Callable[[], PipelineEmitter | None] = lambda: None,
    ) -> None:
        """`outputs` names a dataset's locations; `masked` is true for one that must not be named at all;
        relative paths are resolved against `folder`; `hide` redacts the secrets that this process knows;
        `check` raises at a start that is not valid. Ends are not checked: an attempt must be closed
        even if its event is not valid. `passes` gives the emitter of pipeline runs, for those whose
        process is gone."""
        self.passes = passes
        self._builder = RunEventBuilder(
            namespace, Facets(f"urn:kfm:producer:{producer_version}", producer_version), outputs, folder
        )
        self._masked = masked
        self._mask: Mask = lambda text: mask(writable(text))
        self._hide = hide
        self._check = check

    def started(self, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent:
        return self._attempt("START", attempt, run, known)

    def ended(self, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent | None:
        return None if attempt.ending is None else self._attempt(ENDINGS[attempt.ending], attempt, run, known)

    def refused(self, invocation: Invocation, known: Circumstances, at_ms: int) -> tuple[LineageEvent, ...]:
        if invocation.outcome not in ("refused", "failed"):
            return ()
        lineage_id = refused_call_id(invocation.invocation_id)
        subject = invocation.run_id or invocation.invocation_id
        if self._masked(invocation.dataset_id):
            known = masked_circumstances(known, self._mask)
            invocation = masked_invocation(invocation, self._mask)
        end: EventType = "ABORT" if invocation.outcome == "refused" else "FAIL"
        asked_ms = min(invocation.requested_at_ms, at_ms)
        start = self._builder.call("START", lineage_id, invocation, Circumstances(), asked_ms)
        over = self._builder.call(end, lineage_id, invocation, known, at_ms)
        return (
            self._sealed("START", lineage_id, subject, start),
            self._sealed(end, lineage_id, subject, over),
        )

    def _attempt(self, kind: EventType, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent:
        mask = self._mask if self._masked(run.dataset_id) else None
        if mask is not None:
            attempt, run = masked_attempt(attempt), masked_run(run, mask)
            known = masked_circumstances(known, mask)
        event = self._builder.attempt(kind, attempt, run, known, mask)
        if kind == "START":
            self._check(event)
        return self._sealed(kind, attempt.lineage_id, run.run_id, event)

    def _sealed(self, kind: EventType, lineage_id: str, subject: str, event: dict[str, Any]) -> LineageEvent:
        body = canonical_text(event, self._hide)
        return LineageEvent(event_id=uuid5(lineage_id, kind), topic=TOPIC, subject=subject, body=body)


class NullEmitter:
    """Emits nothing: lineage is switched off."""

    def passes(self) -> None: ...
    def started(self, attempt: Attempt, run: Run, known: Circumstances) -> None: ...
    def ended(self, attempt: Attempt, run: Run, known: Circumstances) -> None: ...
    def refused(
        self,
        invocation: Invocation,  # noqa: ARG002
        known: Circumstances,  # noqa: ARG002
        at_ms: int,  # noqa: ARG002
    ) -> tuple[LineageEvent, ...]:
        return ()


def canonical_text(event: dict[str, Any], hide: Callable[[str], str]) -> str:
    body = _body(event)
    if hide(body) != body:  # looked for in one go; masked in each text, so that it stays JSON
        from kfm.model.redaction import within  # late: few know a secret

        body = _body(within(event, hide))
    return body


def _body(event: dict[str, Any]) -> str:
    try:
        return canonical_bytes(event).decode("utf-8")
    except UnhashableInput:
        # A file's name may hold bytes that are no text: that must not cost a run its evidence.
        return canonical_bytes(writable(event)).decode("utf-8")


def writable(value: Any) -> Any:
    """A copy that has a canonical form: half characters replaced, numbers kept within their range."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {writable(name): writable(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [writable(member) for member in value]
    if type(value) is int:
        return min(max(value, -INT_MAX), INT_MAX)
    return value
