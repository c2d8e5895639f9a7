"""Finds forbidden retry behaviour in other people's code, by reading it. Nothing of it is executed.

This package knows nothing of the kernel and needs no configuration: it runs in editors and hooks.
"""
