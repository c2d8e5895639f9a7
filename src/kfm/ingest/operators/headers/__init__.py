"""Readers of file headers. They trust nothing: every length is checked, every loop has a bound."""
