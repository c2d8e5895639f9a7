-- name: retry_states.get
SELECT
  run_id, attempt, grants, grant_attempts, granted_at_ms, not_before_ms, fate, error_class, reason, updated_at_ms,
  fingerprint, day_grants
FROM retry_states WHERE run_id = :run_id

-- name: retry_states.put
INSERT INTO retry_states (
  run_id, attempt, grants, grant_attempts, granted_at_ms, not_before_ms, fate, error_class, reason, updated_at_ms,
  fingerprint, day_grants
) VALUES (
  :run_id, :attempt, :grants, :grant_attempts, :granted_at_ms, :not_before_ms, :fate, :error_class, :reason,
  :updated_at_ms, :fingerprint, :day_grants
)
ON CONFLICT (run_id) DO UPDATE SET
  attempt = excluded.attempt, grants = excluded.grants, grant_attempts = excluded.grant_attempts,
  granted_at_ms = excluded.granted_at_ms, not_before_ms = excluded.not_before_ms, fate = excluded.fate,
  error_class = excluded.error_class, reason = excluded.reason, updated_at_ms = excluded.updated_at_ms,
  fingerprint = excluded.fingerprint, day_grants = excluded.day_grants

-- name: retry_states.remove
DELETE FROM retry_states WHERE run_id = :run_id

-- name: retry_states.waiting
SELECT
  s.run_id, s.attempt, s.grants, s.grant_attempts, s.granted_at_ms, s.not_before_ms, s.fate, s.error_class,
  s.reason, s.updated_at_ms, s.fingerprint, s.day_grants,
  r.run_id, r.source_id, r.dataset_id, r.pipeline_id, r.idempotency_key, r.work_key, r.work_base, r.revision,
  r.trigger_type, r.window_spec, r.window_start_ms, r.window_end_ms, r.partition_key, r.pipeline_version,
  r.status, r.attempts, r.fence, r.start_time_ms, r.end_time_ms, r.fingerprint, r.version_id, r.error_code,
  r.error_message, r.force, r.correction, r.outcome
FROM retry_states s CROSS JOIN runs r
WHERE r.run_id = s.run_id AND s.fate = 'retry' AND r.status = 'failed' AND r.attempts = s.attempt AND s.not_before_ms <= :until_ms
ORDER BY s.not_before_ms, s.run_id LIMIT :row_limit

-- name: runs.unjudged
SELECT
  r.run_id, r.source_id, r.dataset_id, r.pipeline_id, r.idempotency_key, r.work_key, r.work_base, r.revision,
  r.trigger_type, r.window_spec, r.window_start_ms, r.window_end_ms, r.partition_key, r.pipeline_version,
  r.status, r.attempts, r.fence, r.start_time_ms, r.end_time_ms, r.fingerprint, r.version_id, r.error_code,
  r.error_message, r.force, r.correction, r.outcome
FROM runs r LEFT JOIN retry_states s ON s.run_id = r.run_id
WHERE r.status = 'failed' AND r.error_code IN ('WORKER_DIED', 'LEASE_EXPIRED', 'CANCELLED', 'KFM613')
  AND (s.run_id IS NULL OR s.attempt < r.attempts)
ORDER BY r.end_time_ms, r.run_id LIMIT :row_limit

-- name: runs.ended
SELECT run_id FROM runs WHERE run_id = :run_id AND attempts = :attempts AND status = 'failed'

-- name: retry_states.next
SELECT s.run_id, r.dataset_id, s.not_before_ms
FROM retry_states s CROSS JOIN runs r
WHERE r.run_id = s.run_id AND s.fate = 'retry' AND r.status = 'failed' AND r.attempts = s.attempt
ORDER BY s.not_before_ms, s.run_id LIMIT 1
