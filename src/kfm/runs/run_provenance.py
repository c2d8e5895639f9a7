"""Provenance of a run: the PROV-O document, from the ledger and from the run-state of its nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kfm.lineage.collectors import MaskKey
from kfm.lineage.provenance import prov_bytes, prov_of, prov_of_call
from kfm.model.errors import UsageError
from kfm.model.redaction import MASK_KEY, is_masked
from kfm.model.settings import DatasetSettings, Rights
from kfm.pipelines.evidence import add_pass

if TYPE_CHECKING:
    from kfm.lineage.collectors import LineageContext
    from kfm.runs.kernel import RunReport


def provenance(app: LineageContext, wanted: str, *, internal: bool = False) -> bytes:
    """The PROV-O document of a run, or of a call that never became one."""
    run = app.ledger.run(wanted)
    call = None if run else app.ledger.invocation(wanted)
    about = run or call
    if about is None:
        raise UsageError(f"There is no run and no call `{wanted}`.", remedy="`kfm runs` lists runs.")
    rights, hidden = _rights_of(app, about.dataset_id)
    key = MaskKey()
    key.value = app.ledger.mark(MASK_KEY)
    hide = key.mask if hidden and not internal else None
    make = prov_of if run else prov_of_call
    document = make(app.ledger, wanted, mask=hide, environment=app.settings.environment, rights=rights)
    if run is not None:
        add_pass(app, document, run.run_id, hide or str)
    return prov_bytes(document)


def _rights_of(app: LineageContext, dataset_id: str) -> tuple[Rights | None, bool]:
    """Rights now, and whether the name is masked: what was published under restriction stays under it."""
    configured = app.settings.declared(dataset_id)
    head = app.ledger.head(dataset_id)
    published = DatasetSettings(id=dataset_id, rights=head[1].rights) if head else None
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
