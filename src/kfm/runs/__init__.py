"""Runs: admission with its gates, execution, previews, plans, retries, garbage collection."""
