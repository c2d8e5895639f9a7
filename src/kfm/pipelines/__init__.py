"""Pipelines of plain functions: declaration, code hash, execution, workers, drawings."""
