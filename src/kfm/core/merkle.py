"""Trees of hashes, as RFC 6962 has them: one root seals a whole history, a short proof one row of it.

Leaves and inner nodes are hashed with different first bytes, so that a node can't pass for a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

EMPTY = sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """The root over hashes of leaves, in their order."""
    if not leaves:
        return EMPTY
    level = list(leaves)
    while len(level) > 1:
        # Pairing from the left and carrying the odd one up gives the same tree as splitting at the
        # largest power of two below the size, without recursion.
        above = [node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            above.append(level[-1])
        level = above
    return level[0]


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes that lead from one leaf to the root, the nearest first."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"There is no leaf {index} among {len(leaves)}.")
    proof, level, at = [], list(leaves), index
    while len(level) > 1:
        beside = at ^ 1
        if beside < len(level):
            proof.append(level[beside])
        above = [node_hash(level[one], level[one + 1]) for one in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            above.append(level[-1])
        level, at = above, at // 2
    return proof


def includes(root_hash: bytes, size: int, leaf: bytes, index: int, proof: Sequence[bytes]) -> bool:
    """Does the tree of this root and size have this leaf in this place?"""
    if not 0 <= index < size:
        return False
    reached, at, last, steps = leaf, index, size - 1, iter(proof)
    while last > 0:
        if at % 2 or at < last:  # else it is the odd one out, carried up as it is
            beside = next(steps, None)
            if beside is None:
                return False
            reached = node_hash(beside, reached) if at % 2 else node_hash(reached, beside)
        at, last = at // 2, last // 2
    return next(steps, None) is None and reached == root_hash
