"""Several at once: each head has exactly one successor, and the others get the conflict."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kfm.db.ledger import Ledger
from kfm.model.branches import Commit, Moved, NewCommit
from kfm.model.errors import RefNotFound
from tests.conformance.branches.scene import WHY, Scene, entry

pytestmark = pytest.mark.req("RS-5")

COMMITS = 12


def test_two_committers_never_share_a_head(scene: Scene, open_branches: Callable[[], Any]) -> None:
    """Every acknowledged commit is in the branch's line, and every loser wrote nothing."""
    base = scene.start().head
    acknowledged: list[Commit] = []
    refused: list[Moved] = []
    start = threading.Barrier(2)

    def work(name: str) -> None:
        branches = open_branches()
        start.wait()
        done = 0
        while done < COMMITS:
            head = branches.resolve("main").commit_id
            answer = branches.commit(
                NewCommit(
                    "main",
                    {f"{name}/{done}": entry(name)},
                    message=f"{name} {done}",
                    author=name,
                    expected=head,
                )
            )
            if isinstance(answer, Moved):
                assert answer.expected == head != answer.actual
                refused.append(answer)
            else:
                acknowledged.append(answer)
                done += 1

    # SQLite's connections stay in the thread that opened them; closing is allowed from anywhere.
    threads = [threading.Thread(target=work, args=(name,)) for name in ("ada", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    line = scene.branches.log("main", limit=1000)
    assert {one.commit_id for one in line} == {one.commit_id for one in acknowledged} | {base}
    assert len({one.parents for one in line}) == len(line) == 2 * COMMITS + 1
    assert len(scene.paths("main")) == 2 * COMMITS


def test_one_head_has_one_successor(scene: Scene, open_branches: Callable[[], Any]) -> None:
    """Of four that saw the same head, one lands and three get the head of now.

    Without compare-and-set several may land, one on top of the other; nothing of theirs is lost.
    """
    base = scene.start().head
    answers: list[Commit | Moved] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        branches = open_branches()
        start.wait()
        answers.append(
            branches.commit(
                NewCommit("main", {f"{number}": entry("x")}, message="", author="ada", expected=base)
            )
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if "compare-and-set" in scene.cannot:
        landed = {one.commit_id for one in answers if isinstance(one, Commit)}
        line = scene.branches.log("main")
        assert {one.commit_id for one in line} == landed | {base}
        assert len(scene.paths("main")) == len(landed) >= 1
        return
    (landed,) = [one for one in answers if isinstance(one, Commit)]
    lost = [one for one in answers if isinstance(one, Moved)]
    assert [(one.expected, one.actual) for one in lost] == [(base, landed.commit_id)] * 3
    assert len(scene.paths("main")) == 1


def test_a_sweep_takes_nothing_from_those_at_work(scene: Scene, open_store: Callable[[], Ledger]) -> None:
    """Branches are made from what is about to go, moved and deleted, while everything counts as old."""
    scene.needs("garbage")
    scene.start()
    done, failed = threading.Event(), []

    def work(number: int) -> None:
        chance, branches, past = random.Random(number), open_store().branch_store(), ["main"]
        try:
            for turn in range(25):
                name = f"w{number}-{turn}"
                try:
                    branches.create(name, chance.choice(past))
                except RefNotFound:
                    continue  # it was gone: that is what a sweep is for
                changes = {f"p{chance.randrange(50)}": entry(str(chance.randrange(3))) for _ in range(5)}
                made = branches.commit(NewCommit(name, changes, message="", author="ada"))
                assert isinstance(made, Commit)
                past.append(made.commit_id)
                assert dict(branches.entries(name)).items() >= changes.items()
                branches.log(name, first_parent=False)
                branches.delete(name, why=WHY)
                branches.commit(
                    NewCommit("main", {f"q{chance.randrange(9)}": entry(name)}, message="", author="ada")
                )
        except Exception as error:
            failed.append(error)

    def sweep() -> None:
        store = open_store()
        while not done.is_set():
            try:
                store.branch_store().sweep(store.now_ms() + 60_000)
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    sweeper = threading.Thread(target=sweep)
    for thread in (sweeper, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    sweeper.join()
    assert failed == []
    for commit in scene.branches.log("main", limit=1000, first_parent=False):
        list(scene.branches.entries(commit.commit_id))


def test_of_two_about_one_path_one_lands(scene: Scene, open_branches: Callable[[], Any]) -> None:
    """A change from the same head of what another changed is refused; the first content stays."""
    base = scene.start().head
    answers: list[Commit | Moved] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        branches = open_branches()
        start.wait()
        answers.append(
            branches.commit(
                NewCommit("main", {"a": entry(str(number))}, message="", author=str(number), expected=base)
            )
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (landed,) = [one for one in answers if isinstance(one, Commit)]
    assert len([one for one in answers if isinstance(one, Moved)]) == 3
    assert scene.shows("main", a=landed.author)
