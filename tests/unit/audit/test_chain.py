"""The link's hash, what a verdict says, and trees of hashes."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.audit import chain
from kfm.model import audit
from kfm.model.canonical import canonical_bytes
from kfm.model.records import BY_KFM, GovernanceEntry, Justification, governance_entry, justified
from kfm.model.runs import ChainLink
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.unit.audit.tampering import SCRIPT, some_entry, verifier

pytestmark = pytest.mark.req("GOV-2")


def entry(**changes: Any) -> GovernanceEntry:
    return replace(ledgers.entry("force"), **changes)


def anchored(one: ChainLink, **changes: Any) -> audit.Anchor:
    made = audit.Anchor(number=one.number, hash=one.hash, environment="test", at="2026-01-01T00:00:00Z")
    return replace(made, **changes)


# --- one link --------------------------------------------------------------------------


def test_a_link_can_be_computed_by_hand() -> None:
    """Two SHA-256 over two small JSON texts: nothing else is in it."""
    content = hashlib.sha256(
        b'{"entry":{"actor":"ada","details":{},"kind":"force","rationale":null,"recorded_at_ms":1,'
        b'"subject":"r","ticket":null},"kfm":"audit-entry/1"}'
    ).hexdigest()
    text = f'{{"content":"{content}","kfm":"audit-link/1","number":1,"previous":"{"0" * 64}"}}'
    made = audit.link("0" * 64, 1, GovernanceEntry(kind="force", subject="r", actor="ada", recorded_at_ms=1))
    assert made.hash == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("by", "details"),
    [
        (BY_KFM, {"reason": "x"}),
        (Justification(actor="ada", rationale="why", ticket="T-1"), {"reason": "x"}),
        (justified(str, "ada", "why"), {"reason": "x", "claimed_actor": None}),
        (justified(str, "ada", "why", None, "bob"), {"reason": "x", "claimed_actor": "bob"}),
    ],
)
def test_an_entry_has_a_claimed_actor_only_where_one_can_be_given(
    by: Justification, details: dict[str, Any]
) -> None:
    """The bytes that are hashed hold that field for commands that take it, also if it is empty."""
    assert governance_entry("gc", "prod", 1, by, reason="x") == GovernanceEntry(
        kind="gc",
        subject="prod",
        actor=by.actor,
        recorded_at_ms=1,
        rationale=by.rationale,
        ticket=by.ticket,
        details=details,
    )


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "x"},
        {"subject": "x"},
        {"actor": "x"},
        {"recorded_at_ms": 0},
        {"rationale": ""},
        {"rationale": "x"},
        {"ticket": ""},
        {"details": {"a": None}},
    ],
)
def test_every_field_counts(change: dict[str, Any]) -> None:
    """An empty text is not a missing one, and no field can be left out."""
    assert audit.content_hash(entry(**change)) != audit.content_hash(entry())


def test_number_and_predecessor_count() -> None:
    """One entry has another hash in every place."""
    hashes = {
        audit.link(previous, number, entry()).hash for previous in ("0" * 64, "a" * 64) for number in (1, 2)
    }
    assert len(hashes) == 4


def test_the_record_has_no_field_that_is_not_hashed() -> None:
    """A developer who adds a field to an entry must decide how old links stay verifiable."""
    assert set(audit.entry_document(entry())) == set(GovernanceEntry.__struct_fields__)
    assert set(audit.entry_document(entry())) == verifier().ENTRY_FIELDS


texts = st.text(st.characters(exclude_categories=["Cs"]))
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(documents)
def test_the_script_writes_json_as_the_kernel_does(document: Any) -> None:
    """The verifier's own small writer agrees byte for byte."""
    assert verifier_module.canonical(document).encode() == canonical_bytes(document)


verifier_module = verifier()


