-- name: locks.get_for_update
SELECT scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms FROM locks WHERE scope = :scope FOR UPDATE

-- name: locks.get_for_share
SELECT scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms FROM locks WHERE scope = :scope FOR SHARE

-- name: policy.take_part
-- Fair, which FOR SHARE of the row is not: what asks after a switch that waits for it waits behind that.
SELECT pg_advisory_xact_lock_shared(4900154, current_schema()::regnamespace::oid::int)

-- name: policy.keep_others_out
SELECT pg_advisory_xact_lock(4900154, current_schema()::regnamespace::oid::int)

-- name: policy.wait_briefly
SELECT CASE WHEN set_config('lock_timeout', '1000ms', true) <> '' THEN 1 END

-- name: policy.end_standing
-- Of hosts that were cut off or suspended after they had compared the epoch.
SELECT pg_terminate_backend(a.pid)
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = 4900154 AND l.objid = current_schema()::regnamespace::oid AND l.objsubid = 2
  AND a.pid <> pg_backend_pid() AND a.usename = current_user
  AND a.state IN ('idle in transaction', 'idle in transaction (aborted)')
  AND a.state_change < clock_timestamp() - make_interval(secs => CAST(:stood_ms AS DOUBLE PRECISION) / 1000)

-- name: outbox.hold
SELECT pg_advisory_xact_lock(4900148)

-- name: outbox.claim
UPDATE outbox SET not_before_ms = :until_ms, tries = tries + 1
WHERE number IN (
  SELECT o.number FROM outbox o
  WHERE o.topic = :topic AND o.delivered_at_ms IS NULL
    AND (o.not_before_ms <= :now_ms OR o.not_before_ms > :last_ms)
    AND NOT EXISTS (
      SELECT 1 FROM outbox e
      WHERE e.subject = o.subject AND e.topic = o.topic AND e.delivered_at_ms IS NULL
        AND e.number < o.number AND e.not_before_ms > 0 AND e.not_before_ms > :now_ms
        AND e.not_before_ms <= :last_ms
    )
  ORDER BY o.number LIMIT :row_limit FOR UPDATE SKIP LOCKED
)
RETURNING number, event_id, topic, subject, body, recorded_at_ms, tries, not_before_ms, delivered_at_ms, packed

-- name: runs.held
SELECT run_id FROM runs WHERE run_id = :run_id AND fence = :fence AND status = 'running' FOR UPDATE

-- name: chain_heads.get_for_update
SELECT number, hash FROM chain_heads WHERE name = 'governance' FOR UPDATE

-- name: runs.ended
SELECT run_id FROM runs WHERE run_id = :run_id AND attempts = :attempts AND status = 'failed' FOR UPDATE

-- name: held.get_for_update
SELECT
  held_id, kind, grain, subject, dataset_id, source_id, payload_hash, source_ids, code_sha, idempotency_key,
  attempts, error_classes, error_code, error_message, reason, held_at_ms, state, released_at_ms, released_by
FROM held WHERE held_id = :held_id AND state = 'held' FOR UPDATE

-- name: breakers.get_for_update
SELECT provider, state, failures, opened_at_ms, probe_until_ms, fence, tripped_at_ms, closed_at_ms
FROM breakers WHERE provider = :provider FOR UPDATE

-- name: incidents.get_for_update
SELECT
  cause, incident_id, about, name, kind, error_class, error_code, message, subject, state, occurrence, changes,
  affected, opened_at_ms, last_at_ms, resolved_at_ms, acknowledged_at_ms, acknowledged_by, escalated_at_ms
FROM incidents WHERE cause = :cause FOR UPDATE

-- name: approvals.usable
SELECT request_id FROM approvals
WHERE request_id = :request_id AND state = 'approved' AND digest = :digest AND revoked_at_ms IS NULL
  AND ((kind = 'attempt' AND used_at_ms IS NULL AND expires_at_ms > :now_ms)
    OR (kind = 'update' AND (used_at_ms IS NOT NULL OR expires_at_ms > :now_ms))
    OR (kind = 'standing' AND expires_at_ms > :now_ms))
FOR UPDATE

-- name: approvals.get_for_update
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale, terms, fingerprint, base_sequence,
  superseded_by, revoked_by, revoked_at_ms, revocation_rationale
FROM approvals WHERE request_id = :request_id FOR UPDATE

-- name: approvals.usable_change
SELECT request_id FROM approvals
WHERE request_id = :request_id AND kind = 'change' AND state = 'approved' AND used_at_ms IS NULL
  AND expires_at_ms > :now_ms AND digest = :digest
FOR UPDATE
