"""Inspection of announced objects: integrity and headers. Every length is checked, every loop bounded."""
