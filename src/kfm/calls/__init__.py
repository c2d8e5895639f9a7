"""Retried calls (`kfm.call`): attempts, deadlines and circuit breakers around a function."""
