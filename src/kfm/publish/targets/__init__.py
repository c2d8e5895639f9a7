"""Targets: copies of the promoted head where readers look. The ledger is the truth; these follow."""
