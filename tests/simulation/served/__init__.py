"""Worlds in which several services keep the same schedules."""
