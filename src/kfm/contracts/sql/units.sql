-- name: units.insert
INSERT INTO units (
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms,
  created_at_ms, updated_at_ms, extra, etag, sequencer, size, version_id, not_before_ms, replay_reason, trail,
  status, version, attempts, grant_attempts, granted_at_ms, last_attempt_at_ms, lease_until_ms, worker_id,
  ingest_run_id, integrity_status, metadata_status, stac_status, provenance_status,
  content_version, done_version, grants, alone, removed, unclear, replacing
) VALUES (
  :wal_id, :dataset, :object_uri, :provider, :queue, :event_time_ms, :time_range_start_ms, :time_range_end_ms,
  :created_at_ms, :updated_at_ms, :extra, :etag, :sequencer, :size, :version_id, :not_before_ms,
  :replay_reason, :trail, :status, :version, :attempts, :grant_attempts, :granted_at_ms, :last_attempt_at_ms,
  :lease_until_ms, :worker_id, :ingest_run_id, 'unknown', 'unknown', 'unknown', 'unknown',
  1, 0, 1, 0, 0, 0, 0
)
ON CONFLICT (wal_id) DO NOTHING

-- name: units.bring_in
INSERT INTO units (
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms,
  status, attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status,
  metadata_status, stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href,
  ingest_run_id, worker_id, replay_reason, created_at_ms, updated_at_ms, version, extra, not_before_ms,
  trail,
  content_version, done_version, lease_until_ms, grants, grant_attempts, granted_at_ms, alone, removed, unclear,
  replacing
) VALUES (
  :wal_id, :dataset, :object_uri, :provider, :queue, :event_time_ms, :time_range_start_ms,
  :time_range_end_ms, :status, :attempts, :last_attempt_at_ms, :last_error_code, :last_error_message,
  :integrity_status, :metadata_status, :stac_status, :provenance_status, :stac_item_id, :stac_collection_id,
  :stac_item_href, :ingest_run_id, :worker_id, :replay_reason, :created_at_ms, :updated_at_ms, :version,
  :extra, :not_before_ms, :trail,
  1, 0, 0, 1, 0, 0, 0, 0, 0,
  0
)
ON CONFLICT (wal_id) DO NOTHING
RETURNING wal_id

-- name: units.get
SELECT
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms, status,
  attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status, metadata_status,
  stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href, ingest_run_id, worker_id,
  replay_reason, created_at_ms, updated_at_ms, version, extra,
  etag, sequencer, size, version_id, content_version, done_version, lease_until_ms, not_before_ms, grants,
  grant_attempts, granted_at_ms, alone, removed, unclear, replacing, trail, removal_sequencer,
  removal_version_id
FROM units WHERE wal_id = :wal_id

-- name: units.get_for_update
SELECT
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms, status,
  attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status, metadata_status,
  stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href, ingest_run_id, worker_id,
  replay_reason, created_at_ms, updated_at_ms, version, extra,
  etag, sequencer, size, version_id, content_version, done_version, lease_until_ms, not_before_ms, grants,
  grant_attempts, granted_at_ms, alone, removed, unclear, replacing, trail, removal_sequencer,
  removal_version_id
FROM units WHERE wal_id = :wal_id

-- name: units.hold_all
SELECT wal_id FROM units WHERE wal_id IN (SELECT value FROM json_each(:wal_ids)) ORDER BY wal_id

-- name: units.put
UPDATE units SET
  event_time_ms = :event_time_ms, time_range_start_ms = :time_range_start_ms,
  time_range_end_ms = :time_range_end_ms, status = :status, attempts = :attempts,
  last_attempt_at_ms = :last_attempt_at_ms, last_error_code = :last_error_code,
  last_error_message = :last_error_message, integrity_status = :integrity_status,
  metadata_status = :metadata_status, stac_status = :stac_status, provenance_status = :provenance_status,
  stac_item_id = :stac_item_id, stac_collection_id = :stac_collection_id, stac_item_href = :stac_item_href,
  ingest_run_id = :ingest_run_id, worker_id = :worker_id, replay_reason = :replay_reason,
  updated_at_ms = :updated_at_ms, version = :version, extra = :extra,
  etag = :etag, sequencer = :sequencer, size = :size, version_id = :version_id,
  content_version = :content_version, done_version = :done_version, lease_until_ms = :lease_until_ms,
  not_before_ms = :not_before_ms, grants = :grants, grant_attempts = :grant_attempts,
  granted_at_ms = :granted_at_ms, alone = :alone, removed = :removed, unclear = :unclear,
  replacing = :replacing, trail = :trail, removal_sequencer = :removal_sequencer,
  removal_version_id = :removal_version_id
