"""Copies of the promoted head, where readers look. The database is the truth; these can be made again."""
