"""Our events, checked with the schemas that OpenLineage publishes. Skipped where they are not at hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
import pytest

from kfm.lineage.facets import PUBLIC, PUBLIC_SCHEMAS
from kfm.lineage.pipeline_emitter import ENDINGS
from kfm.model.run_state import PassEnd
from kfm.model.runs import Circumstances
from tests.unit.lineage.samples import (
    START_MS,
    attempt,
    changes,
    emitter,
    ended,
    event,
    everything,
    found,
    invocation,
    report,
    run,
    specs,
)
from tests.unit.lineage.test_pipeline_emitter import HASH, about, done, made_object, spoken
from tests.unit.lineage.test_unit_events import VARIETIES, builder, events

FOLDER = specs()
pytestmark = pytest.mark.skipif(
    FOLDER is None, reason="the public OpenLineage schemas are not at hand (KFM_SPECS names their folder)"
)


def _varieties() -> Iterator[dict[str, Any]]:
    for said in (emitter(), emitter(masked=lambda _: True, mask=lambda _: "masked-0123456789ab")):
        for node in ("", "fetch", "validate", "publish"):
            yield event(said.started(attempt(node), run(), everything()))
            yield event(said.started(attempt(node), run(), Circumstances()))
            for ending in ("complete", "fail", "abort"):
                yield event(said.ended(ended(ending, node), run(), everything()))
                yield event(said.ended(ended(ending, node), run(), Circumstances()))
            yield event(said.ended(ended("fail", node), run(), Circumstances(report=report(failed=3))))
        many = everything(inputs=tuple(map(found, range(600))))
        yield event(said.ended(ended("complete"), run(), many))
        for outcome in ("refused", "failed"):
            call = invocation(outcome=outcome, reason="No.", run_id=None)
            yield from map(event, said.refused(call, everything(), START_MS))
        yield from (event(one) for told in changes() for one in said.changed(told))
    yield from _of_passes()
    masking = builder(masked=lambda _: True, mask=lambda _: "masked-0123456789ab")
    for told in VARIETIES.values():
        yield from events(told)
        yield from events(told, by=masking)


def _of_passes() -> Iterator[dict[str, Any]]:
    for said in (spoken(), spoken(masked=lambda _: True, mask=lambda _: "masked-0123456789ab")):
        yield from map(event, said.began(about(attempt=2), [(about(), "WORKER_DIED")]))
        document = {"inputs": [{"id": "soil.raw", "checksum": HASH}, {"uri": "s3://b/k", "etag": "e"}]}
        for outcome in ("success", "failed", "partial"):
            yield from map(
                event, said.did(about(), done(document, outcome=outcome, outputs=(made_object(),)))
            )
        for state in ENDINGS:
            end = PassEnd(state, START_MS, {"skipped": 2}, ["a", "b"], ["c"])  # type: ignore[arg-type]
            yield from map(event, said.ended(about(), end))


@cache
def _validators() -> tuple[Any, dict[str, Any]]:
    """One for events, and one for each standard facet, with no way to the network."""
    assert FOLDER is not None
    documents = {
        document["$id"]: document
        for path in (FOLDER / "OpenLineage.json", *sorted((FOLDER / "facets").glob("*.json")))
        for document in [json.loads(path.read_text(encoding="utf-8"))]
    }
    registry = jsonschema_rs.Registry(list(documents.items()))

    def validator(reference: str) -> Any:
        assert reference.partition("#")[0] in documents, f"{reference} is not the version that is at hand"
        return jsonschema_rs.Draft202012Validator(
            {"$ref": reference}, registry=registry, validate_formats=True
        )

    run_event = next(address for address in documents if address.endswith("/OpenLineage.json"))
    return validator(f"{run_event}#/$defs/RunEvent"), {
        name: validator(f"{PUBLIC}/{where}") for name, where in PUBLIC_SCHEMAS.items()
    }


def _facets(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from document["run"]["facets"].items()
    yield from document["job"]["facets"].items()
    for dataset in document["inputs"] + document["outputs"]:
        for kind in ("facets", "inputFacets", "outputFacets"):
            yield from dataset.get(kind, {}).items()


@pytest.mark.req("UPD-15", "TRG-8")
def test_every_variety_of_event_follows_the_public_schemas() -> None:
    """Each event is an OpenLineage RunEvent, and each standard facet follows its own schema."""
    whole, standard = _validators()
    met = set()
    for document in _varieties():
        whole.validate(document)
        for name, facet in _facets(document):
            if name in standard:
                standard[name].validate(facet)
                assert facet["_schemaURL"] == f"{PUBLIC}/{PUBLIC_SCHEMAS[name]}"
            else:
                assert name.startswith("kfm")
            met.add(name)
    assert met >= PUBLIC_SCHEMAS.keys()


def test_the_schemas_would_notice() -> None:
    """A facet that lacks a member, and a run without an id, are found."""
    whole, standard = _validators()
    document = event(emitter().started(attempt(), run(), Circumstances()))
    del document["run"]["runId"]
    assert not whole.is_valid(document)
    facet = document["run"]["facets"]["parent"]
    del facet["job"]
    assert not standard["parent"].is_valid(facet)
