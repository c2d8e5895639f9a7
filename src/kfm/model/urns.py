"""Stable names for what evidence speaks of: the same in every document, on every machine."""

from __future__ import annotations

from urllib.parse import quote

NAMESPACE = "urn:kfm:"
TERMS = "urn:kfm:terms#"  # kfm's own words in linked data


def _urn(kind: str, *parts: str) -> str:
    return NAMESPACE + ":".join(
        (kind, *(quote(part, safe="@+=,;!~*'()/", errors="replace") for part in parts))
    )


def run_urn(run_id: str) -> str:
    return _urn("run", run_id)


def attempt_urn(lineage_id: str) -> str:
    """An attempt of a run or of a node, by its OpenLineage run."""
    return _urn("attempt", lineage_id)


def invocation_urn(invocation_id: str) -> str:
    return _urn("invocation", invocation_id)


def dataset_urn(dataset_id: str) -> str:
    return _urn("dataset", dataset_id)


def version_urn(version_id: str) -> str:
    return _urn("version", bare_hex(version_id))


def file_urn(dataset_id: str, path: str, sha256: str) -> str:
    """A published file: the same bytes in the same place are the same thing, in every version."""
    return _urn("file", dataset_id, bare_hex(sha256), path)


def input_urn(sign: str) -> str:
    """An upstream object that has no address of its own that may be told."""
    return _urn("input", sign)


def inputs_urn(fingerprint: str) -> str:
    return _urn("inputs", bare_hex(fingerprint))


def policies_urn(bundle_id: str) -> str:
    return _urn("policies", bare_hex(bundle_id))


def policy_urn(bundle_id: str, policy_id: str) -> str:
    return _urn("policy", bare_hex(bundle_id), policy_id)


def software_urn(version: str | None) -> str:
    return _urn("software", "kfm", version or "unknown")


def agent_urn(name: str) -> str:
    return _urn("agent", name)


def object_urn(wal_id: str, content_version: int) -> str:
    """The bytes that were announced under a unit's key, the so-manieth time."""
    return _urn("object", wal_id, str(content_version))


def item_urn(collection_id: str, item_id: str) -> str:
    """An item of the catalogue."""
    return _urn("item", collection_id, item_id)


def node_urn(run_id: str, node: str) -> str:
    """A node of a pipeline at work in a run."""
    return _urn("node", run_id, node)


def result_urn(run_id: str, node: str) -> str:
    """What a node made in a run."""
    return _urn("result", run_id, node)


def graph_urn(digest: str) -> str:
    """A pipeline's graph, by its hash."""
    return _urn("graph", bare_hex(digest))


def bare_hex(checksum: str) -> str:
    """`sha256:<hex>` without its prefix."""
    return checksum.removeprefix("sha256:")