def test_the_script_imports_nothing_of_ours() -> None:
    """It runs where only Python is: isolated, without site packages."""
    code = (
        f"import runpy, sys; runpy.run_path({str(SCRIPT)!r}); "
        "print([m for m in sys.modules if m.split('.')[0] in ('kfm', 'msgspec', 'orjson', 'rfc8785')])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


# --- verdicts --------------------------------------------------------------------------


@pytest.fixture
def links() -> list[ChainLink]:
    rng = random.Random(7)
    return list(audit.chained(some_entry(rng) for _ in range(6)))


def test_a_verdict_tells_what_was_looked_at(links: list[ChainLink]) -> None:
    """Rows, the head, what was anchored, and since where nothing was."""
    verdict = audit.verify(links, [anchored(links[1]), anchored(links[3])])
    assert (verdict.sound, verdict.rows, verdict.head_number) == (True, 6, 6)
    assert verdict.head_hash == links[-1].hash
    assert (verdict.anchors, verdict.anchored_number, verdict.unanchored_since) == (2, 4, 5)
    assert audit.verify(links).unanchored_since == 1
    assert audit.verify(links, [anchored(links[-1])]).unanchored_since is None
    assert audit.verify([]).unanchored_since is None


def test_two_anchors_of_one_row_must_agree(links: list[ChainLink]) -> None:
    """An anchor that was edited does not hide behind one that was not."""
    good = anchored(links[2])
    finding = audit.verify(links, [good, replace(good, hash="f" * 64)]).finding
    assert finding is not None
    assert (finding.number, finding.problem) == (3, "anchor")


@pytest.mark.parametrize("number", [0, -1])
def test_an_anchor_of_no_row_is_found(links: list[ChainLink], number: int) -> None:
    """An anchor that can't be compared is no reason to be content."""
    finding = audit.verify(links, [anchored(links[0], number=number)]).finding
    assert finding is not None
    assert finding.problem == "anchor"


def test_a_rewrite_is_narrowed_down_by_anchors(links: list[ChainLink]) -> None:
    """It lies after the last anchor that agrees, and not after the first that does not."""
    forged = [*links[:3], *audit.chained([entry(), *(one.entry for one in links[4:])], links[2].hash, 3)]
    finding = audit.verify(forged, [anchored(one) for one in (links[1], links[4], links[5])]).finding
    assert finding is not None
    assert (finding.number, finding.since, finding.problem) == (5, 3, "anchor")


def test_the_ledgers_own_head_is_an_anchor_of_a_kind(links: list[ChainLink]) -> None:
    """Rows that were deleted without setting the head back are missed; rows added since are not minded."""
    head = (5, links[4].hash)
    assert audit.verify(links[:5], (), head).sound
    assert audit.verify(links, (), head).sound
    finding = audit.verify(links[:4], (), head).finding
    assert finding is not None
    assert (finding.number, finding.problem) == (5, "truncated")
    assert not audit.verify(links, (), (5, "f" * 64)).sound


def test_a_value_that_was_never_recorded_is_a_finding(links: list[ChainLink]) -> None:
    """What has no canonical form can't have been written; the check does not fall over it."""
    links[2] = replace(links[2], entry=replace(links[2].entry, details={"n": 0.5}))
    finding = audit.verify(links).finding
    assert finding is not None
    assert (finding.number, finding.problem) == (3, "content")


# --- the service -----------------------------------------------------------------------


def test_the_newest_entries_come_with_their_numbers() -> None:
    """However far back they are, and only those that were asked for."""
    store = ledgers.memory_store(SystemClock())
    assert chain.newest(store) == []
    store.append_governance(
        [entry(kind=f"k{number % 3}", subject=f"s{number % 700}") for number in range(2500)]
    )
    assert [one.number for one in chain.newest(store, limit=3)] == [2500, 2499, 2498]
    assert [one.number for one in chain.newest(store, kind="k1", limit=2)] == [2498, 2495]
    assert [one.number for one in chain.newest(store, subject="s5")] == [2106, 1406, 706, 6]
    assert chain.newest(store, kind="none") == []
    assert len(chain.newest(store, limit=5000)) == 2500
    assert chain.verify(store).rows == 2500


# --- trees -----------------------------------------------------------------------------

# The test tree of the Certificate Transparency project.
INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [audit.leaf_hash(bytes.fromhex(text)) for text in INPUTS]


def test_roots_are_those_of_certificate_transparency() -> None:
    """Published roots of the same leaves."""
    assert audit.root([]).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert [audit.root(LEAVES[:size]).hex() for size in range(1, 9)] == ROOTS


def test_every_leaf_has_a_short_proof() -> None:
    """It leads to the root from its own place, and from no other."""
    leaves = [audit.leaf_hash(bytes([number])) for number in range(33)]
    for size in range(1, 34):
        top = audit.root(leaves[:size])
        for index in range(size):
            proof = audit.inclusion_proof(leaves[:size], index)
            assert len(proof) <= (size - 1).bit_length()
            assert audit.includes(top, size, leaves[index], index, proof)
            assert not audit.includes(top, size, audit.leaf_hash(b"other"), index, proof)
            assert not audit.includes(top, size, leaves[index], index, [*proof, top])
            if proof:
                assert not audit.includes(top, size, leaves[index], index, proof[:-1])
                assert not audit.includes(top, size, leaves[index], index, [*proof[:-1], bytes(32)])
            for other in range(size):
                if other != index:
                    assert not audit.includes(top, size, leaves[index], other, proof)


def test_a_place_that_is_not_there_has_no_proof() -> None:
    """Neither before the first leaf nor after the last."""
    top = audit.root(LEAVES)
    for index in (-1, 8):
        assert not audit.includes(top, 8, LEAVES[0], index, [])
        with pytest.raises(IndexError):
            audit.inclusion_proof(LEAVES, index)


def test_an_inner_node_is_no_leaf() -> None:
    """Half a tree can't be passed off as one row."""
    left, right = audit.root(LEAVES[:4]), audit.root(LEAVES[4:])
    assert audit.root([audit.leaf_hash(left + right)]) != audit.root(LEAVES)
