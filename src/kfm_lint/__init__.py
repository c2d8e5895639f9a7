"""A linter for retries that do harm. Code is read, never run.

It is a distribution of its own, kfm-lint: it needs the standard library only, no configuration, and nothing
of kfm, so it runs in editors, in flake8 and as a hook.
"""

__version__ = "0.1.0"
