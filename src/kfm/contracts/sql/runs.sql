-- name: runs.by_key
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs WHERE idempotency_key = :idempotency_key

-- name: runs.by_id
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs WHERE run_id = :run_id

-- name: runs.latest_of_work
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs WHERE work_base = :work_base ORDER BY revision DESC LIMIT 1

-- name: runs.of_correction
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs WHERE work_base = :work_base AND correction = :correction ORDER BY revision DESC LIMIT 1

-- name: runs.latest_success
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
  AND COALESCE(partition_key, '') = :partition_key AND status = 'success'
ORDER BY end_time_ms DESC, start_time_ms DESC LIMIT 1

-- name: runs.newer_successes
-- Of a source, for windows that end later, the newest first.
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs WHERE source_id = :source_id AND window_end_ms > :after_ms AND status = 'success'
ORDER BY window_end_ms DESC, end_time_ms DESC, start_time_ms DESC LIMIT :row_limit

-- name: runs.touched
SELECT 1 FROM runs
WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
UNION ALL
SELECT 1 FROM settled_windows
WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
LIMIT 1

-- name: runs.newest_fingerprint
-- Of the windows that begin later, then of others that begin with this one, then of those that begin before it.
SELECT later.fingerprint FROM (
  SELECT r.fingerprint FROM runs r
  WHERE r.source_id = :source_id AND r.status = 'success' AND r.fingerprint <> :without AND r.window_start_ms > :window_start_ms
  ORDER BY r.window_start_ms DESC, r.end_time_ms DESC LIMIT 1
) AS later
UNION ALL
SELECT longer.fingerprint FROM (
  SELECT r.fingerprint FROM runs r
  WHERE r.source_id = :source_id AND r.status = 'success' AND r.fingerprint <> :without AND r.window_start_ms = :window_start_ms
    AND r.window_end_ms > :window_end_ms
  ORDER BY r.window_start_ms DESC, r.end_time_ms DESC LIMIT 1
) AS longer
UNION ALL
SELECT shorter.fingerprint FROM (
  SELECT r.fingerprint FROM runs r
  WHERE r.source_id = :source_id AND r.status = 'success' AND r.fingerprint <> :without AND r.window_start_ms = :window_start_ms
    AND r.window_end_ms < :window_end_ms
  ORDER BY r.window_start_ms DESC, r.end_time_ms DESC LIMIT 1
) AS shorter
UNION ALL
SELECT earlier.fingerprint FROM (
  SELECT r.fingerprint FROM runs r
  WHERE r.source_id = :source_id AND r.status = 'success' AND r.fingerprint <> :without AND r.window_start_ms < :window_start_ms
  ORDER BY r.window_start_ms DESC, r.end_time_ms DESC LIMIT 1
) AS earlier
LIMIT 1

-- name: runs.list
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs
WHERE (:status = '' OR status = :status)
  AND start_time_ms >= :since_ms AND (start_time_ms, run_id) < (:before_ms, :before_id)
ORDER BY start_time_ms DESC, run_id DESC
LIMIT :row_limit

-- name: runs.list_of_dataset
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs
WHERE dataset_id = :dataset_id AND (:status = '' OR status = :status)
  AND start_time_ms >= :since_ms AND (start_time_ms, run_id) < (:before_ms, :before_id)
ORDER BY start_time_ms DESC, run_id DESC
LIMIT :row_limit

-- name: runs.list_of_source
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs
WHERE source_id = :source_id AND (:dataset_id = '' OR dataset_id = :dataset_id) AND (:status = '' OR status = :status)
  AND start_time_ms >= :since_ms AND (start_time_ms, run_id) < (:before_ms, :before_id)
ORDER BY start_time_ms DESC, run_id DESC
LIMIT :row_limit

-- name: runs.list_running
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs
WHERE status = 'running' AND (:dataset_id = '' OR dataset_id = :dataset_id) AND (:source_id = '' OR source_id = :source_id)
  AND start_time_ms >= :since_ms AND (start_time_ms, run_id) < (:before_ms, :before_id)
ORDER BY start_time_ms DESC, run_id DESC
LIMIT :row_limit

-- name: runs.list_failed
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs
WHERE status = 'failed' AND (:dataset_id = '' OR dataset_id = :dataset_id) AND (:source_id = '' OR source_id = :source_id)
  AND start_time_ms >= :since_ms AND (start_time_ms, run_id) < (:before_ms, :before_id)
ORDER BY start_time_ms DESC, run_id DESC
LIMIT :row_limit

-- name: runs.find
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs WHERE run_id >= :low AND run_id < :high ORDER BY run_id LIMIT :row_limit

-- name: runs.newest_of
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
FROM runs WHERE dataset_id = :dataset_id
ORDER BY start_time_ms DESC, run_id DESC LIMIT 1

-- name: runs.troubled
SELECT
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code, error_message,
  force, correction, outcome
FROM runs r
WHERE (start_time_ms > :after_ms OR (start_time_ms = :after_ms AND run_id > :after_id))
  AND (attempts > 1 OR EXISTS (SELECT 1 FROM retries t WHERE t.run_id = r.run_id))
ORDER BY start_time_ms, run_id LIMIT :row_limit

-- name: runs.count_since
SELECT COUNT(*) FROM runs WHERE start_time_ms >= :since_ms

-- name: runs.forces
SELECT COUNT(*) FROM runs WHERE work_base = :work_base AND force > 0

-- name: runs.insert
INSERT INTO runs (
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision,
  trigger_type, window_spec, window_start_ms, window_end_ms, partition_key, pipeline_version,
  status, attempts, fence, start_time_ms, end_time_ms, fingerprint, version_id, error_code,
  error_message, force, correction, outcome
) VALUES (
  :run_id, :source_id, :dataset_id, :pipeline_id, :idempotency_key, :work_key, :work_base,
  :revision, :trigger_type, :window_spec, :window_start_ms, :window_end_ms, :partition_key,
  :pipeline_version, :status, :attempts, :fence, :start_time_ms, :end_time_ms, :fingerprint,
  :version_id, :error_code, :error_message, :force, :correction, :outcome
) ON CONFLICT DO NOTHING
RETURNING run_id

-- name: runs.restart
UPDATE runs
SET status = 'running', attempts = :attempts, fence = :fence, end_time_ms = NULL, fingerprint = NULL,
    error_code = NULL, error_message = NULL
WHERE run_id = :run_id AND fence = :seen_fence AND attempts = :seen_attempts AND status <> 'success'
RETURNING run_id

-- name: runs.succeed
UPDATE runs SET status = 'success', end_time_ms = :end_time_ms, version_id = :version_id, fingerprint = :fingerprint,
  outcome = :outcome
WHERE run_id = :run_id AND fence = :fence AND status = 'running'
RETURNING run_id

-- name: runs.fail
UPDATE runs
SET status = 'failed', end_time_ms = :end_time_ms, error_code = :error_code, error_message = :error_message
WHERE run_id = :run_id AND fence = :fence AND status = 'running'
RETURNING run_id

-- name: runs.held
SELECT run_id FROM runs WHERE run_id = :run_id AND fence = :fence AND status = 'running'

-- name: runs.beside
-- Under way under the same lock and fence as this one: they are promoted together. Among all that run, which are few.
SELECT b.run_id FROM runs h CROSS JOIN runs b
WHERE h.run_id = :run_id AND b.status = 'running' AND b.fence = :fence AND COALESCE(b.dataset_id, '') = h.dataset_id
  AND b.run_id <> h.run_id
ORDER BY b.start_time_ms, b.run_id
