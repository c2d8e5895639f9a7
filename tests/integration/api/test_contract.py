"""The API against its own description: whatever is sent, the answer is one that it describes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from openapi_spec_validator import OpenAPIV31SpecValidator

from kfm.serving.api import api_app
from kfm.serving.api.document import openapi
from tests.integration.api.world import TOKENS, World

EXAMPLES = 6
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("api") / "project").past()


@pytest.fixture(scope="module")
def described(world: World) -> Iterator[Any]:
    app = api_app(world.place, hosts=("127.0.0.1", "testserver"))
    yield schemathesis.openapi.from_asgi("/api/v1/openapi.json", app)


schema = schemathesis.pytest.from_fixture("described")


def _answered(case: schemathesis.Case, who: str | None) -> None:
    headers = {} if who is None else {"Authorization": f"Bearer {TOKENS[who]}"}
    case.call_and_validate(headers=headers)


@pytest.mark.req("GOV-3")
@schema.parametrize()
@BOUNDED
def test_every_answer_to_an_operator_is_described(case: schemathesis.Case) -> None:
    """No request leads to a failure of the server, nor to an answer that the description does not have."""
    _answered(case, "ann")


@schema.parametrize()
@BOUNDED
def test_every_answer_to_a_reader_is_described(case: schemathesis.Case) -> None:
    """Whoever may only read is answered as described, whatever he sends."""
    _answered(case, "cy")


@schema.parametrize()
@BOUNDED
def test_every_answer_to_a_stranger_is_described(case: schemathesis.Case) -> None:
    """A stranger is answered as described, whatever he sends."""
    _answered(case, None)


def test_the_description_is_openapi() -> None:
    """The description is valid OpenAPI 3.1, and names nothing that is not there."""
    OpenAPIV31SpecValidator(openapi()).validate()


def test_a_place_of_its_own(tmp_path: Path) -> None:
    """The description says where the API is, under whatever prefix it is mounted."""
    assert World(tmp_path / "p").get("/openapi.json", None)["servers"] == [{"url": "/api/v1"}]
