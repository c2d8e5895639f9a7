"""In what order nodes are looked at, and how names get into a hash."""

from __future__ import annotations

import pytest

from kfm.model.input_hash import DEPENDENCY, are_plain, dependency_text
from kfm.pipelines.graph import ordered


def test_nodes_that_are_declared_as_they_can_run_stay_in_that_order() -> None:
    """No node is moved without need."""
    reads: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": (), "d": ("c", "b")}
    assert ordered(reads) == ["a", "b", "c", "d"]


def test_a_node_that_is_declared_too_early_comes_after_what_it_reads_from() -> None:
    """Whatever the order of declaration, each node follows those that it reads from."""
    reads: dict[str, tuple[str, ...]] = {"a": (), "d": ("c", "b"), "b": ("a",), "c": ()}
    order = ordered(reads)
    assert sorted(order) == ["a", "b", "c", "d"]
    assert all(order.index(each) < order.index(node) for node, ahead in reads.items() for each in ahead)


@pytest.mark.parametrize("odd", ['a"b', "a\\b", "ä", "a\n"])
def test_one_name_that_needs_escaping_is_seen_among_many(odd: str) -> None:
    """All names are looked at in one go; the answer is that of each by itself."""
    assert are_plain(["soil.map", "x-1"])
    assert dependency_text("soil.map", "sha256:0") == DEPENDENCY % ("sha256:0", "soil.map")
    assert not are_plain(["soil.map", odd, "x-1"])
    assert dependency_text(odd, "sha256:0") == ""
