"""Where `kfm.run_state` meets a store: opens it, settles one node, and closes it."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from kfm.core.errors import Busy, Cancelled, LostLease, PipelineFailed
from kfm.core.run_states import node_scope, outputs_of
from kfm.engine.passes import NodeReport, PassKernel, Wish
from kfm.engine.single import Lone, Single
from kfm.engine.working import Alone, Bench
from kfm.runs.values import handed_on
from kfm.runs.wrapping import Request, Settled
from kfm.wiring.passes import Place, open_place

POLL_MS_FIRST = 10
POLL_MS_MAX = 500
LOG = logging.getLogger("kfm.run_state")


def settle(request: Request) -> Settled:
    options = request.options
    with open_place(options.directory, options.config) as place:
        run_id = options.run_id() if callable(options.run_id) else options.run_id
        wish = Wish(
            run_id=run_id or place.ids.new(),
            pipeline_id=options.pipeline or request.spec.id,
            branch=options.branch,
            scope=node_scope(request.spec.id, options.branch),
            jobs=1,
            force=(request.spec.id,) if options.force else (),
        )
        lone = Lone(
            spec=request.spec,
            code=request.code,
            pipeline_id=wish.pipeline_id,
            graph=options.graph,
            skip_scope=options.skip_scope,
            reads_run=run_id is not None,
        )
        try:
            report = _settled(place, lone, wish, options.wait_s)
        except (PipelineFailed, Cancelled) as error:
            if error.__cause__ is not None:  # the callable's own: its caller knows what to do with it
                raise error.__cause__ from None
            raise
        return Settled(
            value=handed_on(outputs_of(report.outputs), place.objects),
            ran=report.ran,
            outcome=str(report.outcome),
            reason=report.reason,
            run_id=wish.run_id,
            made_by=report.made_by or wish.run_id,
            inputs_hash=report.inputs_hash,
        )


def _settled(place: Place, lone: Lone, wish: Wish, wait_s: float) -> NodeReport:
    """Once nobody else is at it; what that one did is then found done."""
    deadline_ms = place.clock.monotonic_ms() + int(wait_s * 1000)
    delay_ms = POLL_MS_FIRST
    while True:
        try:
            return Single(_kernel(place), lone, wish).settle()
        except Busy as busy:
            if isinstance(busy, LostLease) or place.clock.monotonic_ms() + delay_ms > deadline_ms:
                raise
        place.clock.sleep_ms(delay_ms)
        delay_ms = min(delay_ms * 2, POLL_MS_MAX)


def _kernel(place: Place) -> PassKernel:
    kernel = place.kernel(lambda _report: None, _log)
    bench = Bench(place.objects, place.files, place.clock, _log)
    return replace(kernel, workers=lambda _jobs: Alone(bench))


def _log(node: str, line: str) -> None:
    LOG.info("%s: %s", node, line)
