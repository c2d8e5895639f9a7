-- Pages of what may go, in the order of age. Each row: where it is in that order, its time, a 1 for each reason to
-- keep it, and what is stored. `removed_…` takes away what the page was decided on.

-- name: retention.marks
SELECT kind, mark, before_ms, gone_rows, gone_bytes, at_ms FROM retention_marks ORDER BY kind

-- name: retention.mark
SELECT mark, before_ms, gone_rows, gone_bytes FROM retention_marks WHERE kind = :kind

-- name: retention.put_mark
INSERT INTO retention_marks (kind, mark, before_ms, gone_rows, gone_bytes, at_ms)
VALUES (:kind, :mark, :before_ms, :gone_rows, :gone_bytes, :at_ms)
ON CONFLICT (kind) DO UPDATE SET
  mark = excluded.mark, gone_rows = retention_marks.gone_rows + excluded.gone_rows,
  gone_bytes = retention_marks.gone_bytes + excluded.gone_bytes, at_ms = excluded.at_ms,
  before_ms = CASE WHEN excluded.before_ms > retention_marks.before_ms
    THEN excluded.before_ms ELSE retention_marks.before_ms END

-- name: retention.seals
-- The seals of a stream after a row of the chain.
SELECT number, details FROM governance
WHERE subject = :stream AND kind = 'seal' AND number > :after_number ORDER BY number LIMIT :row_limit

-- name: retention.seal
SELECT number, details FROM governance WHERE number = :number AND kind = 'seal' AND subject = :stream

-- name: retention.entries
-- What has gone of sealed streams.
SELECT number, subject, details FROM governance
WHERE kind = 'retention' AND number > :after_number ORDER BY number LIMIT :row_limit

-- name: retention.removed_outbox
DELETE FROM outbox WHERE number = :number AND delivered_at_ms IS NOT NULL

-- name: retention.removed_hook_deliveries
DELETE FROM hook_deliveries WHERE number = :number

-- name: retention.removed_unit_history
DELETE FROM unit_pages WHERE number = :number

-- name: retention.partitions
-- Of the outbox: name, from, to, and the last number that was given. SQLite has none.
SELECT '' AS name, 0 AS low, 0 AS high, 0 AS given WHERE 1 = 0

-- name: retention.partition_end
-- When the last rows of a partition were recorded.
SELECT MAX(l.recorded_at_ms) FROM (
  SELECT recorded_at_ms FROM outbox WHERE number >= :low AND number < :high ORDER BY number DESC LIMIT 1000
) AS l

-- name: retention.trails
SELECT wal_id, status, trail FROM units WHERE wal_id IN (SELECT value FROM json_each(:wal_ids))

-- name: retention.invocations
-- Kept: not answered yet; the newest that tells of its window; the newest of its source or of its dataset.
SELECT
  i.number, i.requested_at_ms,
  CASE WHEN i.outcome IS NULL THEN 1 ELSE 0 END,
  CASE WHEN (i.outcome IN ('refused', 'noop') OR (i.outcome = 'failed' AND i.run_id IS NULL)) AND NOT EXISTS (
    SELECT 1 FROM invocations n
    WHERE n.source_id = i.source_id AND n.window_end_ms = i.window_end_ms AND n.window_start_ms = i.window_start_ms
      AND n.number > i.number AND n.dataset_id = i.dataset_id
      AND (n.outcome IN ('refused', 'noop') OR (n.outcome = 'failed' AND n.run_id IS NULL))
  ) THEN 1 ELSE 0 END,
  CASE WHEN EXISTS (SELECT 1 FROM invocations s WHERE s.source_id = i.source_id AND s.number > i.number)
    AND EXISTS (SELECT 1 FROM invocations d WHERE d.dataset_id = i.dataset_id AND d.number > i.number)
    THEN 0 ELSE 1 END,
  i.number, i.invocation_id, i.run_id, i.source_id, i.dataset_id, i.trigger_type, i.idempotency_key, i.outcome,
  i.actor, i.requested_at_ms, i.claimed_actor, i.rationale, i.ticket, i.reason, i.gates, i.reason_code,
  i.window_start_ms, i.window_end_ms
FROM invocations i WHERE i.number > :after_number ORDER BY i.number LIMIT :row_limit

-- name: retention.removed_invocations
DELETE FROM invocations WHERE number = :number

-- name: retention.attempts
-- Kept: under way; of a run that may be tried again, or that is not known to have succeeded; the last of all, so that
-- its number is not given again.
SELECT
  a.number, a.started_at_ms,
  CASE WHEN a.ending IS NULL THEN 1 ELSE 0 END,
  CASE WHEN EXISTS (SELECT 1 FROM runs r WHERE r.run_id = a.run_id AND r.status = 'success'
      AND r.end_time_ms < :before_ms) THEN 0 ELSE 1 END,
  CASE WHEN a.number = (SELECT MAX(l.number) FROM attempts l) THEN 1 ELSE 0 END,
  a.number, a.run_id, a.attempt, a.node, a.lineage_id, a.invocation_id, a.started_at_ms, a.delay_ms, a.ended_at_ms,
  a.ending, a.outcome, a.error_code, a.error_class, a.error_message, a.retryable, a.inputs_hash, a.validation,
  a.code_sha, a.energy
