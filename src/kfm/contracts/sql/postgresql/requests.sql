-- name: requests.claim
-- Materialized: a plan that asks again for each row would find other rows each time.
WITH due AS MATERIALIZED (
  SELECT request_id FROM requests WHERE state = 'open' AND not_before_ms <= :now_ms
    AND dataset_id NOT IN (SELECT dataset_id FROM requests WHERE state = 'running')
  ORDER BY not_before_ms, accepted_at_ms, instant_ms LIMIT :row_limit FOR UPDATE SKIP LOCKED
)
UPDATE requests AS request SET state = 'running', claimed_by = :worker_id, claim_until_ms = :until_ms,
  tries = request.tries + 1
FROM due WHERE request.request_id = due.request_id
RETURNING
  request.request_id, request.key, request.kind, request.source_id, request.dataset_id,
  request.window_start_ms, request.window_end_ms, request.actor, request.accepted_at_ms, request.not_before_ms,
  request.claimed_actor, request.rationale, request.ticket, request.correction, request.schedule_id,
  request.instant_ms, request.request_uuid, request.envelope_hash, request.needs_approval, request.details,
  request.state, request.outcome, request.reason, request.run_id, request.plan_digest, request.claimed_by,
  request.claim_until_ms, request.tries, request.cancel, request.ended_at_ms
