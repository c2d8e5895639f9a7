"""Run-state as a Delta table."""
