"""A renamed dataset over HTTP: every name finds it, an earlier one is answered with the new, masks hide
both."""

from __future__ import annotations

from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from kfm.config.loader import load
from kfm.datasets.changes import apply, plan_rename
from kfm.model.records import Justification
from kfm.runs.purges import scopes_of
from kfm.web.api.components import component_ref
from kfm.web.api.routes import api_app
from kfm.web.openapi import api_openapi
from kfm.web.request_context import WebContext
from tests.integration.web.api.world import World

pytestmark = pytest.mark.req("DAT-5")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The dataset `rivers` was renamed to `streams`; `burials` is to be called `graves`."""
    made = World(tmp_path_factory.mktemp("renamed") / "project").past()
    path = Path(made.folder / "kfm.yml")
    text = path.read_text().replace("id: rivers", "id: streams\n    formerly: [rivers]")
    path.write_text(text.replace("id: burials", "id: graves\n    formerly: [burials]"))
    made.loaded = load(str(path))
    app = made.opened()
    try:
        prepared = plan_rename(app.kernel, "rivers", "streams")
        by = Justification(actor="ann", rationale="The name of the catalogue.")
        apply(app.kernel, prepared, by, scopes_of(app.kernel, "rivers"))
    finally:
        app.close()
    made.context = WebContext(made.loaded)
    made.app = api_app(made.context)
    return made


def test_a_list_has_the_name_that_readers_know(world: World) -> None:
    """The id stays, the name is the present one."""
    found = world.get("/datasets")["datasets"]
    assert [(one["dataset_id"], one["name"]) for one in found if one["dataset_id"] == "rivers"] == [
        ("rivers", "streams")
    ]


@pytest.mark.parametrize(("name", "renamed_to"), [("rivers", "streams"), ("streams", None)])
def test_an_earlier_name_is_answered_with_the_new_one(
    world: World, name: str, renamed_to: str | None
) -> None:
    """Both give the same document, valid by its schema; only the earlier one names the other."""
    found = world.get(f"/datasets/{name}/coverage")
    assert (found["dataset_id"], found["renamed_to"]) == ("rivers", renamed_to)
    document = api_openapi("")
    schema = {**component_ref("coverage"), "components": document["components"]}
    jsonschema_rs.validator_for(schema).validate(found)
    assert len(world.get(f"/runs?dataset={name}")["runs"]) == 2
    assert world.get(f"/explain/{name}")["kind"] == "dataset"
    paused = world.change(f"/switches/dataset:{name}", position="running", rationale="It may go on.")
    assert paused.status_code == 200, paused.text
    assert paused.json()["switch"]["scope"] == "dataset:rivers", "a switch is about the dataset"


def test_no_name_of_a_masked_dataset_is_told(world: World) -> None:
    """Neither the earlier nor the new name reaches a reader, and neither is found by guessing."""
    text = msgspec.json.encode(world.get("/datasets", "cy")).decode()
    assert "burials" not in text
    assert "graves" not in text
    for name in ("burials", "graves", "nothing"):
        assert world.ask("GET", f"/datasets/{name}/coverage", "cy").status_code == 404
