"""Branches and run-state outside the ledger: lakeFS, Delta tables, objects on a branch."""
