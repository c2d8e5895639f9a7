-- name: duties.take
-- Without waiting: a process that has the duty does the work of all.
SELECT pg_try_advisory_xact_lock(4900156, hashtext(:duty::text || current_schema()))

-- name: duties.wait_for
-- The next statement sees what the process that had it has committed.
SELECT pg_advisory_xact_lock(4900156, hashtext(:duty::text || current_schema()))
