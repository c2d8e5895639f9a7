"""The nodes of one attempt, one after the other, with the evidence that each leaves.

Opening a node closes the one before it, in the same transaction. The last one is closed by the
transaction that ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import count
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from kfm.calls.guard import classify_call
from kfm.model import keys
from kfm.model.energy import Energy, energy_of
from kfm.model.errors import KfmError, LostLease
from kfm.model.records import Found, GateResult, Invocation, Run, ValidationReport
from kfm.model.retry import Classification
from kfm.model.runs import Attempt, AttemptRecord, CallRetry, Circumstances, Ending, Step
from kfm.ports import Guard, Retrying
from kfm.runs.kernel import Kernel
from kfm.runs.observers import OwnCalls, RunObserver

T = TypeVar("T")
TRANSFORM = "transform"  # the step in which a pipeline's own code runs


class Nodes(Protocol):
    """Receives the evidence of the work under way."""

    def begin(self, node: str, inputs_hash: str | None = None) -> None: ...
    def learn(self, **facts: Any) -> None:
        """Something about the node under way, and so about the run: fields of Circumstances."""

    def validated(self, report: ValidationReport) -> None: ...
    def fetched(self, objects: int, size: int) -> None: ...
    def guard(self, call: Callable[[int], T], *, on_retry: Callable[[Retrying], None] | None = None) -> T: ...
    def own_calls(self, log_try: Callable[[str, str], None]) -> AbstractContextManager[None]:
        """Around a pipeline: its own calls are recorded, and logged with the class of their error."""


class Unrecorded:
    """Nodes of a dry-run, which leaves no evidence."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard

    def begin(self, node: str, inputs_hash: str | None = None) -> None: ...
    def learn(self, **facts: Any) -> None: ...
    def validated(self, report: ValidationReport) -> None: ...
    def fetched(self, objects: int, size: int) -> None: ...
    def own_calls(self, log_try: Callable[[str, str], None]) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()