WHERE wal_id = :wal_id AND version = :seen_version
RETURNING wal_id

-- name: units.advance
UPDATE units SET
  sequencer = :sequencer, version_id = :version_id, removal_sequencer = :removal_sequencer
WHERE wal_id = :wal_id

-- name: units.last_due
SELECT MAX(not_before_ms) FROM units
WHERE status = 'pending' AND dataset = :dataset AND provider = :provider AND alone = :alone

-- name: units.make_due
UPDATE units SET not_before_ms = 0
WHERE status = 'pending' AND dataset = :dataset AND provider = :provider AND alone = :alone
  AND not_before_ms > :latest_ms
RETURNING wal_id

-- name: units.next_lane
SELECT dataset, provider, alone, not_before_ms FROM units
WHERE status = 'pending' AND (dataset, provider, alone) > (:dataset, :provider, :alone)
ORDER BY dataset, provider, alone, not_before_ms LIMIT 1

-- name: units.succeed
-- As they were announced, all that end alike. What no index has to look at again is left as it is: that is half of the cost.
UPDATE units SET
  status = 'succeeded', version = version + 1, integrity_status = :integrity_status,
  metadata_status = :metadata_status, stac_status = :stac_status, provenance_status = :provenance_status,
  stac_collection_id = :stac_collection_id, stac_item_id = NULL, stac_item_href = NULL,
  done_version = :done_version, updated_at_ms = :now_ms, last_error_code = NULL, last_error_message = NULL,
  lease_until_ms = 0, alone = 0, unclear = 0, replacing = 0, trail = trail || :trail
WHERE wal_id IN (SELECT value FROM json_each(:wal_ids)) AND version = :version
  AND content_version = :done_version AND status = 'in_progress' AND (removed < 2 OR removed = :removed)

-- name: units.succeed_corrected
UPDATE units SET
  status = 'succeeded', version = version + 1, integrity_status = :integrity_status,
  metadata_status = :metadata_status, stac_status = :stac_status, provenance_status = :provenance_status,
  stac_collection_id = :stac_collection_id, stac_item_id = NULL, stac_item_href = NULL,
  extra = :extra, etag = :etag, size = :size, version_id = :version_id, done_version = :done_version,
  updated_at_ms = :now_ms, removed = CASE WHEN :gone > 0 THEN :gone ELSE removed END,
  last_error_code = NULL, last_error_message = NULL, lease_until_ms = 0, alone = 0, unclear = 0, replacing = 0,
  trail = trail || :trail
WHERE wal_id = :wal_id AND version = :version AND content_version = :done_version AND status = 'in_progress'
  AND (removed < 2 OR removed = :removed)

-- name: units.stac_status
UPDATE units SET stac_status = :stac_status WHERE wal_id = :wal_id

-- name: units.attempts
SELECT wal_id, attempts FROM units WHERE wal_id < :before ORDER BY wal_id DESC LIMIT :row_limit

-- name: units.renew
-- A renewal is no transition: the version, which is the fence, stays. A clock that is ahead adds one lease at most.
UPDATE units SET lease_until_ms =
  CASE WHEN lease_until_ms + :lease_ms < :until_ms THEN lease_until_ms + :lease_ms ELSE :until_ms END
WHERE wal_id IN (SELECT value FROM json_each(:wal_ids)) AND version = :version AND status = 'in_progress'
RETURNING wal_id

-- name: units.lapsed
SELECT wal_id FROM units
WHERE status = 'in_progress' AND lease_until_ms <= :now_ms ORDER BY lease_until_ms LIMIT :row_limit

-- name: units.last_leased
SELECT wal_id, lease_until_ms, last_attempt_at_ms FROM units
WHERE status = 'in_progress' ORDER BY lease_until_ms DESC LIMIT :row_limit

-- name: units.leased_by
SELECT wal_id FROM units
WHERE status = 'in_progress' AND worker_id IN (SELECT value FROM json_each(:workers))
ORDER BY lease_until_ms LIMIT :row_limit