FROM attempts a WHERE a.number > :after_number ORDER BY a.number LIMIT :row_limit

-- name: retention.removed_attempts
DELETE FROM attempts WHERE number = :number

-- name: retention.call_retries
SELECT
  t.number, t.at_ms,
  CASE WHEN EXISTS (SELECT 1 FROM runs r WHERE r.run_id = t.run_id AND r.status = 'success'
      AND r.end_time_ms < :before_ms) THEN 0 ELSE 1 END,
  CASE WHEN t.number = (SELECT MAX(l.number) FROM retries l) THEN 1 ELSE 0 END,
  t.number, t.run_id, t.attempt, t.node, t.call_number, t.try_number, t.delay_ms, t.error_class, t.retryable,
  t.outcome, t.circuit_open, t.at_ms, t.energy
FROM retries t WHERE t.number > :after_number ORDER BY t.number LIMIT :row_limit

-- name: retention.removed_call_retries
DELETE FROM retries WHERE number = :number

-- name: retention.trigger_documents
SELECT
  r.start_time_ms, r.run_id, r.start_time_ms,
  CASE WHEN r.status = 'success' AND r.end_time_ms < :before_ms THEN 0 ELSE 1 END,
  d.run_id, d.documents
FROM runs r LEFT JOIN run_documents d ON d.run_id = r.run_id
WHERE (r.start_time_ms, r.run_id) > (:after_ms, :after_id) ORDER BY r.start_time_ms, r.run_id LIMIT :row_limit

-- name: retention.removed_trigger_documents
DELETE FROM run_documents WHERE run_id = :run_id

-- name: retention.inputs
-- Kept: of a run that may be tried again, also if another has found the same; found again by a younger run.
SELECT
  r.start_time_ms, r.run_id, r.start_time_ms,
  CASE WHEN r.status = 'success' AND r.end_time_ms < :before_ms AND r.fingerprint NOT IN (
    SELECT f.fingerprint FROM runs f WHERE f.status = 'failed' AND f.fingerprint IS NOT NULL
    UNION ALL
    SELECT u.fingerprint FROM runs u WHERE u.status = 'running' AND u.fingerprint IS NOT NULL
  ) THEN 0 ELSE 1 END,
  CASE WHEN EXISTS (SELECT 1 FROM runs n WHERE n.fingerprint = r.fingerprint AND n.start_time_ms >= :before_ms)
    THEN 1 ELSE 0 END,
  i.fingerprint, i.found
FROM runs r LEFT JOIN inputs i ON i.fingerprint = r.fingerprint
WHERE (r.start_time_ms, r.run_id) > (:after_ms, :after_id) ORDER BY r.start_time_ms, r.run_id LIMIT :row_limit

-- name: retention.removed_inputs
DELETE FROM inputs WHERE fingerprint = :fingerprint

-- name: retention.previews
-- Kept: an approval of it is not decided; a request that it is of has no end, or its run may be tried again.
SELECT
  p.made_at_ms, p.digest, p.made_at_ms,
  CASE WHEN p.digest IN (
    SELECT a.digest FROM approvals a
    WHERE (CASE WHEN a.rejected_at_ms IS NOT NULL THEN 'rejected' WHEN a.superseded_by IS NOT NULL THEN 'superseded'
      WHEN a.revoked_at_ms IS NOT NULL THEN 'revoked' ELSE a.state END) = 'requested'
  ) THEN 1 ELSE 0 END,
  CASE WHEN p.digest IN (
    SELECT q.plan_digest FROM requests q
    WHERE q.state IN ('open', 'running', 'awaiting-approval') AND q.plan_digest IS NOT NULL
    UNION ALL
    SELECT q.plan_digest FROM runs r JOIN requests q ON q.run_id = r.run_id
    WHERE r.status = 'failed' AND q.is_bound = 1 AND q.run_id IS NOT NULL AND q.plan_digest IS NOT NULL
  ) THEN 1 ELSE 0 END,
  p.digest, p.plan, p.made_at_ms
FROM previews p
WHERE (p.made_at_ms, p.digest) > (:after_ms, :after_id) ORDER BY p.made_at_ms, p.digest LIMIT :row_limit

-- name: retention.removed_previews
DELETE FROM previews WHERE digest = :digest

