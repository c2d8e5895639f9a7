-- name: seals.last_given
-- The last number that a transaction may have drawn.
SELECT 9223372036854775807

-- name: seals.in_flight
-- Transactions that have drawn numbers and not ended: one writer has no others beside it.
SELECT '' WHERE 1 = 0

-- name: seals.late_units
SELECT p.number, p.event, p.status, p.at_ms, p.worker_id, p.members, p.packed
FROM json_each(:spans) AS span
CROSS JOIN unit_pages p
WHERE p.number >= json_extract(span.value, '$[0]') AND p.number <= json_extract(span.value, '$[1]')
ORDER BY p.number LIMIT :row_limit

-- name: seals.late_outbox
SELECT
  o.number, o.event_id, o.topic, o.subject, o.body, o.recorded_at_ms, o.tries, o.not_before_ms, o.delivered_at_ms,
  o.packed
FROM json_each(:spans) AS span
CROSS JOIN outbox o
WHERE o.number >= json_extract(span.value, '$[0]') AND o.number <= json_extract(span.value, '$[1]')
ORDER BY o.number LIMIT :row_limit
