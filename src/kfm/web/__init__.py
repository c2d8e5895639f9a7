"""What answers requests: read-only faces of the ledger. Needs the extra `serve`."""
