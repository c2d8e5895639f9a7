"""Contracts with data that is known, by how it was made, to keep or to break them."""
