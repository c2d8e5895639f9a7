"""The console: pages about what runs, is due, blocked, failed or quarantined. No script needed."""
