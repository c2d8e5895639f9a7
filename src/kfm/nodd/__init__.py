"""Upstream objects: what announces them, what their keys say, and which unit each is."""
