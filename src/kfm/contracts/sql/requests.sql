-- name: requests.accept
INSERT INTO requests (
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms
) VALUES (
  :request_id, :key, :kind, :source_id, :dataset_id, :window_start_ms, :window_end_ms, :actor, :accepted_at_ms,
  :not_before_ms, :claimed_actor, :rationale, :ticket, :correction, :schedule_id, :instant_ms, :request_uuid,
  :envelope_hash, :needs_approval, :details, :state, :outcome, :reason, :run_id, :plan_digest, :claimed_by,
  :claim_until_ms, :tries, :cancel, :ended_at_ms
) ON CONFLICT (request_id) DO NOTHING
RETURNING request_id

-- name: requests.formerly
SELECT request_id, source_id FROM requests WHERE request_id = :former_id AND source_id = :source_id

-- name: requests.get
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms
FROM requests WHERE request_id = :request_id

-- name: requests.list
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms
FROM requests
WHERE (CAST(:state AS TEXT) IS NULL OR state = :state)
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
  AND (CAST(:source_id AS TEXT) IS NULL OR source_id = :source_id)
  AND (CAST(:schedule_id AS TEXT) IS NULL OR schedule_id = :schedule_id)
  AND (accepted_at_ms < :before_ms OR (accepted_at_ms = :before_ms AND request_id < :before_id))
ORDER BY accepted_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: requests.of_run
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms
FROM requests WHERE run_id = :run_id
ORDER BY accepted_at_ms, request_id LIMIT :row_limit

-- name: requests.find
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms
FROM requests WHERE substr(request_id, 1, :chars) = :start
ORDER BY request_id LIMIT :row_limit

-- name: requests.unsettled_of
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms
FROM requests
WHERE schedule_id = :schedule_id AND state IN ('open', 'running', 'awaiting-approval')
ORDER BY accepted_at_ms, request_id

-- name: requests.unsettled
SELECT state, COUNT(*) FROM requests WHERE state IN ('open', 'running', 'awaiting-approval') GROUP BY state

-- name: requests.next_due
SELECT MIN(not_before_ms) FROM requests WHERE state = 'open'

-- name: requests.claimed
SELECT request_id, claimed_by, claim_until_ms FROM requests WHERE state = 'running'

-- name: requests.release
UPDATE requests SET state = 'open', claimed_by = NULL, claim_until_ms = 0, not_before_ms = 0
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :claimed_by AND claim_until_ms = :until_ms

-- name: requests.due
SELECT 1 FROM requests WHERE state = 'open' AND not_before_ms <= :now_ms LIMIT 1

-- name: requests.claim
UPDATE requests SET state = 'running', claimed_by = :worker_id, claim_until_ms = :until_ms, tries = tries + 1
WHERE request_id IN (
  SELECT request_id FROM requests WHERE state = 'open' AND not_before_ms <= :now_ms
    AND dataset_id NOT IN (SELECT dataset_id FROM requests WHERE state = 'running')
  ORDER BY not_before_ms, accepted_at_ms, instant_ms LIMIT :row_limit
)
RETURNING
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms

-- name: requests.renew
UPDATE requests SET claim_until_ms = :until_ms
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id
RETURNING
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms

-- name: requests.hold
UPDATE requests SET claimed_by = claimed_by
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = requests.run_id AND runs.status = 'success')
RETURNING request_id

-- name: requests.begun
UPDATE requests SET run_id = :run_id
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id

-- name: requests.settle
UPDATE requests SET state = :state, outcome = :outcome, reason = :reason, run_id = :run_id, claimed_by = NULL,
  claim_until_ms = 0, ended_at_ms = :ended_at_ms
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id
RETURNING request_id

-- name: requests.reopen
UPDATE requests SET state = 'open', not_before_ms = :not_before_ms, reason = :reason, claimed_by = NULL,
  claim_until_ms = 0, tries = tries - CAST(:untried AS BIGINT)
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id
RETURNING request_id

-- name: requests.await_approval
UPDATE requests SET state = 'awaiting-approval', plan_digest = :plan_digest, reason = :reason, claimed_by = NULL,
  claim_until_ms = 0
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id
RETURNING request_id

-- name: requests.approved
UPDATE requests SET state = 'open', not_before_ms = 0, reason = :reason
WHERE request_id = :request_id AND state = 'awaiting-approval' AND plan_digest = :plan_digest
RETURNING request_id

-- name: requests.previewed
UPDATE requests SET plan_digest = :plan_digest WHERE request_id = :request_id

-- name: requests.cancel_waiting
UPDATE requests SET state = 'cancelled', outcome = 'cancelled', reason = :reason, ended_at_ms = :ended_at_ms
WHERE request_id = :request_id AND state IN ('open', 'awaiting-approval')
RETURNING request_id

-- name: requests.cancel_running
UPDATE requests SET cancel = :reason WHERE request_id = :request_id AND state = 'running'
RETURNING request_id

-- name: previews.insert
INSERT INTO previews (digest, plan, made_at_ms) VALUES (:digest, :plan, :made_at_ms)
ON CONFLICT (digest) DO NOTHING

-- name: previews.get
SELECT plan FROM previews WHERE digest = :digest
