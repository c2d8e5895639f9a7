"""Telemetry: metrics from the ledger, spans, telemetry documents of a release."""
