"""How the addresses of stored objects begin, and whose they are."""

from __future__ import annotations

SCHEMES = {"aws": "s3", "azure": "az", "gcp": "gs"}  # provider → scheme
PROVIDERS = {scheme: provider for provider, scheme in SCHEMES.items()}
