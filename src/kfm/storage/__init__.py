"""Storage: retention of old rows, where the bytes are, copies to other places, backups and restores."""
