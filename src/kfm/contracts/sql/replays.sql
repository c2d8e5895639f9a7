-- name: replays.select_stuck
SELECT wal_id, version, dataset, status, last_error_code, attempts, grants, object_uri FROM units
WHERE status IN ('failed', 'quarantined')
  AND (:datasets = '[]' OR dataset IN (SELECT value FROM json_each(:datasets)))
  AND (:statuses = '[]' OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:error_codes = '[]' OR last_error_code IN (SELECT value FROM json_each(:error_codes)))
  AND (:any_event_time = 1 OR (event_time_ms >= :event_time_start_ms AND event_time_ms < :event_time_end_ms))
  AND created_at_ms >= :created_after_ms AND created_at_ms < :created_before_ms AND attempts <= :attempts_max
  AND wal_id > :after
ORDER BY wal_id LIMIT :row_limit

-- name: replays.select_any
SELECT wal_id, version, dataset, status, last_error_code, attempts, grants, object_uri FROM units
WHERE (:datasets = '[]' OR dataset IN (SELECT value FROM json_each(:datasets)))
  AND (:statuses = '[]' OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:error_codes = '[]' OR last_error_code IN (SELECT value FROM json_each(:error_codes)))
  AND (:any_event_time = 1 OR (event_time_ms >= :event_time_start_ms AND event_time_ms < :event_time_end_ms))
  AND created_at_ms >= :created_after_ms AND created_at_ms < :created_before_ms AND attempts <= :attempts_max
  AND wal_id > :after
ORDER BY wal_id LIMIT :row_limit

-- name: replays.select_named
SELECT wal_id, version, dataset, status, last_error_code, attempts, grants, object_uri FROM units
WHERE wal_id IN (SELECT value FROM json_each(:wal_ids))
  AND (:datasets = '[]' OR dataset IN (SELECT value FROM json_each(:datasets)))
  AND (:statuses = '[]' OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:error_codes = '[]' OR last_error_code IN (SELECT value FROM json_each(:error_codes)))
  AND (:any_event_time = 1 OR (event_time_ms >= :event_time_start_ms AND event_time_ms < :event_time_end_ms))
  AND created_at_ms >= :created_after_ms AND created_at_ms < :created_before_ms AND attempts <= :attempts_max
  AND wal_id > :after
ORDER BY wal_id LIMIT :row_limit

-- name: replays.versions
SELECT wal_id, version, status FROM units WHERE wal_id IN (SELECT value FROM json_each(:wal_ids))

-- name: replays.insert
INSERT INTO replays (
  replay_id, digest, plan, mode, reason, rationale, requested_by, state, created_at_ms, updated_at_ms, name, served,
  rate_milli, summary
) VALUES (
  :replay_id, :digest, :plan, :mode, :reason, :rationale, :requested_by, :state, :created_at_ms, :created_at_ms, :name,
  NULL, NULL, :summary
)
ON CONFLICT (replay_id) DO NOTHING
RETURNING replay_id

-- name: replays.add_unit
INSERT INTO replay_units (replay_id, wal_id, version, receipt, at_ms)
VALUES (:replay_id, :wal_id, :version, NULL, NULL)

-- name: replays.get
SELECT
  replay_id, digest, plan, mode, reason, rationale, requested_by, state, created_at_ms, updated_at_ms, name, served,
  rate_milli
FROM replays WHERE replay_id = :replay_id

-- name: replays.find
SELECT replay_id FROM replays WHERE replay_id >= :low AND replay_id < :high ORDER BY replay_id LIMIT :row_limit

-- name: replays.hold
SELECT state, served, updated_at_ms FROM replays WHERE replay_id = :replay_id

-- name: replays.list
-- Without their plans, which may be long, but for those of which no summary was kept.
SELECT
  replay_id, digest, CASE WHEN summary IS NULL THEN plan END, mode, reason, rationale, requested_by, state,
  created_at_ms, updated_at_ms, name, served, rate_milli, summary
FROM replays
WHERE created_at_ms <= :before_ms AND (created_at_ms < :before_ms OR replay_id > :after_id)
ORDER BY created_at_ms DESC, replay_id LIMIT :row_limit

-- name: replays.to_serve
-- What services carry out now, the oldest first.
SELECT replay_id FROM replays WHERE state = 'running' AND served = 1 ORDER BY created_at_ms, replay_id LIMIT :row_limit

-- name: replays.serve
UPDATE replays SET served = :served, rate_milli = :rate_milli, updated_at_ms = :at_ms WHERE replay_id = :replay_id

-- name: replays.touch
-- Later than it was, also within one millisecond: by this a service sees that another one has been there.
UPDATE replays SET updated_at_ms = CASE WHEN :at_ms > updated_at_ms THEN :at_ms ELSE updated_at_ms + 1 END
WHERE replay_id = :replay_id

-- name: replays.bytes
-- Of how many units the size is known, and how much it is.
SELECT COUNT(size), COALESCE(SUM(size), 0) FROM units WHERE wal_id IN (SELECT value FROM json_each(:wal_ids))

-- name: replays.in_cell
-- Units of a product that have failed, or are quarantined, whose data are of this time.
SELECT wal_id FROM units
WHERE dataset = :dataset AND status IN ('failed', 'quarantined')
  AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) >= :start_ms
  AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) < :end_ms
  AND (:product = '' OR json_extract(extra, '$.product') = :product)
ORDER BY wal_id LIMIT :row_limit

-- name: replays.open_units
SELECT r.wal_id, r.version FROM replay_units r
WHERE r.replay_id = :replay_id AND r.receipt IS NULL AND r.wal_id > :after
ORDER BY r.wal_id LIMIT :row_limit

-- name: replays.moved_units
SELECT r.wal_id FROM replay_units r JOIN units u ON u.wal_id = r.wal_id
WHERE r.replay_id = :replay_id AND r.receipt IS NULL AND u.version <> r.version
ORDER BY r.wal_id LIMIT :row_limit

-- name: replays.receipt
UPDATE replay_units SET receipt = :receipt, at_ms = :at_ms
WHERE replay_id = :replay_id AND wal_id = :wal_id AND receipt IS NULL

-- name: replays.receipts
SELECT
  r.wal_id, r.version, r.receipt, r.at_ms, u.dataset, u.object_uri, u.status, u.last_error_code, u.attempts
FROM replay_units r LEFT JOIN units u ON u.wal_id = r.wal_id
WHERE r.replay_id = :replay_id AND r.wal_id > :after ORDER BY r.wal_id LIMIT :row_limit

-- name: replays.since
SELECT u.status, COUNT(*) FROM replay_units r JOIN units u ON u.wal_id = r.wal_id
WHERE r.replay_id = :replay_id AND r.receipt = 'replayed' GROUP BY u.status ORDER BY u.status

-- name: replays.tally
SELECT COALESCE(receipt, ''), COUNT(*) FROM replay_units WHERE replay_id = :replay_id GROUP BY receipt

-- name: replays.settle
UPDATE replays SET state = :state, updated_at_ms = :at_ms WHERE replay_id = :replay_id

-- name: replays.agreed
SELECT request_id FROM approvals
WHERE subject = :replay_id AND kind = 'replay' AND state = 'approved' AND digest = :digest
  AND (used_by = :replay_id OR (used_at_ms IS NULL AND expires_at_ms > :now_ms))
ORDER BY request_id LIMIT 1

-- name: replays.use_approval
UPDATE approvals SET used_by = :replay_id, used_at_ms = :now_ms WHERE request_id = :request_id AND used_at_ms IS NULL
