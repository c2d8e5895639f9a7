"""Hostile input for everything that reads what somebody else wrote."""
