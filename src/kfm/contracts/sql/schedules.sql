-- name: schedules.list
SELECT schedule_id, definition, cursor_ms, version, paused_at_ms, paused_by, rationale, updated_at_ms, left_ms,
  grounds
FROM schedules ORDER BY schedule_id

-- name: schedules.insert
INSERT INTO schedules (schedule_id, definition, cursor_ms, version, paused_at_ms, paused_by, rationale, updated_at_ms,
  left_ms, grounds)
VALUES (:schedule_id, :definition, :cursor_ms, :version, :paused_at_ms, :paused_by, :rationale, :updated_at_ms,
  :left_ms, :grounds)
ON CONFLICT (schedule_id) DO NOTHING
RETURNING schedule_id

-- name: schedules.move
UPDATE schedules SET definition = :definition, cursor_ms = :cursor_ms, version = :version,
  paused_at_ms = :paused_at_ms, paused_by = :paused_by, rationale = :rationale, updated_at_ms = :updated_at_ms,
  left_ms = :left_ms, grounds = :grounds
WHERE schedule_id = :schedule_id AND version = :seen_version
RETURNING schedule_id

-- name: instants.insert
-- In place of what a clock that was ahead has made of it.
INSERT INTO instants (schedule_id, instant_ms, last_ms, became, request_id, reason, at_ms)
VALUES (:schedule_id, :instant_ms, :last_ms, :became, :request_id, :reason, :at_ms)
ON CONFLICT (schedule_id, instant_ms) DO UPDATE SET last_ms = EXCLUDED.last_ms, became = EXCLUDED.became,
  request_id = EXCLUDED.request_id, reason = EXCLUDED.reason, at_ms = EXCLUDED.at_ms
WHERE instants.at_ms > EXCLUDED.at_ms

-- name: instants.shorten
-- A span whose first instant gets a row of its own begins after it.
UPDATE instants SET instant_ms = instant_ms + 1
WHERE schedule_id = :schedule_id AND instant_ms = :instant_ms AND last_ms > instant_ms

-- name: instants.backfill
INSERT INTO instants (schedule_id, instant_ms, last_ms, became, request_id, reason, at_ms)
VALUES (:schedule_id, :instant_ms, :last_ms, :became, :request_id, :reason, :at_ms)
ON CONFLICT (schedule_id, instant_ms) DO UPDATE SET became = EXCLUDED.became, request_id = EXCLUDED.request_id,
  reason = EXCLUDED.reason, at_ms = EXCLUDED.at_ms
WHERE instants.request_id IS NULL AND instants.last_ms = instants.instant_ms

-- name: instants.list
-- Rows do not overlap, except those made by hand within the span that let them go: of what began before the
-- span, only the last row can reach into it.
SELECT schedule_id, instant_ms, last_ms, became, request_id, reason, at_ms FROM instants
WHERE schedule_id = :schedule_id AND instant_ms < :end_ms AND last_ms >= :start_ms
  AND instant_ms >= COALESCE((
    SELECT MAX(earlier.instant_ms) FROM instants AS earlier
    WHERE earlier.schedule_id = :schedule_id AND earlier.instant_ms <= :start_ms
      AND earlier.became <> 'backfilled'
  ), :start_ms)
ORDER BY instant_ms LIMIT :row_limit

-- name: instants.before
SELECT schedule_id, instant_ms, last_ms, became, request_id, reason, at_ms FROM instants
WHERE schedule_id = :schedule_id AND instant_ms < :before_ms
ORDER BY instant_ms DESC LIMIT :row_limit
