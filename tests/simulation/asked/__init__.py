"""Worlds of requests: senders, schedules and runners on one ledger, and a door that knows what was done."""
