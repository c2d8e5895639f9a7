"""Rules about what a CI job is told: its outputs lead to a whole version, its summary gives nothing away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kfm.db.ledger_reader import LedgerReader
from kfm.publish.publisher import MASKED
from tests.power import PowerCutFiles
from tests.simulation.judging import read, require

if TYPE_CHECKING:
    from tests.simulation.world import World


class JobChecks:
    def __init__(self, world: World, ledger: LedgerReader) -> None:
        self._world = world
        self._ledger = ledger
        self.appended: dict[str, bytes] = {}
        self._told: dict[tuple[str, str], int] = {}  # by file and dataset

    def on_append(self, path: str, data: bytes) -> None:
        self.appended[path] = self.appended.get(path, b"") + data
        if path.endswith("/output"):
            self._on_output(path, data.decode())
        else:
            self._on_summary(data.decode())

    def _on_output(self, path: str, text: str) -> None:
        values = _values(text)
        dataset = values["path"].split("/")[3]
        sequence = int(values["sequence"])
        require(values[f"{dataset}_path"] == values["path"], "an output is also found by its dataset")
        before = self._told.get((path, dataset), 0)
        require(
            sequence > before, "a job is told of each version once, in order", before=before, now=sequence
        )
        self._told[path, dataset] = sequence
        promotion = next(p for p in self._ledger.promotions(dataset, limit=1000) if p.sequence == sequence)
        require(promotion.version_id == values["version_id"], "the output names the version")
        files = PowerCutFiles(self._world.rng, self._world.root)
        self._world.checks.whole_folder(files, values["path"], promotion.version_id)
        manifest = json.loads(read(files, f"{values['path']}/manifest.json"))
        require(manifest["dataset_id"] == dataset, "the folder holds the dataset", path=values["path"])

    def _on_summary(self, text: str) -> None:
        restricted = [
            dataset
            for dataset in self._world.settings.datasets
            if dataset.rights is not None and dataset.rights.care.level == "restricted"
        ]
        for dataset in restricted:
            require(str(dataset.title) not in text, "a summary gives nothing away", text=text)
            require(f"{dataset.id}/w" not in text, "a summary gives no paths away", text=text)
        require(text.startswith("### ") and ("| file |" in text or "restricted" in text), "a summary is one")
        require(MASKED not in text, "a mask is escaped for Markdown", text=text)


def _values(text: str) -> dict[str, str]:
    """As a runner reads $GITHUB_OUTPUT."""
    values = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, _, delimiter = line.partition("<<")
        found = []
        for following in lines:
            if following == delimiter:
                break
            found.append(following)
        values[name] = "\n".join(found)
    return values