-- name: units.find
SELECT wal_id FROM units WHERE wal_id >= :low AND wal_id < :high ORDER BY wal_id LIMIT :row_limit

-- name: units.list
-- Of all datasets, along their ids, which begin with the time that they cover.
SELECT
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms, status,
  attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status, metadata_status,
  stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href, ingest_run_id, worker_id,
  replay_reason, created_at_ms, updated_at_ms, version, extra,
  etag, sequencer, size, version_id, content_version, done_version, lease_until_ms, not_before_ms, grants,
  grant_attempts, granted_at_ms, alone, removed, unclear, replacing, trail, removal_sequencer,
  removal_version_id
FROM units
WHERE wal_id < :before AND wal_id >= :first AND (:status = '' OR status = :status)
  AND (:error_code = '' OR last_error_code = :error_code) AND updated_at_ms >= :since_ms
ORDER BY wal_id DESC LIMIT :row_limit

-- name: units.list_waiting
SELECT
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms, status,
  attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status, metadata_status,
  stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href, ingest_run_id, worker_id,
  replay_reason, created_at_ms, updated_at_ms, version, extra,
  etag, sequencer, size, version_id, content_version, done_version, lease_until_ms, not_before_ms, grants,
  grant_attempts, granted_at_ms, alone, removed, unclear, replacing, trail, removal_sequencer,
  removal_version_id
FROM units
WHERE status = 'pending' AND (:status = '' OR status = :status) AND (:dataset = '' OR dataset = :dataset)
  AND (:error_code = '' OR last_error_code = :error_code) AND updated_at_ms >= :since_ms
  AND (:tried = '' OR CASE WHEN attempts > 0 THEN 'yes' ELSE 'no' END = :tried)
  AND wal_id || '' < :before AND wal_id || '' >= :first
ORDER BY wal_id || '' DESC LIMIT :row_limit

-- name: units.list_leased
SELECT
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms, status,
  attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status, metadata_status,
  stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href, ingest_run_id, worker_id,
  replay_reason, created_at_ms, updated_at_ms, version, extra,
  etag, sequencer, size, version_id, content_version, done_version, lease_until_ms, not_before_ms, grants,
  grant_attempts, granted_at_ms, alone, removed, unclear, replacing, trail, removal_sequencer,
  removal_version_id
FROM units
WHERE status = 'in_progress' AND (:status = '' OR status = :status) AND (:dataset = '' OR dataset = :dataset)
  AND (:error_code = '' OR last_error_code = :error_code) AND updated_at_ms >= :since_ms
  AND wal_id || '' < :before AND wal_id || '' >= :first
ORDER BY wal_id || '' DESC LIMIT :row_limit

-- name: units.list_stuck
SELECT
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms, status,
  attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status, metadata_status,
  stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href, ingest_run_id, worker_id,
  replay_reason, created_at_ms, updated_at_ms, version, extra,
  etag, sequencer, size, version_id, content_version, done_version, lease_until_ms, not_before_ms, grants,
  grant_attempts, granted_at_ms, alone, removed, unclear, replacing, trail, removal_sequencer,
  removal_version_id
FROM units
WHERE status IN ('failed', 'quarantined') AND (:status = '' OR status = :status) AND (:dataset = '' OR dataset = :dataset)
  AND (:error_code = '' OR last_error_code = :error_code) AND updated_at_ms >= :since_ms
  AND wal_id || '' < :before AND wal_id || '' >= :first
ORDER BY wal_id || '' DESC LIMIT :row_limit

-- name: units.of_dataset
-- By data time, as hours of feeds count them: along the index of data times.
SELECT
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms, status,
  attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status, metadata_status,
  stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href, ingest_run_id, worker_id,
  replay_reason, created_at_ms, updated_at_ms, version, extra,
  etag, sequencer, size, version_id, content_version, done_version, lease_until_ms, not_before_ms, grants,
  grant_attempts, granted_at_ms, alone, removed, unclear, replacing, trail, removal_sequencer,
  removal_version_id
FROM units
WHERE dataset = :dataset
  AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) >= :start_ms
  AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) < :end_ms
  AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) <= :before_ms
  AND (COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) < :before_ms OR wal_id < :before)
  AND (:status = '' OR status = :status) AND (:error_code = '' OR last_error_code = :error_code)
  AND updated_at_ms >= :since_ms
