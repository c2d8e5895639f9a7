-- name: units.get_for_update
SELECT
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms, status,
  attempts, last_attempt_at_ms, last_error_code, last_error_message, integrity_status, metadata_status,
  stac_status, provenance_status, stac_item_id, stac_collection_id, stac_item_href, ingest_run_id, worker_id,
  replay_reason, created_at_ms, updated_at_ms, version, extra,
  etag, sequencer, size, version_id, content_version, done_version, lease_until_ms, not_before_ms, grants,
  grant_attempts, granted_at_ms, alone, removed, unclear, replacing, trail, removal_sequencer,
  removal_version_id
FROM units WHERE wal_id = :wal_id FOR UPDATE

-- name: units.hold_all
SELECT wal_id FROM units WHERE wal_id IN (SELECT jsonb_array_elements_text(:wal_ids::jsonb))
ORDER BY wal_id FOR UPDATE

-- name: units.claim
UPDATE units SET
  status = 'in_progress', version = version + 1, worker_id = :worker_id, ingest_run_id = :ingest_run_id,
  last_attempt_at_ms = :now_ms, updated_at_ms = :now_ms, lease_until_ms = :lease_until_ms,
  attempts = CASE WHEN attempts = 0 THEN 1 ELSE attempts END, grant_attempts = grant_attempts + 1,
  granted_at_ms = CASE WHEN grant_attempts = 0 THEN :now_ms ELSE granted_at_ms END,
  trail = trail || :trail
-- As an array: a plan that asks again for each row would find other rows each time. The oldest of one sixteenth of
-- the lane, then of the next, and so around, until there are enough: others begin at others.
WHERE wal_id = ANY (ARRAY(
  SELECT due.wal_id FROM generate_series(:first_part, :first_part + 15) AS part CROSS JOIN LATERAL (
    SELECT u.wal_id FROM units u
    WHERE u.status = 'pending' AND u.dataset = :dataset AND u.provider = :provider AND u.alone = :alone
      AND (hashtext(u.wal_id) & 15) = (part & 15) AND u.not_before_ms <= :now_ms
    ORDER BY u.not_before_ms LIMIT :row_limit FOR UPDATE SKIP LOCKED
  ) AS due LIMIT :row_limit
)) AND COALESCE(status, '') = 'pending'
RETURNING
  wal_id, version, dataset, provider, queue, object_uri, event_time_ms, attempts, replay_reason, extra,
  etag, sequencer, size, version_id, content_version, done_version, grants, grant_attempts, granted_at_ms,
  alone, removed, unclear, replacing, last_attempt_at_ms, trail

-- name: units.next_lane
-- The first of a sixteenth is enough where it is due: at the head of the whole lane is what is left of all that was
-- claimed a moment ago.
WITH lane AS (
  SELECT dataset, provider, alone, not_before_ms FROM units
  WHERE status = 'pending' AND (dataset, provider, alone) > (:dataset, :provider, :alone)
  ORDER BY dataset, provider, alone, (hashtext(wal_id) & 15), not_before_ms LIMIT 1
)
SELECT lane.dataset, lane.provider, lane.alone,
  CASE WHEN lane.not_before_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint THEN lane.not_before_ms
  ELSE (
    SELECT MIN(u.not_before_ms) FROM units u
    WHERE u.status = 'pending' AND u.dataset = lane.dataset AND u.provider = lane.provider AND u.alone = lane.alone
  ) END
FROM lane

-- name: unit_pages.next
SELECT nextval('unit_page_numbers')

-- name: unit_pages.insert
INSERT INTO unit_pages (number, event, status, at_ms, worker_id, members, packed, form)
VALUES (:number, :event, :status, :at_ms, :worker_id, :members, :packed, 44)

-- name: outbox.of_pages
SELECT number, event_id, topic, subject, body, recorded_at_ms, tries, not_before_ms, delivered_at_ms, packed
FROM outbox
WHERE topic = 'unit-lineage' AND subject IN (
  SELECT 'units/' || p.at_ms FROM unit_pages p
  WHERE p.number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:numbers::jsonb)))
    AND p.status IN ('succeeded', 'failed')
)
ORDER BY number

-- name: unit_pages.of
SELECT number, event, status, at_ms, worker_id, members, packed FROM unit_pages
WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:numbers::jsonb))) ORDER BY number

-- name: unit_deltas.take
DELETE FROM unit_deltas
WHERE number = ANY (ARRAY(SELECT number FROM unit_deltas ORDER BY number LIMIT :row_limit FOR UPDATE SKIP LOCKED))
RETURNING dataset, name, amount, high_ms

-- name: units.contents
SELECT wal_id, status, etag, size, removed FROM units
WHERE wal_id IN (SELECT jsonb_array_elements_text(:wal_ids::jsonb))

-- name: units.leased_by
SELECT wal_id FROM units
WHERE status = 'in_progress' AND worker_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:workers::jsonb)))
ORDER BY lease_until_ms LIMIT :row_limit

-- name: unit_workers.named
SELECT number FROM unit_workers
WHERE worker_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:worker_ids::jsonb)))

-- name: unit_workers.of
SELECT number, worker_id FROM unit_workers
WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:numbers::jsonb)))

-- name: units.trails
SELECT wal_id, trail FROM units WHERE wal_id IN (SELECT jsonb_array_elements_text(:wal_ids::jsonb))

-- name: units.objects
SELECT wal_id, object_uri FROM units WHERE wal_id IN (SELECT jsonb_array_elements_text(:wal_ids::jsonb))