class RecordedNodes:
    """Nodes recorded as rows of the ledger."""

    def __init__(
        self,
        kernel: Kernel,
        run: Run,
        invocation: Invocation,
        known: Circumstances,
        watch: RunObserver,
        *,
        budget_ends_ms: int,
        acts_as: str | None = None,
    ) -> None:
        # When the run's budget ends, in which its calls' waiting counts: on the monotonic clock.
        self._until_ms = kernel.clock.monotonic_ms() + budget_ends_ms - kernel.store.now_ms()
        self._kernel = kernel
        self._watch = watch
        self._ending: tuple[AttemptRecord, ...] = ()
        self._run = run
        self._invocation = invocation
        self._known = known  # about the run as a whole
        self._of_node = Circumstances()
        self._open: Attempt | None = None
        self._retries: list[CallRetry] = []
        self._calls = count(1)
        self._own: OwnCalls | None = None
        self._looking = (0, 0)  # while upstream is discovered: the call that has trouble, and its last try
        self._tried_cpu_us = 0
        self._fingerprint: str | None = None
        self._found: tuple[Found, ...] = ()
        self._inputs_hash: str | None = None
        self._validation: dict[str, int] | None = None
        self._cpu_us = self._run_cpu_us = kernel.meter.cpu_us()
        self._package_uj = self._run_package_uj = kernel.meter.package_uj()
        self._span = ExitStack()
        self._acts_as = acts_as  # what the transformation does outside, as one act

    # --- what the work says --------------------------------------------------------------

    def begin(self, node: str, inputs_hash: str | None = None) -> None:
        run, now_ms = self._run, self._kernel.store.now_ms()
        closes = self._closed(self._open, "complete", now_ms) if self._open else None
        opened = Attempt(
            run_id=run.run_id,
            attempt=run.attempts,
            node=node,
            lineage_id=keys.node_attempt_id(run.run_id, run.attempts, node),
            invocation_id=self._invocation.invocation_id,
            started_at_ms=now_ms,
            inputs_hash=inputs_hash,
            code_sha=run.pipeline_version,
        )
        step = Step(
            run=run,
            closes=closes,
            opens=AttemptRecord(attempt=opened),
            retries=tuple(self._retries),
            fingerprint=self._fingerprint,
            inputs=self._found,
            act=self._acts_as if node == TRANSFORM else None,
        )
        if not self._kernel.store.step(step):
            raise LostLease(f"Run {run.run_id} has passed to another.")
        self._open, self._of_node = opened, Circumstances()
        del self._retries[: len(step.retries)]
        self._fingerprint, self._found = None, ()
        self._cpu_us = self._kernel.meter.cpu_us()
        self._package_uj = self._kernel.meter.package_uj()
        self._span.close()
        if closes is not None:
            self._watch.ended(closes.attempt, self._invocation.trigger_type)
        self._span.enter_context(self._watch.node(run, node))
        self._kernel.progress.phase(node)

    def learn(self, **facts: Any) -> None:
        self._of_node = replace(self._of_node, **facts)
        self._known = replace(self._known, **facts)

    def decided(self, gates: tuple[GateResult, ...]) -> None:
        """The gates judge a run, not one of its nodes."""
        self._known = replace(self._known, gates=gates)

    def validated(self, report: ValidationReport) -> None:
        """Every check is recorded with the node that made it; the run carries the sum."""
        self._of_node = replace(self._of_node, report=report)
        self._validation = report.summary()

    def fetched(self, objects: int, size: int) -> None:
        self._watch.fetched(objects, size)

    def discovered(self, fingerprint: str, found: tuple[Found, ...]) -> None:
        """Kept with the next transaction, whatever becomes of the run."""
        self._fingerprint, self._found, self._inputs_hash = fingerprint, found, fingerprint
        self._looking = (0, 0)
        if self._open is not None:
            self._open = replace(self._open, inputs_hash=fingerprint)
        self.learn(inputs=found)

    def guard(self, call: Callable[[int], T], *, on_retry: Callable[[Retrying], None] | None = None) -> T:
        """The call tier, with each failed try on record."""
        kernel, tried, number = self._kernel, 0, next(self._calls)

        def record_retry(retrying: Retrying) -> None:
            nonlocal tried
            tried = retrying.attempt
            self._retried(retrying, number, self._energy(self._tried_cpu_us, None))
            if on_retry is not None:
                on_retry(retrying)

        node = self._node

        def timed(timeout_ms: int) -> T:
            began_ms, succeeded = kernel.clock.monotonic_ms(), False
            self._tried_cpu_us = kernel.meter.cpu_us()
            try:
                answer = call(timeout_ms)
                succeeded = True
            finally:
                self._watch.tried(node, kernel.clock.monotonic_ms() - began_ms, succeeded=succeeded)
            return answer

        with self._watch.call(self._run, node, number) as span:
            try:
                answer = kernel.guard(timed, on_retry=record_retry, until_ms=self._until_ms)
                span.note(outcome="success", tries=tried + 1)
                return answer
            except Exception as error:
                facts = error.facts if isinstance(error, KfmError) else {}
                kind = str(facts.get("error_class") or type(error).__name__)
                span.note(error_type=kind, tries=tried + 1)
                opened = bool(facts.get("circuit_open"))
                if tried or opened:
                    passes = classify_call(error).retryable
                    self._note(
                        number,
                        tried + 1,
                        0,
                        kind,
                        "gave-up",
                        circuit_open=opened,
                        retryable=passes or opened,
                        energy=self._energy(self._tried_cpu_us, None),
                    )
                    self._watch.gave_up(node, kind)
                raise

    @contextmanager
    def own_calls(self, log_try: Callable[[str, str], None]) -> Iterator[None]:
        kernel = self._kernel
        self._own = OwnCalls(
            self._run,
            self._node,
            watch=self._watch,
            clock=kernel.clock,
            ahead_ms=kernel.store.now_ms() - kernel.clock.monotonic_ms(),
            take_number=lambda: next(self._calls),
            note=self._note,
            log_try=log_try,
            intend=lambda name: kernel.intend(self._run, name),
        )
        with kernel.observe_calls(self._own, max(0, self._until_ms - kernel.clock.monotonic_ms())):
            yield

    def retried(self, retrying: Retrying) -> None:
        """A try failed while upstream is being discovered: there one call is made after the other."""
        call = next(self._calls) if retrying.attempt == 1 or not self._looking[0] else self._looking[0]
        self._looking = (call, retrying.attempt)
        self._retried(retrying, call)

    def _retried(self, retrying: Retrying, call: int, energy: Energy | None = None) -> None:
        kind = retrying.error_class or "unknown"
        self._note(call, retrying.attempt, retrying.delay_ms, kind, "retried", energy=energy)
        self._watch.retried(self._node, kind, retrying.delay_ms)

    def stopped_looking(self, kind: Classification, *, circuit_open: bool) -> None:
        """The run ends with this error: where discovery had trouble, or a circuit opened, that was a try."""
        call, tries = self._looking
        recorded = any(row.circuit_open for row in self._retries)
        if not call and (recorded or not circuit_open):
            return
        number = call or next(self._calls)
        self._note(
            number,
            tries + 1,
            0,
            kind.error_class,
            "gave-up",
            circuit_open=circuit_open,
            retryable=kind.retryable,
        )
        self._watch.gave_up(self._node, kind.error_class)

    @property
    def _node(self) -> str:
        return self._open.node if self._open else ""

    def _note(
        self,
        call: int,
        number: int,
        delay_ms: int,
        error_class: str,
        outcome: Any,
        *,
        circuit_open: bool = False,
        retryable: bool = True,
        at_ms: int | None = None,
        energy: Energy | None = None,
    ) -> None:
        self._retries.append(
            CallRetry(
                run_id=self._run.run_id,
                attempt=self._run.attempts,
                node=self._node,
                call=call,
                number=number,
                delay_ms=delay_ms,
                error_class=error_class,
                retryable=retryable,
                outcome=outcome,
                circuit_open=circuit_open,
                at_ms=self._kernel.store.now_ms() if at_ms is None else at_ms,
                energy=energy,
            )
        )

    # --- for the transaction that ends the run ---------------------------------------------

    def ending(self, ending: Ending, **error: Any) -> dict[str, Any]:
        """The fields that tell a Promote or Fail about the evidence."""
        now_ms = self._kernel.store.now_ms()
        closes = [self._closed(self._open, ending, now_ms, **error)] if self._open else []
        whole = Attempt(
            run_id=self._run.run_id,
            attempt=self._run.attempts,
            node="",
            lineage_id=keys.attempt_id(self._run.run_id, self._run.attempts),
            invocation_id=self._invocation.invocation_id,
            started_at_ms=self._invocation.requested_at_ms,
            ended_at_ms=now_ms,
            ending=ending,
            inputs_hash=self._inputs_hash,
            validation=self._validation,
            code_sha=self._run.pipeline_version,
            energy=self._energy(self._run_cpu_us, self._run_package_uj),
            **error,
        )
        closes.append(AttemptRecord(attempt=whole, known=self._known))
        self._ending = tuple(closes)
        return {"closes": self._ending, "retries": tuple(self._retries)}

    def payload(self) -> tuple[str | None, tuple[Found, ...]]:
        """The fingerprint of what was discovered, and what that was."""
        return self._inputs_hash, self._known.inputs

    def unsaved(self) -> dict[str, Any]:
        """What was discovered and has not been kept yet."""
        return {"fingerprint": self._fingerprint, "inputs": self._found}

    def disown(self) -> None:
        """The run is another's: how it ends is not ours to tell."""
        self._ending = ()

    def rest(self) -> None:
        """Its span ends here: the node waits for what other runs make."""
        self._span.close()

    def close(self) -> None:
        self._span.close()
        for account in self._ending:
            self._watch.ended(account.attempt, self._invocation.trigger_type)

    def _closed(self, attempt: Attempt, ending: Ending, now_ms: int, **error: Any) -> AttemptRecord:
        report = self._of_node.report
        ended = replace(
            attempt,
            ended_at_ms=now_ms,
            ending=ending,
            outcome="success" if ending == "complete" else "failed",
            validation=report.summary() if report else None,
            energy=self._energy(self._cpu_us, self._package_uj),
            **error,
        )
        return AttemptRecord(attempt=ended, known=self._of_node)

    def _energy(self, since_cpu_us: int, since_package_uj: int | None) -> Energy:
        meter = self._kernel.meter
        used_uj = None
        if since_package_uj is not None:
            now_uj = meter.package_uj()
            used_uj = now_uj - since_package_uj if now_uj is not None and now_uj >= since_package_uj else None
        return energy_of(meter.cpu_us() - since_cpu_us, self._kernel.settings.energy, used_uj)