ORDER BY COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) DESC, wal_id DESC LIMIT :row_limit

-- name: units.of_product
-- Objects of one product, as they are counted by `units.hours`: in its states, without those that describe others.
SELECT
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms, status,
  attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status, metadata_status,
  stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href, ingest_run_id, worker_id,
  replay_reason, created_at_ms, updated_at_ms, version, extra,
  etag, sequencer, size, version_id, content_version, done_version, lease_until_ms, not_before_ms, grants,
  grant_attempts, granted_at_ms, alone, removed, unclear, replacing, trail, removal_sequencer,
  removal_version_id
FROM units
WHERE dataset = :dataset
  AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) >= :start_ms
  AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) < :end_ms
  AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) <= :before_ms
  AND (COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) < :before_ms OR wal_id < :before)
  AND (:product = '' OR json_extract(extra, '$.product') = :product) AND (:platform = '' OR json_extract(extra, '$.platform') = :platform)
  AND (:error_code = '' OR last_error_code = :error_code) AND json_extract(extra, '$.asset') IS NULL
  AND (:standing = '' OR :standing = CASE
    WHEN done_version > 0 OR status = 'succeeded' THEN 'there'
    WHEN status = 'in_progress' THEN 'running'
    WHEN status <> 'pending' THEN status
    WHEN attempts > 0 THEN 'retrying' ELSE 'waiting' END)
ORDER BY COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) DESC, wal_id DESC LIMIT :row_limit

-- name: units.timeless
-- Those of a dataset whose data time is not known.
SELECT
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms, status,
  attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status, metadata_status,
  stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href, ingest_run_id, worker_id,
  replay_reason, created_at_ms, updated_at_ms, version, extra,
  etag, sequencer, size, version_id, content_version, done_version, lease_until_ms, not_before_ms, grants,
  grant_attempts, granted_at_ms, alone, removed, unclear, replacing, trail, removal_sequencer,
  removal_version_id
FROM units
WHERE dataset = :dataset AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) IS NULL
  AND wal_id < :before AND (:status = '' OR status = :status)
  AND (:error_code = '' OR last_error_code = :error_code) AND updated_at_ms >= :since_ms
ORDER BY wal_id DESC LIMIT :row_limit

-- name: units.flow
-- Objects of a span of data time by the hours in which they were taken in and came to their end.
SELECT
  created_at_ms / 3600000 * 3600000 AS taken_in_ms,
  CASE WHEN status IN ('pending', 'in_progress') THEN NULL ELSE updated_at_ms / 3600000 * 3600000 END AS ended_ms,
  COUNT(*)
FROM units
WHERE dataset = :dataset
  AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) >= :start_ms
  AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) < :end_ms
GROUP BY 1, 2

-- name: units.stuck_causes
-- What was given up, by dataset and error: from the index of what failed or was quarantined.
SELECT
  dataset, status, last_error_code, COUNT(*), MIN(updated_at_ms), MAX(updated_at_ms), MAX(last_error_message),
  MAX(wal_id), NULL
FROM units WHERE status IN ('failed', 'quarantined')
GROUP BY dataset, status, last_error_code

-- name: units.stuck_causes_of
SELECT
  dataset, status, last_error_code, COUNT(*), MIN(updated_at_ms), MAX(updated_at_ms), MAX(last_error_message),
  MAX(wal_id), NULL
FROM units WHERE status IN ('failed', 'quarantined') AND dataset = :dataset
GROUP BY dataset, status, last_error_code

-- name: units.retry_causes
-- What waits for one more attempt, by dataset and error: from the index of what waits.
SELECT
  dataset, 'retrying', last_error_code, COUNT(*), MIN(updated_at_ms), MAX(updated_at_ms), MAX(last_error_message),
  MAX(wal_id), MIN(not_before_ms)
FROM units WHERE status = 'pending' AND attempts > 0
GROUP BY dataset, last_error_code

-- name: units.retry_causes_of
-- Any provider: so it is along the index of what waits.
SELECT
  dataset, 'retrying', last_error_code, COUNT(*), MIN(updated_at_ms), MAX(updated_at_ms), MAX(last_error_message),
  MAX(wal_id), MIN(not_before_ms)