-- name: units.of_page
SELECT wal_id FROM units
WHERE wal_id IN (SELECT jsonb_array_elements_text(:wal_ids::jsonb)) AND trail LIKE :trail

-- name: units.insert
INSERT INTO units (
  wal_id, dataset, object_uri, provider, queue, event_time_ms, time_range_start_ms, time_range_end_ms,
  created_at_ms, updated_at_ms, extra, etag, sequencer, size, version_id, not_before_ms, replay_reason, trail,
  status, version, attempts, grant_attempts, granted_at_ms, last_attempt_at_ms, lease_until_ms, worker_id,
  ingest_run_id, integrity_status, metadata_status, stac_status, provenance_status,
  content_version, done_version, grants, alone, removed, unclear, replacing
)
SELECT line.*, 'unknown', 'unknown', 'unknown', 'unknown', 1, 0, 1, 0, 0, 0, 0
FROM json_to_recordset(:lines::json) AS line (
  wal_id text, dataset text, object_uri text, provider text, queue text, event_time_ms bigint,
  time_range_start_ms bigint, time_range_end_ms bigint, created_at_ms bigint, updated_at_ms bigint,
  extra text, etag text, sequencer text, size bigint, version_id text, not_before_ms bigint,
  replay_reason text, trail text, status text, version bigint, attempts bigint, grant_attempts bigint,
  granted_at_ms bigint, last_attempt_at_ms bigint, lease_until_ms bigint, worker_id text, ingest_run_id text
)
ON CONFLICT (wal_id) DO NOTHING

-- name: units.succeed
-- Held in the order of their ids, so that two at once never wait in a circle. The status within COALESCE: the index of
-- what is leased would serve, too, and after a quiet hour its statistics promise one row, where a fleet has thousands.
WITH held AS (
  SELECT u.wal_id FROM units u WHERE u.wal_id = ANY (ARRAY(SELECT json_array_elements_text(:wal_ids::json)))
  ORDER BY u.wal_id FOR UPDATE
)
UPDATE units SET
  status = 'succeeded', version = units.version + 1, integrity_status = :integrity_status,
  metadata_status = :metadata_status, stac_status = :stac_status, provenance_status = :provenance_status,
  stac_collection_id = :stac_collection_id, stac_item_id = NULL, stac_item_href = NULL,
  done_version = :done_version, updated_at_ms = :now_ms, last_error_code = NULL, last_error_message = NULL,
  lease_until_ms = 0, alone = 0, unclear = 0, replacing = 0, trail = units.trail || :trail
WHERE units.wal_id = ANY (ARRAY(SELECT wal_id FROM held))
  AND units.version = :version AND units.content_version = :done_version
  AND COALESCE(units.status, '') = 'in_progress' AND (units.removed < 2 OR units.removed = :removed)

-- name: units.renew
-- Held in the order of their ids, as where they end.
WITH held AS (
  SELECT u.wal_id FROM units u WHERE u.wal_id = ANY (ARRAY(SELECT json_array_elements_text(:wal_ids::json)))
  ORDER BY u.wal_id FOR UPDATE
)
UPDATE units SET lease_until_ms =
  CASE WHEN lease_until_ms + :lease_ms < :until_ms THEN lease_until_ms + :lease_ms ELSE :until_ms END
WHERE units.wal_id = ANY (ARRAY(SELECT wal_id FROM held)) AND units.version = :version
  AND COALESCE(units.status, '') = 'in_progress'
RETURNING units.wal_id

-- name: unit_deltas.add
INSERT INTO unit_deltas (dataset, name, amount, high_ms)
SELECT * FROM json_to_recordset(:lines::json) AS line (
  dataset text, name text, amount bigint, high_ms bigint
)

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
    extra::jsonb ->> 'product' AS product, extra::jsonb ->> 'platform' AS platform,
    COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) AS data_ms,
    status, attempts, updated_at_ms, created_at_ms, last_error_code, replay_reason,
    CASE WHEN done_version > 0 OR status = 'succeeded' THEN 1 ELSE 0 END AS is_there
  FROM units
  WHERE dataset = :dataset
    AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) >= :start_ms
    AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) < :end_ms
    AND extra::jsonb ->> 'asset' IS NULL
) AS objects
GROUP BY data_ms / 3600000 * 3600000, product, platform

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
  AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) >= :start_ms
  AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) < :end_ms
  AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) <= :before_ms
  AND (COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) < :before_ms OR wal_id < :before)
  AND (:status = '' OR status = :status) AND (:error_code = '' OR last_error_code = :error_code)
  AND updated_at_ms >= :since_ms
ORDER BY COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) DESC, wal_id DESC LIMIT :row_limit

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
  AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) >= :start_ms
  AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) < :end_ms
  AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) <= :before_ms
  AND (COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) < :before_ms OR wal_id < :before)
  AND (:product = '' OR extra::jsonb ->> 'product' = :product) AND (:platform = '' OR extra::jsonb ->> 'platform' = :platform)
  AND (:error_code = '' OR last_error_code = :error_code) AND extra::jsonb ->> 'asset' IS NULL
  AND (:standing = '' OR :standing = CASE
    WHEN done_version > 0 OR status = 'succeeded' THEN 'there'
    WHEN status = 'in_progress' THEN 'running'
    WHEN status <> 'pending' THEN status
    WHEN attempts > 0 THEN 'retrying' ELSE 'waiting' END)
ORDER BY COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) DESC, wal_id DESC LIMIT :row_limit

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
WHERE dataset = :dataset AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) IS NULL
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
  AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) >= :start_ms
  AND COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms) < :end_ms
GROUP BY 1, 2
