"""Keys, and the ledger that remembers them."""
