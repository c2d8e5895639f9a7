"""Worlds of pipelines: runs of nodes on branches, by processes that die, stall and are taken over."""
