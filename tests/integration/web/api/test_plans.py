"""Plans over the API: each answer has the shape that is described, from the preview to the last receipt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from kfm.web.api.components import component_ref
from kfm.web.api.operation_table import OPERATIONS
from kfm.web.api.routes import api_app
from kfm.web.openapi import api_openapi
from tests.integration.web.api.world import BASE
from tests.integration.web.plans_world import TOKENS, PlansWorld

BY_NAME = {one.name: one for one in OPERATIONS}


def _asked(world: PlansWorld, name: str, query: str = "", *, body: Any = None, **ids: str) -> Any:
    """The answer of an operation, which has its shape."""
    operation = BY_NAME[name]
    path = f"{BASE}{operation.shown_path.format(**ids)}{query}"

    async def answered() -> httpx.Response:
        transport = httpx.ASGITransport(api_app(world.context))
        bearer = {"Authorization": f"Bearer {TOKENS['ann']}"}
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=bearer) as client:
            return await client.request(operation.method, path, json=body)

    answer = asyncio.run(answered())
    assert answer.status_code in (200, 201, 202), answer.text
    schema = {**api_openapi(), **component_ref(operation.answer)}
    jsonschema_rs.validator_for(schema, validate_formats=True).validate(answer.json())
    return answer.json()


@pytest.mark.req("WAL-13")
def test_a_replay_from_its_preview_to_its_receipts(tmp_path: Path) -> None:
    """What was previewed is kept under its digest, carried out, and told unit by unit, page by page."""
    world = PlansWorld(tmp_path / "project")
    units = world.given_up(1, 2, 3)
    shown = _asked(world, "previewReplay", "?datasets=mrms")
    first = _asked(world, "selectUnits", "?datasets=mrms&limit=2")
    rest = _asked(world, "selectUnits", f"?datasets=mrms&limit=2&cursor={first['next']}")
    assert sorted(one["wal_id"] for one in (*first["units"], *rest["units"])) == units
    assert rest["next"] is None
    meant = {"datasets": ["mrms"], "digest": shown["digest"], "rationale": "the bucket is back"}
    kept = _asked(world, "planReplay", body=meant)["replay"]["replay_id"]
    _asked(world, "runReplay", replay_id=kept, body={"rationale": "the bucket is back"})
    while world.carried_on():
        pass
    told = _asked(world, "showReplay", replay_id=kept)
    assert sorted(one["wal_id"] for one in told["receipts"]) == units
    assert [one["plan_id"] for one in _asked(world, "listPlans")["plans"]] == [kept]
    assert len(_asked(world, "listReplays")["replays"]) == 1


def test_missing_windows_from_their_preview_to_their_requests(tmp_path: Path) -> None:
    """The list that was shown is asked for by its digest, and each window leads to its request."""
    world = PlansWorld(tmp_path / "project")
    shown = _asked(world, "previewMissing", "?dataset=lakes")
    meant = {"dataset": "lakes", "digest": shown["digest"], "rationale": "the gauge was away"}
    _asked(world, "askForMissing", body=meant)
    (plan,) = _asked(world, "listPlans")["plans"]
    windows = _asked(world, "showPlan", plan_id=plan["plan_id"])["windows"]
    assert len(windows) == plan["entries"] > 0
    assert all(one["request_id"] for one in windows)
