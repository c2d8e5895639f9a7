"""Collecting: nothing goes that a branch or a tag reaches, or that is young."""

from __future__ import annotations

import random

import pytest

from kfm.model.branches import Swept
from kfm.model.errors import RefNotFound
from tests.conformance.branches.scene import WHY, Scene, entry

pytestmark = pytest.mark.req("RS-5")

NOW = Swept(commits=0, trees=0)


@pytest.fixture(autouse=True)
def _garbage_is_ours(scene: Scene) -> None:
    scene.needs("garbage")


def later(scene: Scene) -> int:
    """A moment when all that is there is old."""
    return scene.store.now_ms() + 10_000


def test_what_a_deleted_branch_had_goes(scene: Scene) -> None:
    """Its own commits and trees, and the objects that only they named; not what others share."""
    scene.begin(a="1")
    lost = scene.put("side", b="2")
    scene.branches.delete("side", why=WHY)
    assert entry("2").sha256 in set(scene.branches.objects_kept(0))
    old = later(scene)
    assert set(scene.branches.objects_kept(old)) == {entry("1").sha256}
    assert scene.branches.garbage(old) == Swept(commits=1, trees=1)
    assert scene.branches.sweep(old) == Swept(commits=1, trees=1)
    assert scene.branches.garbage(old) == NOW
    with pytest.raises(RefNotFound):
        scene.branches.resolve(lost.commit_id)
    assert scene.shows("main", a="1")


def test_what_is_young_stays_with_all_that_it_came_from(scene: Scene) -> None:
    """Within the grace time a deleted branch can be made again, objects and all."""
    scene.begin(a="1")
    scene.put("side", b="2")
    kept = scene.put("side", b="3")
    scene.branches.delete("side", why=WHY)
    assert scene.branches.sweep(1) == NOW
    assert {entry(text).sha256 for text in "123"} == set(scene.branches.objects_kept(1))
    scene.branches.create("side", kept.commit_id)
    assert scene.shows("side~1", a="1", b="2")


def test_a_tag_and_a_merge_keep_what_they_reach(scene: Scene) -> None:
    """All parents count, and all that came before a tag."""
    scene.begin(a="1")
    scene.put("side", b="1")
    scene.put("side", b="2")
    scene.merge("side")
    scene.put("main", b="3")
    scene.branches.create("tagged", "main")
    scene.put("tagged", c="1")
    scene.put("tagged", c="2")
    scene.branches.tag("v1", "tagged", message="", author="ada")
    scene.branches.delete("side", why=WHY)
    scene.branches.delete("tagged", why=WHY)
    assert scene.branches.sweep(later(scene)) == NOW
    assert {path for path, _ in scene.branches.entries("v1~1")} == {"a", "b", "c"}
    needed = {entry(text).sha256 for text in "123"}
    assert needed <= set(scene.branches.objects_kept(later(scene)))


def test_a_tree_that_is_stored_again_is_young_again(scene: Scene) -> None:
    """Content that comes back finds its bodies, also if a sweep had looked at them before."""
    scene.begin(a="1")
    scene.put("side", b="2")
    scene.branches.delete("side", why=WHY)
    old = later(scene)
    scene.put("main", b="2")
    scene.branches.sweep(old)
    assert scene.shows("main", a="1", b="2")


def test_random_histories_lose_nothing(scene: Scene) -> None:
    """After any mixture of commits, merges, deletions and sweeps every ref still reads whole."""
    chance = random.Random(7)
    scene.branches.create("main")
    known: dict[str, dict[str, str]] = {"main": {}}
    for step in range(60):
        name = chance.choice(sorted(known))
        action = chance.random()
        if action < 0.5:
            path, text = f"p{chance.randrange(30)}", str(chance.randrange(5))
            scene.put(name, **{path: text})
            known[name] = known[name] | {path: text}
        elif action < 0.7:
            scene.branches.create(f"b{step}", name)
            known[f"b{step}"] = dict(known[name])
        elif action < 0.85 and len(known) > 1 and name != "main":
            scene.branches.delete(name, why=WHY)
            del known[name]
        else:
            scene.branches.sweep(later(scene))
    scene.branches.sweep(later(scene))
    for name, contents in known.items():
        assert scene.shows(name, **contents)
        for commit in scene.branches.log(name, limit=1000, first_parent=False):
            assert list(scene.branches.entries(commit.commit_id)) is not None
    assert scene.branches.garbage(later(scene)) == NOW
