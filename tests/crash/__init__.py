"""Real processes, killed and stopped at every step: `python -m tests.crash`."""
