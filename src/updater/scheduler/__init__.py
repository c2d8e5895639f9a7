"""What starts updates: schedules and signed webhooks."""
