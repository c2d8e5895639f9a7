"""A client of a real `kfm serve` follows a dataset: wrong, put back, withdrawn, gone, and lifted again."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.service.served import serving

pytestmark = pytest.mark.req("DAT-1", "DAT-4", "DAT-5")
TOKENS = {who: f"kfm-{who}-0123456789abcdef0123456789abcdef" for who in ("ann", "bob", "cy")}
ROLES = {"ann": "operate", "bob": "approve", "cy": "read"}
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
SOURCE = '{id: notes, dataset: levels, kind: files, folder: incoming, pattern: "{window.start:%Y-%m-%d}.csv"}'
HASHES = {who: f"sha256:{sha256(token.encode()).hexdigest()}" for who, token in TOKENS.items()}
PEOPLE = "people:\n" + "".join(
    f'  - {{subject: {who}, roles: [{ROLES[who]}], tokens: ["{HASHES[who]}"]}}\n' for who in TOKENS
)


class Clients:
    """People with tokens, at one address."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str, who: str = "cy") -> httpx.Response:
        return httpx.get(self._url + path, headers={"Authorization": f"Bearer {TOKENS[who]}"}, timeout=20)

    def change(self, path: str, query: str = "", who: str = "ann", **body: Any) -> httpx.Response:
        """Looked at, then made with the digest of that."""
        preview = self.get(f"/api/v1/datasets/levels/{path}{query}", who).json()
        return httpx.post(
            f"{self._url}/api/v1/datasets/levels/{path}",
            json={"digest": preview["plan"]["digest"], "rationale": f"{path} it is", **body},
            headers={"Authorization": f"Bearer {TOKENS[who]}", "Idempotency-Key": f"{path}{query}"},
            timeout=60,
        )


def test_a_dataset_is_followed_over_http(tmp_path: Path) -> None:
    """API, STAC, targets and commands say the same after each change, and what is gone is 410 until then."""
    project = Inside(tmp_path / "project")
    project.configure(source=SOURCE, more=PEOPLE)
    project.env["KFM_TOKEN"] = TOKENS["ann"]
    for day in DAYS:
        project.write(f"incoming/{day}.csv", f"day,level\n{day},1\n".encode())
        assert project.kfm("run", "--json", "--window", f"{day}/P1D").code == 0
    tree = project.published / "levels/current"
    with serving(project.folder, environment=[("KFM_TOKEN", TOKENS["ann"])]) as service:
        people = Clients(service.url)
        path, stac = "/api/v1/datasets/levels", "/stac/collections/levels"
        assert people.get(path).json()["version"] == 3
        item_id = people.get(f"{path}/versions/3").json()["items"][1]["item_id"]
        assert people.get(stac).status_code == 404, "it is in no catalogue of announced objects"

        done = people.change("rollback", "?to_version=2", to_version=2)
        assert (done.status_code, done.json()["receipt"]["change"]["version"]) == (200, 4), done.text
        assert len(list(tree.rglob("*.csv"))) == 2

        window = "2026-01-02/P1D"
        done = people.change("withdrawal", f"?window={window}", window=window)
        assert done.status_code == 200, done.text
        assert (
            json.loads((tree / "withdrawn.json").read_bytes())["withdrawn"][0]["reason"] == "withdrawal it is"
        )
        for where in (f"{path}/items/{item_id}", f"{stac}/items/{item_id}", f"{path}/versions/3"):
            answer = people.get(where)
            assert (answer.status_code, answer.headers["content-type"]) == (
                410,
                "application/problem+json",
            ), where
            assert answer.json()["tombstone"]["withdrawn"][0]["reason"] == "withdrawal it is"
        assert people.get(stac).status_code == 404, "something of it is still published"
        states = {one["window_start"][:10]: one["state"] for one in windows(people, path)}
        assert states == {DAYS[0]: "published", DAYS[1]: "withdrawn", DAYS[2]: states[DAYS[2]]}
        printed = project.kfm("coverage", "levels", "--json").document
        assert {one["window_start"][:10]: one["state"] for one in printed["windows"]} == states

        assert people.change("retirement").status_code == 200
        for where in (path, stac, f"{stac}/items", f"{stac}/items/{item_id}", f"{path}/versions/1"):
            answer = people.get(where)
            assert (answer.status_code, answer.json()["tombstone"]["state"]) == (410, "retired"), where
            assert answer.json()["code"] == "KFM350"

        assert people.change("lift").status_code == 200
        assert people.change("lift", f"?window={window}", window=window).status_code == 200
        assert not (tree / "withdrawn.json").exists()
        assert people.get(path).json()["state"] == "published"
        assert people.get(stac).status_code == 404
        assert people.get(f"{path}/versions/3").status_code == 200
        kinds = [one["kind"] for one in people.get("/api/v1/dataset-changes").json()["changes"]]
        assert kinds == ["lift", "lift", "retire", "withdraw", "rollback"]
        versions = people.get(f"{path}/versions").json()["versions"]
        assert versions == project.kfm("dataset", "show", "levels", "--json").document["dataset"]["versions"]
    assert project.kfm("audit", "verify", "--json").code == 0


def windows(people: Clients, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = people.get(f"{path}/coverage").json()["windows"]
    return found
