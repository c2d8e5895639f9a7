-- name: held.list
SELECT
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by,
  number
FROM held WHERE number < :before ORDER BY number DESC LIMIT :row_limit

-- name: held.of_kind
SELECT
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by,
  number
FROM held WHERE kind = :kind AND number < :before ORDER BY number DESC LIMIT :row_limit

-- name: held.in_state
SELECT
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by,
  number
FROM held
WHERE state = :state AND (:kind = '' OR kind = :kind) AND (:dataset_id = '' OR dataset_id = :dataset_id)
  AND number < :before
ORDER BY number DESC LIMIT :row_limit

-- name: held.of_dataset
SELECT
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by,
  number
FROM held
WHERE dataset_id = :dataset_id AND (:state = '' OR state = :state) AND (:kind = '' OR kind = :kind)
  AND number < :before
ORDER BY number DESC LIMIT :row_limit

-- name: held.of_subject
SELECT
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by
FROM held
WHERE subject = :subject AND (:state = '' OR state = :state) AND (:kind = '' OR kind = :kind)
  AND (:dataset_id = '' OR dataset_id = :dataset_id)
ORDER BY number DESC LIMIT :row_limit

-- name: held.get
SELECT
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by
FROM held WHERE held_id = :held_id ORDER BY number DESC LIMIT 1

-- name: held.find
SELECT
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by
FROM held WHERE held_id >= :low AND held_id < :high ORDER BY held_id LIMIT :row_limit

-- name: held.halted
SELECT
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by
FROM held
WHERE state = 'held' AND grain = 'run' AND dataset_id = :dataset_id AND error_code = 'KFM302'
ORDER BY number LIMIT 1

-- name: held.put
INSERT INTO held (
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by
) VALUES (
  :held_id, :kind, :grain, :subject, :dataset_id, :source_id, :payload_hash, :source_ids, :code_sha,
  :idempotency_key, :attempts, :error_classes, :error_code, :error_message, :reason, :held_at_ms, :state,
  :released_at_ms, :released_by
)
ON CONFLICT (grain, subject) WHERE state = 'held' DO UPDATE SET
  held_id = excluded.held_id, kind = excluded.kind, payload_hash = excluded.payload_hash,
  source_ids = excluded.source_ids, code_sha = excluded.code_sha, attempts = excluded.attempts,
  error_classes = excluded.error_classes, error_code = excluded.error_code,
  error_message = excluded.error_message, reason = excluded.reason, held_at_ms = excluded.held_at_ms

-- name: held.release
UPDATE held SET state = 'released', released_at_ms = :released_at_ms, released_by = :released_by
WHERE held_id = :held_id AND state = 'held'
RETURNING held_id

-- name: held.resolve
UPDATE held SET state = 'resolved', released_at_ms = :released_at_ms, released_by = :released_by
WHERE grain = 'run' AND subject = :subject AND state = 'held'

-- name: held.resolve_work
-- Runs of the same work, and requests for its window that became no run; from the few that are held: a window may have
-- been run ever so often.
UPDATE held SET state = 'resolved', released_at_ms = :released_at_ms, released_by = :run_id
WHERE state = 'held' AND source_id = (SELECT d.source_id FROM runs d WHERE d.run_id = :run_id)
  AND ((grain = 'run' AND EXISTS (
    SELECT 1 FROM runs r JOIN runs o ON r.source_id = o.source_id
      AND r.window_start_ms = o.window_start_ms AND r.window_end_ms = o.window_end_ms
      AND COALESCE(r.partition_key, '') = COALESCE(o.partition_key, '')
    WHERE r.run_id = :run_id AND o.run_id = held.subject
  )) OR (grain = 'request' AND EXISTS (
    SELECT 1 FROM runs r JOIN requests q ON r.source_id = q.source_id
      AND r.window_start_ms = q.window_start_ms AND r.window_end_ms = q.window_end_ms
    WHERE r.run_id = :run_id AND q.request_id = held.subject
  )))

-- name: held.resolve_requests
-- Their window was found done.
UPDATE held SET state = 'resolved', released_at_ms = :released_at_ms, released_by = :run_id
WHERE state = 'held' AND grain = 'request'
  AND source_id = (SELECT d.source_id FROM runs d WHERE d.run_id = :run_id)
  AND EXISTS (
    SELECT 1 FROM runs r JOIN requests q ON r.source_id = q.source_id
      AND r.window_start_ms = q.window_start_ms AND r.window_end_ms = q.window_end_ms
    WHERE r.run_id = :run_id AND q.request_id = held.subject
  )
RETURNING held_id

-- name: held.get_for_update
SELECT
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by
FROM held WHERE held_id = :held_id AND state = 'held'

-- name: held.ahead
SELECT
  (SELECT COUNT(*) FROM held WHERE state = 'held' AND grain IN ('run', 'request')),
  (SELECT MIN(held_at_ms) FROM held WHERE state = 'held' AND grain IN ('run', 'request')),
  (SELECT COUNT(*) FROM retry_states s CROSS JOIN runs r
    WHERE r.run_id = s.run_id AND s.fate = 'retry' AND r.status = 'failed' AND r.attempts = s.attempt)

-- name: held.resolve_unit
UPDATE held SET state = 'resolved', released_at_ms = :released_at_ms, released_by = :released_by
WHERE grain = 'unit' AND subject = :subject AND state = 'held'
RETURNING dataset_id, error_code, error_classes
