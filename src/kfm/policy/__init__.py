"""The policy engine: Cedar rules and their fixtures."""