-- name: retention.request_members
-- Kept: of a request without an end, or whose run may be tried again.
SELECT
  q.accepted_at_ms, q.request_id, COALESCE(m.member, ''), q.accepted_at_ms,
  CASE WHEN q.state IN ('done', 'cancelled') AND q.ended_at_ms < :before_ms
    AND (q.run_id IS NULL OR EXISTS (SELECT 1 FROM runs r WHERE r.run_id = q.run_id AND r.status = 'success'))
    THEN 0 ELSE 1 END,
  m.request_id, m.member, m.dataset, m.start_ms, m.end_ms, m.at_ms
FROM requests q LEFT JOIN request_members m ON m.request_id = q.request_id
WHERE q.kind = 'upstream-event' AND q.kind <> 'cron'
  AND (q.accepted_at_ms, q.request_id) >= (:after_ms, :after_id)
  AND (q.accepted_at_ms > :after_ms OR q.request_id > :after_id OR m.member > :after_member)
ORDER BY q.accepted_at_ms, q.request_id, m.member LIMIT :row_limit

-- name: retention.removed_request_members
DELETE FROM request_members WHERE request_id = :request_id AND member = :member

-- name: retention.request_details
-- Of webhooks: the others have none that a message told. Kept: of a request without an end, or whose run may be tried
-- again. Those that were slimmed have no scheme any more.
SELECT
  q.accepted_at_ms, q.request_id, q.accepted_at_ms,
  CASE WHEN q.state IN ('done', 'cancelled') AND q.ended_at_ms < :before_ms
    AND (q.run_id IS NULL OR EXISTS (SELECT 1 FROM runs r WHERE r.run_id = q.run_id AND r.status = 'success'))
    THEN 0 ELSE 1 END,
  CASE WHEN REPLACE(q.details, '"scheme"', '') <> q.details THEN q.details END, q.request_id, q.claimed_actor, q.rationale, q.ticket
FROM requests q
WHERE q.kind = 'webhook' AND q.kind <> 'cron' AND (q.accepted_at_ms, q.request_id) > (:after_ms, :after_id)
ORDER BY q.accepted_at_ms, q.request_id LIMIT :row_limit

-- name: retention.slimmed_request_details
-- The key, its digests, the window and what became of it stay.
UPDATE requests SET details = :details, claimed_actor = NULL, rationale = NULL, ticket = NULL
WHERE request_id = :request_id AND state IN ('done', 'cancelled')

-- name: retention.run_states
-- What a pipeline run skipped: it names the run that made the result, and holds nothing else of it.
SELECT
  p.number, COALESCE(s.dataset_id, ''), p.started_at_ms,
  CASE WHEN p.state = 'success' AND p.ended_at_ms < :before_ms THEN 0 ELSE 1 END,
  s.run_id, s.dataset_id, s.lakefs_branch, s.inputs_hash, s.outcome, s.recorded_at_ms, s.attempt, s.code_sha,
  s.skipped_because, s.pipeline_id, s.duration_ms, s.reason
FROM passes p LEFT JOIN run_states s ON s.run_id = p.run_id AND s.outcome = 'skipped'
WHERE p.number >= :after_number AND (p.number > :after_number OR s.dataset_id > :after_id)
ORDER BY p.number, s.dataset_id LIMIT :row_limit

-- name: retention.removed_run_states
DELETE FROM run_states WHERE run_id = :run_id AND dataset_id = :dataset_id AND outcome = 'skipped'

-- name: retention.replay_units
SELECT
  y.created_at_ms, y.replay_id, COALESCE(u.wal_id, ''), y.created_at_ms,
  CASE WHEN y.state = 'done' AND y.updated_at_ms < :before_ms THEN 0 ELSE 1 END,
  u.replay_id, u.wal_id, u.version, u.receipt, u.at_ms
FROM replays y LEFT JOIN replay_units u ON u.replay_id = y.replay_id
WHERE y.created_at_ms >= :after_ms
  AND (y.created_at_ms > :after_ms OR y.replay_id > :after_id OR (y.replay_id = :after_id AND u.wal_id > :after_member))
ORDER BY y.created_at_ms, y.replay_id, u.wal_id LIMIT :row_limit

-- name: retention.removed_replay_units
DELETE FROM replay_units WHERE replay_id = :replay_id AND wal_id = :wal_id

-- name: retention.dead_bodies
-- Kept: a person has not released it.
SELECT
  d.last_at_ms, d.envelope_hash, d.record_index, d.last_at_ms,
  CASE WHEN d.state = 'held' THEN 1 ELSE 0 END,
  d.body, d.envelope_hash, d.record_index
FROM dead_messages d
WHERE d.last_at_ms >= :after_ms
  AND (d.last_at_ms > :after_ms OR (d.envelope_hash, d.record_index) > (:after_id, :after_index))
ORDER BY d.last_at_ms, d.envelope_hash, d.record_index LIMIT :row_limit

-- name: retention.removed_dead_bodies
UPDATE dead_messages SET body = NULL WHERE envelope_hash = :envelope_hash AND record_index = :record_index
