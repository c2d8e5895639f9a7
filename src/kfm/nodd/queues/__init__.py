"""Queues that carry announcements: SQS, spool folders, lines of a stream."""
