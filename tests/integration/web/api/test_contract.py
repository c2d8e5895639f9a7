"""The API against its own description: whatever is sent, the answer is one that it describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import engine
from schemathesis.engine import Status, events

from kfm.web.api.routes import api_app
from kfm.web.openapi import api_openapi
from tests.integration.web.api.world import TOKENS, World

EXAMPLES = 2  # of each operation, beside what lies at the boundaries of every schema
# A request of the right form may still ask for what is not there, or not possible.
POSSIBLE = ["2xx", "304", "401", "403", "404", "409", "422"]


def failures(world: World, who: str | None, method: str, *, boundaries: bool) -> tuple[int, list[Any]]:
    """How many requests were made, and every check that failed for one of them."""
    app = api_app(world.context, hosts=("127.0.0.1", "testserver"))
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app).include(method=method)
    config = schema.config
    config.seed = 20261116
    config.headers = {} if who is None else {"Authorization": f"Bearer {TOKENS[who]}"}
    config.generation.update(max_examples=EXAMPLES, database="none", deterministic=True)
    config.checks.positive_data_acceptance.expected_statuses = POSSIBLE
    config.phases.stateful.enabled = False
    config.phases.coverage.enabled = boundaries
    config.phases.coverage.unexpected_methods = {"options", "trace"}
    made, found = 0, []
    for event in engine.from_schema(schema).execute():
        assert not isinstance(event, events.NonFatalError | events.FatalError), event
        if not isinstance(event, events.ScenarioFinished):
            continue
        made += len(event.recorder.checks)
        for case_id, checks in event.recorder.checks.items():
            for check in checks:
                if check.status == Status.FAILURE:
                    found.append((check.name, event.recorder.cases[case_id].value, check.failure_info))
    return made, found


@pytest.mark.req("GOV-3")
@pytest.mark.parametrize(
    ("who", "method", "boundaries"),
    [
        ("ann", "GET", True),
        ("ann", "POST", True),
        ("bob", "POST", False),
        ("cy", "GET", False),
        (None, "POST", False),
    ],
)
def test_every_answer_is_described(tmp_path: Path, who: str | None, method: str, boundaries: bool) -> None:
    """No request leads to a failure of the server, nor to an answer that the description does not have."""
    world = World(tmp_path / "project").past()
    made, found = failures(world, who, method, boundaries=boundaries)
    assert not found, found[:3]
    assert made >= 10


def test_the_description_is_openapi() -> None:
    """The description is valid OpenAPI 3.1, and names nothing that is not there."""
    OpenAPIV31SpecValidator(api_openapi()).validate()


def test_the_description_says_where_it_is(tmp_path: Path) -> None:
    """A client that reads the description finds the API, under whatever prefix it is mounted."""
    assert World(tmp_path / "p").get("/openapi.json", None)["servers"] == [{"url": "/api/v1"}]
