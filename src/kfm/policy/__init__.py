"""Policies: Cedar bundles, fixtures, licences."""
