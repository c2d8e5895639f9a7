"""Metrics, spans, energy and compliance figures."""
