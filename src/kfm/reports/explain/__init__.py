"""Explanations, from the records alone."""
