-- name: replays.select_stuck
SELECT wal_id, version, dataset, status, last_error_code, attempts, grants, object_uri FROM units
WHERE status IN ('failed', 'quarantined')
  AND (:datasets = '[]' OR dataset IN (SELECT jsonb_array_elements_text(:datasets::jsonb)))
  AND (:statuses = '[]' OR status IN (SELECT jsonb_array_elements_text(:statuses::jsonb)))
  AND (:error_codes = '[]' OR last_error_code IN (SELECT jsonb_array_elements_text(:error_codes::jsonb)))
  AND (:any_event_time = 1 OR (event_time_ms >= :event_time_start_ms AND event_time_ms < :event_time_end_ms))
  AND created_at_ms >= :created_after_ms AND created_at_ms < :created_before_ms AND attempts <= :attempts_max
  AND wal_id > :after
ORDER BY wal_id LIMIT :row_limit

-- name: replays.select_any
SELECT wal_id, version, dataset, status, last_error_code, attempts, grants, object_uri FROM units
WHERE (:datasets = '[]' OR dataset IN (SELECT jsonb_array_elements_text(:datasets::jsonb)))
  AND (:statuses = '[]' OR status IN (SELECT jsonb_array_elements_text(:statuses::jsonb)))
  AND (:error_codes = '[]' OR last_error_code IN (SELECT jsonb_array_elements_text(:error_codes::jsonb)))
  AND (:any_event_time = 1 OR (event_time_ms >= :event_time_start_ms AND event_time_ms < :event_time_end_ms))
  AND created_at_ms >= :created_after_ms AND created_at_ms < :created_before_ms AND attempts <= :attempts_max
  AND wal_id > :after
ORDER BY wal_id LIMIT :row_limit

-- name: replays.select_named
SELECT wal_id, version, dataset, status, last_error_code, attempts, grants, object_uri FROM units
WHERE wal_id IN (SELECT jsonb_array_elements_text(:wal_ids::jsonb))
  AND (:datasets = '[]' OR dataset IN (SELECT jsonb_array_elements_text(:datasets::jsonb)))
  AND (:statuses = '[]' OR status IN (SELECT jsonb_array_elements_text(:statuses::jsonb)))
  AND (:error_codes = '[]' OR last_error_code IN (SELECT jsonb_array_elements_text(:error_codes::jsonb)))
  AND (:any_event_time = 1 OR (event_time_ms >= :event_time_start_ms AND event_time_ms < :event_time_end_ms))
  AND created_at_ms >= :created_after_ms AND created_at_ms < :created_before_ms AND attempts <= :attempts_max
  AND wal_id > :after
ORDER BY wal_id LIMIT :row_limit

-- name: replays.versions
SELECT wal_id, version, status FROM units WHERE wal_id IN (SELECT jsonb_array_elements_text(:wal_ids::jsonb))

-- name: replays.bytes
SELECT COUNT(size), COALESCE(SUM(size), 0) FROM units
WHERE wal_id IN (SELECT jsonb_array_elements_text(:wal_ids::jsonb))

-- name: replays.in_cell
SELECT wal_id FROM units
WHERE dataset = :dataset AND status IN ('failed', 'quarantined')
  AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) >= :start_ms
  AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) < :end_ms
  AND (:product = '' OR extra::jsonb ->> 'product' = :product)
ORDER BY wal_id LIMIT :row_limit

-- name: replays.hold
SELECT state, served, updated_at_ms FROM replays WHERE replay_id = :replay_id FOR UPDATE

-- name: replays.agreed
SELECT request_id FROM approvals
WHERE subject = :replay_id AND kind = 'replay' AND state = 'approved' AND digest = :digest
  AND (used_by = :replay_id OR (used_at_ms IS NULL AND expires_at_ms > :now_ms))
ORDER BY request_id LIMIT 1 FOR UPDATE