FROM units WHERE dataset = :dataset AND provider >= '' AND status = 'pending' AND attempts > 0
GROUP BY dataset, last_error_code

-- name: dead_messages.causes
SELECT error_code, queue, COUNT(*), SUM(times), MIN(first_at_ms), MAX(last_at_ms)
FROM dead_messages WHERE state = 'held' GROUP BY error_code, queue

-- name: units.oldest_leased
-- By the index of what is being worked on.
SELECT MIN(wal_id || '') FROM units WHERE dataset || '' = :dataset AND status = 'in_progress'

-- name: units.oldest_open
-- By the index of what waits.
SELECT MIN(wal_id) FROM units WHERE dataset = :dataset AND provider >= '' AND status = 'pending'

-- name: unit_pages.next
SELECT MAX(
  COALESCE((SELECT MAX(number) FROM unit_pages), 0),
  COALESCE((SELECT value FROM counters WHERE name = 'unit_pages'), 0), :given
) + 1

-- name: unit_pages.insert
INSERT INTO unit_pages (number, event, status, at_ms, worker_id, members, packed, form, letters_before)
VALUES (
  :number, :event, :status, :at_ms, :worker_id, :members, :packed, 44,
  (SELECT COALESCE(MAX(o.number), 0) FROM outbox o)
)

-- name: unit_pages.of
SELECT number, event, status, at_ms, worker_id, members, packed FROM unit_pages
WHERE number IN (SELECT value FROM json_each(:numbers)) ORDER BY number

-- name: unit_pages.between
SELECT number, event, status, at_ms, worker_id, members, packed FROM unit_pages
WHERE number >= :first_number AND number <= :last_number ORDER BY number LIMIT :row_limit

-- name: unit_pages.count
SELECT COUNT(*) FROM (SELECT p.number FROM unit_pages p WHERE p.number > :after_number LIMIT :row_limit) AS newer

-- name: unit_deltas.add
INSERT INTO unit_deltas (dataset, name, amount, high_ms) VALUES (:dataset, :name, :amount, :high_ms)

-- name: unit_deltas.take
DELETE FROM unit_deltas
WHERE number IN (SELECT number FROM unit_deltas ORDER BY number LIMIT :row_limit)
RETURNING dataset, name, amount, high_ms

-- name: unit_totals.add
INSERT INTO unit_totals (dataset, name, amount, high_ms) VALUES (:dataset, :name, :amount, :high_ms)
ON CONFLICT (dataset, name) DO UPDATE SET
  amount = unit_totals.amount + excluded.amount,
  high_ms = CASE
    WHEN unit_totals.high_ms IS NULL OR excluded.high_ms > unit_totals.high_ms THEN excluded.high_ms
    ELSE unit_totals.high_ms
  END

-- name: unit_totals.list
SELECT dataset, name, SUM(amount), MAX(high_ms) FROM (
  SELECT dataset, name, amount, high_ms FROM unit_totals
  UNION ALL
  SELECT dataset, name, amount, high_ms FROM unit_deltas
) AS figures GROUP BY dataset, name

-- name: dead_messages.put
INSERT INTO dead_messages (
  envelope_hash, record_index, queue, error_code, error, body, times, first_at_ms, last_at_ms, state
) VALUES (:envelope_hash, :record_index, :queue, :error_code, :error, :body, 1, :at_ms, :at_ms, 'held')
ON CONFLICT (envelope_hash, record_index) DO UPDATE SET
  times = dead_messages.times + 1, last_at_ms = excluded.last_at_ms, error_code = excluded.error_code,
  error = excluded.error, state = 'held', body = COALESCE(dead_messages.body, excluded.body)

-- name: dead_messages.list
SELECT envelope_hash, record_index, queue, error_code, error, times, first_at_ms, last_at_ms, state
FROM dead_messages
WHERE last_at_ms <= :before_ms AND (last_at_ms < :before_ms OR (envelope_hash, record_index) > (:after_hash, :after_index))
ORDER BY last_at_ms DESC, envelope_hash, record_index LIMIT :row_limit

-- name: dead_messages.in_state
SELECT envelope_hash, record_index, queue, error_code, error, times, first_at_ms, last_at_ms, state
FROM dead_messages WHERE state = :state AND (:error_code = '' OR error_code = :error_code)
  AND last_at_ms <= :before_ms AND (:queue = '' OR queue = :queue)
  AND (last_at_ms < :before_ms OR (envelope_hash, record_index) > (:after_hash, :after_index))
