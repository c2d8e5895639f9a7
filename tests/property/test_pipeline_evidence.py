"""Whatever becomes of pipeline runs, each OpenLineage run has one start, and one end once another went on."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.db.outbox import Journal
from kfm.lineage.pipeline_emitter import PipelineEmitter
from kfm.pipelines.declaration import Pipeline
from tests.unit.lineage.test_pipeline_emitter import events_of
from tests.workshop import Workshop

NODES = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("new", "resume")),
        st.sampled_from(("ends", "fails", "killed", "swept")),
        st.sampled_from(NODES),
        st.booleans(),  # are the inputs other ones than before?
    ),
    min_size=1,
    max_size=7,
)


class Killed(BaseException):
    """As a SIGKILL: no code handles it."""


def pipeline(what: str, where: str, version: int) -> Pipeline:
    made = Pipeline("p")
    for name in NODES:

        def node(version: int, name: str = name) -> Any:
            if name == where and what in ("killed", "swept"):
                raise Killed
            if name == where and what == "fails":
                raise ValueError("no")
            return [name, version]

        made.node(name, params={"version": version}, version="1")(node)
    return made


class OnlyPipelines:
    def passes(self) -> PipelineEmitter:
        return PipelineEmitter(namespace="kfm", producer_version="1")


def sweep(workshop: Workshop, run_id: str) -> None:
    journal: Any = Journal(OnlyPipelines())  # type: ignore[arg-type]
    workshop.database.write(
        lambda session: journal.abandon(session, run_id, "LEASE_EXPIRED", "gone", session.now_ms())
    )


@pytest.mark.req("RS-8", "RS-9")
@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_each_lineage_run_has_one_start_and_one_end(steps: list[tuple[str, str, str, bool]]) -> None:
    """Passes that succeed, fail, are killed, are resumed, or give way to another run of the pipeline."""
    workshop = Workshop()
    run_id, version = None, 0
    for how, what, where, changed in [*steps, ("new", "ends", "a", True)]:
        version += changed
        run_id = run_id if how == "resume" else None
        kernel = workshop.kernel(emitter=PipelineEmitter(namespace="kfm", producer_version="1"))
        run_id = run_id or workshop.ids.new()
        try:
            workshop.executor(pipeline(what, where, version), kernel=kernel, run_id=run_id).run()
        except Killed:
            workshop.living.dead.add(kernel.worker_id)
            if what == "swept":  # another process finds the dead one's lock before the next pass
                sweep(workshop, run_id)
    told: dict[str, list[str]] = defaultdict(list)
    for event in events_of(workshop):
        told[event["run"]["runId"]].append(event["eventType"])
    for kinds in told.values():
        assert len(kinds) == 2
        assert kinds[0] == "START"
        assert kinds[1] in ("COMPLETE", "FAIL", "ABORT")
