"""Hostile input for everything that reads what another system wrote."""
