"""The ledger on SQLite or PostgreSQL: one file per aggregate with its reads, writes and rows."""
