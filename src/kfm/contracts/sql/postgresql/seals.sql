-- name: seals.last_given
SELECT COALESCE(pg_sequence_last_value(
  CASE :stream::text WHEN 'units' THEN 'unit_page_numbers'::regclass ELSE 'outbox_numbers'::regclass END
), 0)

-- name: seals.in_flight
-- Who draws a number holds a lock on the sequence, from before it is drawn until its rows can be seen or never come.
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND pid IS DISTINCT FROM pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation =
    CASE :stream::text WHEN 'units' THEN 'unit_page_numbers'::regclass ELSE 'outbox_numbers'::regclass END
ORDER BY virtualtransaction

-- name: seals.late_units
SELECT late.* FROM jsonb_array_elements(:spans::jsonb) AS span (value) CROSS JOIN LATERAL (
  SELECT p.number, p.event, p.status, p.at_ms, p.worker_id, p.members, p.packed
  FROM unit_pages p WHERE p.number >= (span.value ->> 0)::bigint AND p.number <= (span.value ->> 1)::bigint
  ORDER BY p.number LIMIT :row_limit
) AS late ORDER BY late.number LIMIT :row_limit

-- name: seals.late_outbox
SELECT late.* FROM jsonb_array_elements(:spans::jsonb) AS span (value) CROSS JOIN LATERAL (
  SELECT
    o.number, o.event_id, o.topic, o.subject, o.body, o.recorded_at_ms, o.tries, o.not_before_ms,
    o.delivered_at_ms, o.packed
  FROM outbox o WHERE o.number >= (span.value ->> 0)::bigint AND o.number <= (span.value ->> 1)::bigint
  ORDER BY o.number LIMIT :row_limit
) AS late ORDER BY late.number LIMIT :row_limit
