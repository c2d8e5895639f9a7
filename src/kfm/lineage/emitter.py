"""The witness that the store asks inside its transactions, and one that has nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kfm.lineage.events import ENDINGS, EventType, Name, Scribe
from kfm.lineage.facets import Facets
from kfm.lineage.masking import Mask, veiled, veiled_attempt, veiled_call, veiled_run
from kfm.model.attempts import Attempt, Circumstances, Testimony
from kfm.model.canonical import INT_MAX, canonical_bytes
from kfm.model.errors import UnhashableInput
from kfm.model.keys import turned_away_id, uuid5
from kfm.model.records import Invocation, Run

if TYPE_CHECKING:
    from kfm.ports import PassWitness

TOPIC = "openlineage"


class LineageWitness:
    """Testifies in OpenLineage's words. Pure: the same facts make the same bytes."""

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
        passes: Callable[[], PassWitness | None] = lambda: None,
    ) -> None:
        """`outputs` names a dataset's homes; `masked` tells whether it must not be named at all;
        relative paths are seen from `folder`; `hide` takes the secrets out that this process knows;
        `check` raises at a start that is not valid. Ends are not checked: an attempt must be closed
        whatever is wrong with its words. `passes` gives the witness of passes, for those that nobody
        else will end."""
        self.passes = passes
        self._scribe = Scribe(
            namespace, Facets(f"urn:kfm:producer:{producer_version}", producer_version), outputs, folder
        )
        self._masked = masked
        self._mask: Mask = lambda text: mask(writable(text))
        self._hide = hide
        self._check = check

    def started(self, attempt: Attempt, run: Run, known: Circumstances) -> Testimony:
        return self._attempt("START", attempt, run, known)

    def ended(self, attempt: Attempt, run: Run, known: Circumstances) -> Testimony | None:
        return None if attempt.ending is None else self._attempt(ENDINGS[attempt.ending], attempt, run, known)

    def turned_away(self, invocation: Invocation, known: Circumstances, at_ms: int) -> tuple[Testimony, ...]:
        if invocation.outcome not in ("refused", "failed"):
            return ()
        lineage_id = turned_away_id(invocation.invocation_id)
        subject = invocation.run_id or invocation.invocation_id
        if self._masked(invocation.dataset_id):
            known, invocation = veiled(known, self._mask), veiled_call(invocation, self._mask)
        end: EventType = "ABORT" if invocation.outcome == "refused" else "FAIL"
        asked_ms = min(invocation.requested_at_ms, at_ms)
        start = self._scribe.call("START", lineage_id, invocation, Circumstances(), asked_ms)
        over = self._scribe.call(end, lineage_id, invocation, known, at_ms)
        return (
            self._sealed("START", lineage_id, subject, start),
            self._sealed(end, lineage_id, subject, over),
        )

    def _attempt(self, kind: EventType, attempt: Attempt, run: Run, known: Circumstances) -> Testimony:
        mask = self._mask if self._masked(run.dataset_id) else None
        if mask is not None:
            attempt, run, known = veiled_attempt(attempt), veiled_run(run, mask), veiled(known, mask)
        event = self._scribe.attempt(kind, attempt, run, known, mask)
        if kind == "START":
            self._check(event)
        return self._sealed(kind, attempt.lineage_id, run.run_id, event)

    def _sealed(self, kind: EventType, lineage_id: str, subject: str, event: dict[str, Any]) -> Testimony:
        body = canonical_text(event, self._hide)
        return Testimony(event_id=uuid5(lineage_id, kind), topic=TOPIC, subject=subject, body=body)


class SilentWitness:
    """For those who want no lineage."""

    def passes(self) -> None: ...
    def started(self, attempt: Attempt, run: Run, known: Circumstances) -> None: ...
    def ended(self, attempt: Attempt, run: Run, known: Circumstances) -> None: ...
    def turned_away(
        self,
        invocation: Invocation,  # noqa: ARG002
        known: Circumstances,  # noqa: ARG002
        at_ms: int,  # noqa: ARG002
    ) -> tuple[Testimony, ...]:
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