ORDER BY last_at_ms DESC, envelope_hash, record_index LIMIT :row_limit

-- name: dead_messages.of_error
SELECT envelope_hash, record_index, queue, error_code, error, times, first_at_ms, last_at_ms, state
FROM dead_messages WHERE error_code = :error_code
  AND last_at_ms <= :before_ms AND (last_at_ms < :before_ms OR (envelope_hash, record_index) > (:after_hash, :after_index))
ORDER BY last_at_ms DESC, envelope_hash, record_index LIMIT :row_limit

-- name: dead_messages.bodies
SELECT envelope_hash, record_index, queue, error_code, error, body, times, first_at_ms, last_at_ms, state
FROM dead_messages WHERE envelope_hash = :envelope_hash ORDER BY record_index

-- name: dead_messages.release
UPDATE dead_messages SET state = 'released' WHERE envelope_hash = :envelope_hash AND state = 'held'
RETURNING record_index

-- name: units.contents
SELECT wal_id, status, etag, size, removed FROM units WHERE wal_id IN (SELECT value FROM json_each(:wal_ids))

-- name: unit_workers.enter
INSERT INTO unit_workers (worker_id) VALUES (:worker_id)
ON CONFLICT (worker_id) DO UPDATE SET worker_id = excluded.worker_id
RETURNING number

-- name: unit_workers.named
SELECT number FROM unit_workers WHERE worker_id IN (SELECT value FROM json_each(:worker_ids))

-- name: unit_workers.of
SELECT number, worker_id FROM unit_workers WHERE number IN (SELECT value FROM json_each(:numbers))

-- name: units.trails
SELECT wal_id, trail FROM units WHERE wal_id IN (SELECT value FROM json_each(:wal_ids))

-- name: units.objects
SELECT wal_id, object_uri FROM units WHERE wal_id IN (SELECT value FROM json_each(:wal_ids))

-- name: units.states
SELECT wal_id, status, version, attempts, trail FROM units
WHERE wal_id > :after_id ORDER BY wal_id LIMIT :row_limit

-- name: units.of_page
SELECT wal_id FROM units
WHERE wal_id IN (SELECT value FROM json_each(:wal_ids)) AND trail LIKE :trail

-- name: units.hours
-- Objects of a dataset by product, platform and hour of their data time, without those that describe others.
SELECT
  data_ms / 3600000 * 3600000 AS hour_ms, product, platform, SUM(is_there),
  SUM(CASE WHEN is_there = 0 AND status = 'in_progress' THEN 1 ELSE 0 END),
  SUM(CASE WHEN is_there = 0 AND status = 'pending' AND attempts = 0 THEN 1 ELSE 0 END),
  SUM(CASE WHEN is_there = 0 AND status = 'pending' AND attempts > 0 THEN 1 ELSE 0 END),
  SUM(CASE WHEN is_there = 0 AND status = 'failed' THEN 1 ELSE 0 END),
  SUM(CASE WHEN is_there = 0 AND status = 'quarantined' THEN 1 ELSE 0 END),
  MAX(CASE WHEN is_there = 1 THEN data_ms END),
  MAX(CASE WHEN is_there = 1 THEN updated_at_ms END),
  MAX(CASE WHEN is_there = 0 AND status IN ('failed', 'quarantined') THEN last_error_code END),
  SUM(CASE WHEN replay_reason IS NULL THEN 1 ELSE 0 END),
  SUM(CASE WHEN replay_reason IS NULL THEN created_at_ms - data_ms ELSE 0 END)
FROM (
  SELECT
    json_extract(extra, '$.product') AS product, json_extract(extra, '$.platform') AS platform,
    COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) AS data_ms,
    status, attempts, updated_at_ms, created_at_ms, last_error_code, replay_reason,
    CASE WHEN done_version > 0 OR status = 'succeeded' THEN 1 ELSE 0 END AS is_there
  FROM units
  WHERE dataset = :dataset
    AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) >= :start_ms
    AND COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms) < :end_ms
    AND json_extract(extra, '$.asset') IS NULL
) AS objects
GROUP BY data_ms / 3600000 * 3600000, product, platform
