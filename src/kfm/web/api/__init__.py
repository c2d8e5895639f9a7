"""The API under `/api/v1`: what the commands know and do, over HTTP."""
