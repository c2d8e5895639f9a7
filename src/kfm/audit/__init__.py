"""The audit log: a chain of hashes, its seals and anchors."""
