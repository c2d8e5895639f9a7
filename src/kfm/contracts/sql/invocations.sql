-- name: invocations.insert
INSERT INTO invocations (
  invocation_id, run_id, source_id, dataset_id, trigger_type, idempotency_key, outcome, actor,
  requested_at_ms, claimed_actor, rationale, ticket, reason, gates, reason_code, window_start_ms, window_end_ms
) VALUES (
  :invocation_id, :run_id, :source_id, :dataset_id, :trigger_type, :idempotency_key, :outcome,
  :actor, :requested_at_ms, :claimed_actor, :rationale, :ticket, :reason, :gates,
  :reason_code, :window_start_ms, :window_end_ms
)

-- name: invocations.finish
UPDATE invocations SET outcome = :outcome, reason = :reason, reason_code = :reason_code, gates = :gates
WHERE run_id = :run_id AND invocation_id = :invocation_id AND outcome IS NULL

-- name: invocations.interrupt
UPDATE invocations SET outcome = 'failed', reason = :reason, reason_code = :reason_code
WHERE run_id = :run_id AND outcome IS NULL

-- name: invocations.interrupt_earlier
UPDATE invocations SET outcome = 'failed', reason = :reason, reason_code = :reason_code
WHERE run_id = :run_id AND outcome IS NULL AND NOT EXISTS (
  SELECT 1 FROM attempts a
  WHERE a.run_id = :run_id AND a.invocation_id = invocations.invocation_id AND a.ending IS NULL
)

-- name: invocations.list
SELECT
  invocation_id, run_id, source_id, dataset_id, trigger_type, idempotency_key, outcome, actor,
  requested_at_ms, claimed_actor, rationale, ticket, reason, gates, reason_code, window_start_ms, window_end_ms
FROM invocations
ORDER BY number DESC
LIMIT :row_limit

-- name: invocations.of_run
SELECT
  invocation_id, run_id, source_id, dataset_id, trigger_type, idempotency_key, outcome, actor,
  requested_at_ms, claimed_actor, rationale, ticket, reason, gates, reason_code, window_start_ms, window_end_ms
FROM invocations
WHERE run_id = :run_id
ORDER BY number DESC
LIMIT :row_limit

-- name: invocations.find
SELECT
  invocation_id, run_id, source_id, dataset_id, trigger_type, idempotency_key, outcome, actor,
  requested_at_ms, claimed_actor, rationale, ticket, reason, gates, reason_code, window_start_ms, window_end_ms
FROM invocations WHERE invocation_id >= :low AND invocation_id < :high ORDER BY invocation_id LIMIT :row_limit

-- name: invocations.by_id
SELECT
  invocation_id, run_id, source_id, dataset_id, trigger_type, idempotency_key, outcome, actor,
  requested_at_ms, claimed_actor, rationale, ticket, reason, gates, reason_code, window_start_ms, window_end_ms
FROM invocations WHERE invocation_id = :invocation_id
ORDER BY number DESC LIMIT 1

-- name: invocations.since
SELECT
  number,
  invocation_id, run_id, source_id, dataset_id, trigger_type, idempotency_key, outcome, actor,
  requested_at_ms, claimed_actor, rationale, ticket, reason, gates, reason_code, window_start_ms, window_end_ms
FROM invocations WHERE number > :after_number ORDER BY number LIMIT :row_limit

-- name: invocations.before
SELECT
  number,
  invocation_id, run_id, source_id, dataset_id, trigger_type, idempotency_key, outcome, actor,
  requested_at_ms, claimed_actor, rationale, ticket, reason, gates, reason_code, window_start_ms, window_end_ms
FROM invocations
WHERE (requested_at_ms, number) < (:until_ms, :before_number) AND requested_at_ms >= :from_ms
ORDER BY requested_at_ms DESC, number DESC
LIMIT :row_limit

-- name: invocations.of_ticket
SELECT
  invocation_id, run_id, source_id, dataset_id, trigger_type, idempotency_key, outcome, actor,
  requested_at_ms, claimed_actor, rationale, ticket, reason, gates, reason_code, window_start_ms, window_end_ms
FROM invocations WHERE ticket = :ticket ORDER BY number DESC LIMIT :row_limit

-- name: invocations.newest_of_source
SELECT
  invocation_id, run_id, source_id, dataset_id, trigger_type, idempotency_key, outcome, actor,
  requested_at_ms, claimed_actor, rationale, ticket, reason, gates, reason_code, window_start_ms, window_end_ms
FROM invocations WHERE source_id = :source_id
ORDER BY number DESC LIMIT 1

-- name: invocations.newest_of
SELECT
  invocation_id, run_id, source_id, dataset_id, trigger_type, idempotency_key, outcome, actor,
  requested_at_ms, claimed_actor, rationale, ticket, reason, gates, reason_code, window_start_ms, window_end_ms
FROM invocations WHERE dataset_id = :dataset_id
ORDER BY number DESC LIMIT 1
