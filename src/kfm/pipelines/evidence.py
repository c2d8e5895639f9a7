"""Evidence of pipeline runs: the lineage emitter, its collector, and public names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kfm import __version__
from kfm.lineage.collectors import MaskKey, deliver, make_pipeline_emitter, public_names
from kfm.model.errors import KfmError
from kfm.model.redaction import MASK_KEY, mask
from kfm.system import ProcessMeter
from kfm.telemetry.exporter import configured

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.config.loader import Loaded
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader
    from kfm.lineage.pipeline_emitter import PipelineEmitter
    from kfm.model.settings import Settings
    from kfm.pipelines.project import PipelineProject
    from kfm.ports import Clock, Ids, Telemetry

UNCONFIGURED = "kfm.yml"  # what the configuration would be called, if there were one

logger = logging.getLogger(__name__)


class ProjectEvidence:
    """Evidence of the pipeline runs of one project, and its delivery once they are done."""

    def __init__(
        self,
        loaded: Loaded | None,
        root: str,
        state: str,
        store: Ledger,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self.loaded = loaded or _unconfigured(root)
        self.settings = self.loaded.settings
        self.state = state
        self.clock = clock
        self.store: Ledger | None = store
        self.ledger: LedgerReader = store
        self._key = MaskKey()
        self._key.take(store, self.settings, lambda: ids.new() + ids.new())
        self.emitter = make_pipeline_emitter(self.loaded, self._key)
        self.public_name = public_names(self.settings, self._key.mask)
        self.telemetry = configured(self.loaded, ids.new)

    def fields(self) -> dict[str, Any]:
        """Fields of a `PipelineKernel`."""
        return _fields(self.settings, self.emitter, self.telemetry, self.public_name)

    def hand_over(self) -> None:
        """Send what waits, for a bounded time. Nothing of this may change how the work ended."""
        self.telemetry.close()
        if self.emitter is None:
            return
        try:
            trouble = deliver(self).trouble
        except (KfmError, OSError) as error:
            trouble = str(error)
        if trouble:
            logger.warning("lineage: %s; `kfm lineage deliver` sends what waits", trouble)


def governed_evidence(app: App) -> dict[str, Any]:
    """Fields of the `PipelineKernel` of a governed run: its nodes' evidence goes where the run's own goes."""
    key = MaskKey()
    key.value = app.ledger.mark(MASK_KEY)
    names = public_names(app.settings, key.mask)
    return _fields(app.settings, make_pipeline_emitter(app.loaded, key), app.telemetry, names)


def _fields(
    settings: Settings,
    emitter: PipelineEmitter | None,
    telemetry: Telemetry,
    public_name: Callable[[str], str],
) -> dict[str, Any]:
    return {
        "emitter": emitter,
        "telemetry": telemetry,
        "public_name": public_name,
        "meter": ProcessMeter(),
        "energy": settings.energy,
    }


def pass_provenance(project: PipelineProject, wanted: str, *, internal: bool = False) -> bytes | None:
    """The PROV-O document of a pipeline run of its own; None if there is none of that id."""
    from kfm.lineage.pipeline_provenance import pass_document
    from kfm.lineage.provenance import written

    tables = project.tables
    found = tables.get(wanted)
    if found is None:
        return None
    public: Callable[[str], str] = str
    if project.loaded is not None and not internal:
        key = project.store.mark(MASK_KEY)
        public = public_names(project.loaded.settings, lambda name: mask(name, key))
    nodes = tables.of_run(found.run_id)
    return written(pass_document(found, nodes, tables.document, producer=__version__, public=public))


def add_pass(app: Any, document: dict[str, Any], run_id: str, public: Callable[[str], str]) -> None:
    """What the nodes of a governed run add to its document, where it has any."""
    from kfm.db.run_state import RunStateTables

    found = RunStateTables(app.ledger.database).get(run_id)
    if found is None:
        return
    from kfm.lineage.pipeline_provenance import pass_things
    from kfm.pipelines.run_state_store import read_run_states

    tables = read_run_states(app)
    graph = document["@graph"]
    graph += pass_things(
        found,
        tables.of_run(run_id),
        tables.document,
        {thing["@id"] for thing in graph},
        producer=__version__,
        public=public,
    )


def _unconfigured(root: str) -> Loaded:
    """The default settings, for a folder without a configuration."""
    from kfm.config.loader import Loaded
    from kfm.model.settings import Settings

    return Loaded(Settings(), f"{root}/{UNCONFIGURED}", UNCONFIGURED, {}, {})
