"""Data sources: files, HTTP APIs and buckets."""
