"""The work of a run: fetch, pipelines of functions, event logs."""
