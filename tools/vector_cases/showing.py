"""Which datasets a target takes, and what an approval of one attempt is about."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec

from kfm.model.approvals import attempt_digest
from kfm.model.settings import DatasetSettings, Settings
from kfm.model.targets import reached, reached_text
from tools.vector_cases.shape import Case, Family


def _taken(given: dict[str, Any]) -> dict[str, Any]:
    settings = msgspec.convert(given["settings"], Settings)
    dataset = msgspec.convert(given["dataset"], DatasetSettings)
    found = reached(settings, settings, dataset)
    return {
        "targets": list(msgspec.to_builtins(found)),
        "text": reached_text(found),
        "attempt": attempt_digest(dataset, "sha256:1", found),
    }


def _cases() -> list[Case]:
    levels = ("public", "review", "restricted", "blocked", None)
    chosen = (["*"], ["nests"], ["nest*"], ["air"])
    care = (None, ["public"], ["restricted"])
    cases = []
    for level, datasets, limits in product(levels, chosen, care):
        name = f"{level or 'no rights'}, datasets {' '.join(datasets)}, care {' '.join(limits or ['-'])}"
        rights = level and {"license": "CC0-1.0", "care": {"label": "L", "level": level}}
        targets = [
            {"kind": "local", "path": "published", "datasets": datasets, "care": limits},
            {"kind": "noop", "name": "Also", "datasets": datasets, "care": limits},
        ]
        full = {"name": None, "path": None, "url": None, "provider": None, "options": {}}
        settings = {"publish": [full | target for target in targets]}
        dataset = msgspec.to_builtins(msgspec.convert({"id": "nests", "rights": rights}, DatasetSettings))
        cases.append(Case(name, {"settings": settings, "dataset": dataset}))
    return cases


FAMILIES = [
    Family(
        "targets",
        "The targets that take a dataset, as plans name them, and the digest of an attempt that they are bound by.",
        _taken,
        _cases(),
    )
]
