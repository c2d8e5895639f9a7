"""Worlds of requests: senders, schedules and runners on one ledger, and an admission that knows the runs."""
