-- name: units.claim
UPDATE units SET
  status = 'in_progress', version = version + 1, worker_id = :worker_id, ingest_run_id = :ingest_run_id,
  last_attempt_at_ms = :now_ms, updated_at_ms = :now_ms, lease_until_ms = :lease_until_ms,
  attempts = CASE WHEN attempts = 0 THEN 1 ELSE attempts END, grant_attempts = grant_attempts + 1,
  granted_at_ms = CASE WHEN grant_attempts = 0 THEN :now_ms ELSE granted_at_ms END,
  trail = trail || :trail
WHERE rowid IN (
  SELECT rowid FROM units
  WHERE status = 'pending' AND dataset = :dataset AND provider = :provider AND alone = :alone
    AND not_before_ms <= :now_ms
  ORDER BY not_before_ms LIMIT :row_limit
)
RETURNING
  wal_id, version, dataset, provider, queue, object_uri, event_time_ms, attempts, replay_reason, extra,
  etag, sequencer, size, version_id, content_version, done_version, grants, grant_attempts, granted_at_ms,
  alone, removed, unclear, replacing, last_attempt_at_ms, trail
