"""Branches on a lakeFS server, behind the same port as the embedded ones. Needs the extra `lakefs`."""
