-- What was asked for, by time: the list of all triggers begins anywhere, and reads what it shows.
CREATE INDEX invocations_by_time ON invocations (requested_at_ms, number);
