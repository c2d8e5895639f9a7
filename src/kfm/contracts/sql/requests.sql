-- name: requests.accept
INSERT INTO requests (
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
) VALUES (
  :request_id, :key, :kind, :source_id, :dataset_id, :window_start_ms, :window_end_ms, :actor, :accepted_at_ms,
  :not_before_ms, :claimed_actor, :rationale, :ticket, :correction, :schedule_id, :instant_ms, :request_uuid,
  :envelope_hash, :needs_approval, :details, :state, :outcome, :reason, :run_id, :plan_digest, :claimed_by,
  :claim_until_ms, :tries, :cancel, :ended_at_ms, :blocked_by, :is_bound, :by_person, :tried_at_ms
) ON CONFLICT (request_id) DO NOTHING
RETURNING request_id

-- name: requests.formerly
SELECT request_id, source_id FROM requests WHERE request_id IN (SELECT value FROM json_each(:former_ids))

-- name: requests.get
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests WHERE request_id = :request_id

-- name: requests.list
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests
WHERE (accepted_at_ms, request_id) < (:before_ms, :before_id)
  AND (CAST(:state AS TEXT) IS NULL OR state = :state)
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
ORDER BY accepted_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: requests.list_unsettled
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests
WHERE state IN ('open', 'running', 'awaiting-approval') AND state = :state
  AND (accepted_at_ms, request_id) < (:before_ms, :before_id)
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
  AND (CAST(:source_id AS TEXT) IS NULL OR source_id = :source_id)
  AND (CAST(:schedule_id AS TEXT) IS NULL OR schedule_id = :schedule_id)
ORDER BY accepted_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: requests.list_cancelled
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests
WHERE state = 'cancelled' AND (accepted_at_ms, request_id) < (:before_ms, :before_id)
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
  AND (CAST(:source_id AS TEXT) IS NULL OR source_id = :source_id)
  AND (CAST(:schedule_id AS TEXT) IS NULL OR schedule_id = :schedule_id)
ORDER BY accepted_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: requests.list_of_kind
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests
WHERE kind = :kind AND kind <> 'cron' AND (accepted_at_ms, request_id) < (:before_ms, :before_id)
  AND (CAST(:state AS TEXT) IS NULL OR state = :state)
ORDER BY accepted_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: requests.list_of_source
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests
WHERE source_id = :source_id AND (accepted_at_ms, request_id) < (:before_ms, :before_id)
  AND (CAST(:state AS TEXT) IS NULL OR state = :state)
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
  AND (CAST(:schedule_id AS TEXT) IS NULL OR schedule_id = :schedule_id)
ORDER BY accepted_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: requests.list_of_schedule
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests
WHERE schedule_id = :schedule_id AND (accepted_at_ms, request_id) < (:before_ms, :before_id)
  AND (CAST(:state AS TEXT) IS NULL OR state = :state)
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
ORDER BY accepted_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: requests.of_run
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests WHERE run_id = :run_id
ORDER BY accepted_at_ms, request_id LIMIT :row_limit

-- name: requests.find
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests WHERE request_id >= :low AND request_id < :high
ORDER BY request_id LIMIT :row_limit

-- name: requests.unsettled_of
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests
WHERE schedule_id = :schedule_id AND state IN ('open', 'running', 'awaiting-approval')
ORDER BY +accepted_at_ms, request_id

-- name: requests.is_asked_for
-- By this schedule, whatever came of it; or by another, without an end yet.
SELECT 1 FROM requests
WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
  AND (schedule_id = :schedule_id OR state IN ('open', 'running', 'awaiting-approval'))
LIMIT 1

-- name: requests.refused_of
-- Windows whose newest request a gate refused before anything ran, or a newer scheduled time overtook: those that
-- nothing else has covered since, the oldest first.
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests r
WHERE r.schedule_id = :schedule_id AND (r.outcome = 'refused' OR r.overtaken = 1)
  AND ((r.outcome = 'refused' AND r.run_id IS NULL) OR (r.state = 'cancelled' AND r.overtaken = 1))
  AND NOT EXISTS (
    SELECT 1 FROM requests q
    WHERE q.source_id = r.source_id AND q.window_start_ms = r.window_start_ms AND q.window_end_ms = r.window_end_ms
      AND q.request_id <> r.request_id
      AND (q.accepted_at_ms > r.accepted_at_ms OR (q.accepted_at_ms = r.accepted_at_ms AND q.request_id > r.request_id)
        OR q.state IN ('open', 'running', 'awaiting-approval') OR q.outcome = 'rejected')
  )
  AND NOT EXISTS (
    SELECT 1 FROM runs t
    WHERE t.source_id = r.source_id AND t.window_start_ms = r.window_start_ms AND t.window_end_ms = r.window_end_ms
      AND (r.overtaken = 0 OR t.status <> 'failed')
  )
  AND NOT EXISTS (
    SELECT 1 FROM settled_windows s
    WHERE s.source_id = r.source_id AND s.window_start_ms = r.window_start_ms AND s.window_end_ms = r.window_end_ms
  )
ORDER BY r.window_start_ms, r.window_end_ms LIMIT :row_limit

-- name: requests.overtaken
UPDATE requests SET overtaken = 1 WHERE request_id = :request_id

-- name: requests.unsettled
SELECT state, blocked_by, COUNT(*) FROM requests WHERE state IN ('open', 'running', 'awaiting-approval')
GROUP BY state, blocked_by

-- name: requests.all_due
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests WHERE state = 'open' AND not_before_ms <= :now_ms
ORDER BY not_before_ms, accepted_at_ms, request_id LIMIT :row_limit

-- name: requests.stranded
-- By a clock that was ahead: further than anything waits, or than its own attempt may, or in a turn that has not come.
-- The end of a freeze is a date that no clock has made.
SELECT 1 FROM requests
WHERE state = 'open' AND not_before_ms > :now_ms AND blocked_by IS DISTINCT FROM 'freeze' AND (
  not_before_ms > :last_ms
  OR EXISTS (
    SELECT 1 FROM retry_states s
    WHERE s.run_id = requests.run_id AND s.not_before_ms <= requests.not_before_ms
      AND s.not_before_ms - :now_ms > 2 * (s.not_before_ms - s.updated_at_ms)
  )
  OR EXISTS (
    SELECT 1 FROM turns t
    WHERE t.dataset_id = requests.dataset_id AND t.claimed_at_ms > :ahead_ms
      AND t.claimed_at_ms <= requests.not_before_ms
  )
)
LIMIT 1

-- name: requests.make_due
UPDATE requests SET not_before_ms = 0
WHERE state = 'open' AND not_before_ms > :now_ms AND blocked_by IS DISTINCT FROM 'freeze' AND (
  not_before_ms > :last_ms
  OR EXISTS (
    SELECT 1 FROM retry_states s
    WHERE s.run_id = requests.run_id AND s.not_before_ms <= requests.not_before_ms
      AND s.not_before_ms - :now_ms > 2 * (s.not_before_ms - s.updated_at_ms)
  )
  OR EXISTS (
    SELECT 1 FROM turns t
    WHERE t.dataset_id = requests.dataset_id AND t.claimed_at_ms > :ahead_ms
      AND t.claimed_at_ms <= requests.not_before_ms
  )
)
RETURNING request_id

-- name: requests.next_due
SELECT MIN(not_before_ms) FROM requests WHERE state = 'open'

-- name: requests.claimed
SELECT request_id, claimed_by, claim_until_ms FROM requests WHERE state = 'running'

-- name: requests.release
UPDATE requests SET state = 'open', claimed_by = NULL, claim_until_ms = 0, not_before_ms = 0
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :claimed_by AND claim_until_ms = :until_ms

-- name: requests.give_back
UPDATE requests SET state = 'open', claimed_by = NULL, claim_until_ms = 0, not_before_ms = 0
WHERE state = 'running' AND claimed_by = :worker_id

-- name: requests.due
SELECT 1 FROM requests WHERE state = 'open' AND not_before_ms <= :now_ms LIMIT 1

-- name: requests.due_retry
SELECT 1 FROM (
  WITH RECURSIVE waiting (dataset_id) AS (
    SELECT MIN(f.dataset_id) FROM requests f WHERE f.state = 'open' AND f.run_id IS NOT NULL
    UNION ALL
    SELECT (
      SELECT MIN(n.dataset_id) FROM requests n
      WHERE n.state = 'open' AND n.run_id IS NOT NULL AND n.dataset_id > waiting.dataset_id
    )
    FROM waiting WHERE waiting.dataset_id IS NOT NULL
  )
  SELECT dataset_id FROM waiting WHERE dataset_id IS NOT NULL
) AS datasets
WHERE EXISTS (
  SELECT 1 FROM requests d
  WHERE d.state = 'open' AND d.run_id IS NOT NULL AND d.dataset_id = datasets.dataset_id AND d.not_before_ms <= :now_ms
)
LIMIT 1

-- name: requests.due_burst
SELECT 1 FROM (
  WITH RECURSIVE waiting (dataset_id) AS (
    SELECT MIN(f.dataset_id) FROM requests f WHERE f.state = 'open' AND f.kind = 'upstream-event'
    UNION ALL
    SELECT (
      SELECT MIN(n.dataset_id) FROM requests n
      WHERE n.state = 'open' AND n.kind = 'upstream-event' AND n.dataset_id > waiting.dataset_id
    )
    FROM waiting WHERE waiting.dataset_id IS NOT NULL
  )
  SELECT dataset_id FROM waiting WHERE dataset_id IS NOT NULL
) AS datasets
WHERE EXISTS (
  SELECT 1 FROM requests d
  WHERE d.state = 'open' AND d.kind = 'upstream-event' AND d.dataset_id = datasets.dataset_id AND d.not_before_ms <= :now_ms
)
LIMIT 1

-- name: requests.turn
SELECT 1

-- name: requests.claim
-- The dataset whose last turn is longest ago, then what is due longest. From dataset to dataset, to the first of each.
UPDATE requests SET state = 'running', claimed_by = :worker_id, claim_until_ms = :until_ms, tries = tries + 1,
  tried_at_ms = COALESCE(tried_at_ms, :now_ms), blocked_by = NULL
WHERE request_id IN (
  SELECT due.request_id FROM (
    WITH RECURSIVE waiting (dataset_id) AS (
      SELECT MIN(f.dataset_id) FROM requests f WHERE f.state = 'open'
      UNION ALL
      SELECT (
        SELECT MIN(n.dataset_id) FROM requests n
        WHERE n.state = 'open' AND n.dataset_id > waiting.dataset_id
      )
      FROM waiting WHERE waiting.dataset_id IS NOT NULL
    )
    SELECT (
      SELECT d.request_id FROM requests d
      WHERE d.state = 'open' AND d.dataset_id = waiting.dataset_id AND d.not_before_ms <= :now_ms
      ORDER BY d.not_before_ms, d.accepted_at_ms, d.window_start_ms, d.instant_ms LIMIT 1
    ) AS request_id
    FROM waiting
    WHERE waiting.dataset_id IS NOT NULL
      AND waiting.dataset_id NOT IN (SELECT b.dataset_id FROM requests b WHERE b.state = 'running')
  ) AS firsts CROSS JOIN requests due LEFT JOIN turns ON turns.dataset_id = due.dataset_id
  WHERE due.request_id = firsts.request_id
  ORDER BY CASE WHEN turns.claimed_at_ms <= :now_ms THEN turns.claimed_at_ms ELSE 0 END, due.not_before_ms, due.accepted_at_ms, due.window_start_ms,
    due.instant_ms LIMIT 1
)
RETURNING
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms

-- name: requests.claim_retry
-- The dataset whose last turn is longest ago, then what is due longest. From dataset to dataset, to the first of each.
-- Of those that have a run: another attempt at it.
UPDATE requests SET state = 'running', claimed_by = :worker_id, claim_until_ms = :until_ms, tries = tries + 1,
  tried_at_ms = COALESCE(tried_at_ms, :now_ms), blocked_by = NULL
WHERE request_id IN (
  SELECT due.request_id FROM (
    WITH RECURSIVE waiting (dataset_id) AS (
      SELECT MIN(f.dataset_id) FROM requests f WHERE f.state = 'open' AND f.run_id IS NOT NULL
      UNION ALL
      SELECT (
        SELECT MIN(n.dataset_id) FROM requests n
        WHERE n.state = 'open' AND n.run_id IS NOT NULL AND n.dataset_id > waiting.dataset_id
      )
      FROM waiting WHERE waiting.dataset_id IS NOT NULL
    )
    SELECT (
      SELECT d.request_id FROM requests d
      WHERE d.state = 'open' AND d.run_id IS NOT NULL AND d.dataset_id = waiting.dataset_id AND d.not_before_ms <= :now_ms
      ORDER BY d.not_before_ms, d.accepted_at_ms, d.window_start_ms, d.instant_ms LIMIT 1
    ) AS request_id
    FROM waiting
    WHERE waiting.dataset_id IS NOT NULL
      AND waiting.dataset_id NOT IN (SELECT b.dataset_id FROM requests b WHERE b.state = 'running')
  ) AS firsts CROSS JOIN requests due LEFT JOIN turns ON turns.dataset_id = due.dataset_id
  WHERE due.request_id = firsts.request_id
  ORDER BY CASE WHEN turns.claimed_at_ms <= :now_ms THEN turns.claimed_at_ms ELSE 0 END, due.not_before_ms, due.accepted_at_ms, due.window_start_ms,
    due.instant_ms LIMIT 1
)
RETURNING
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms

-- name: requests.claim_burst
-- The dataset whose last turn is longest ago, then what is due longest. From dataset to dataset, to the first of each.
-- Of bursts of announced objects.
UPDATE requests SET state = 'running', claimed_by = :worker_id, claim_until_ms = :until_ms, tries = tries + 1,
  tried_at_ms = COALESCE(tried_at_ms, :now_ms), blocked_by = NULL
WHERE request_id IN (
  SELECT due.request_id FROM (
    WITH RECURSIVE waiting (dataset_id) AS (
      SELECT MIN(f.dataset_id) FROM requests f WHERE f.state = 'open' AND f.kind = 'upstream-event'
      UNION ALL
      SELECT (
        SELECT MIN(n.dataset_id) FROM requests n
        WHERE n.state = 'open' AND n.kind = 'upstream-event' AND n.dataset_id > waiting.dataset_id
      )
      FROM waiting WHERE waiting.dataset_id IS NOT NULL
    )
    SELECT (
      SELECT d.request_id FROM requests d
      WHERE d.state = 'open' AND d.kind = 'upstream-event' AND d.dataset_id = waiting.dataset_id AND d.not_before_ms <= :now_ms
      ORDER BY d.not_before_ms, d.accepted_at_ms, d.window_start_ms, d.instant_ms LIMIT 1
    ) AS request_id
    FROM waiting
    WHERE waiting.dataset_id IS NOT NULL
      AND waiting.dataset_id NOT IN (SELECT b.dataset_id FROM requests b WHERE b.state = 'running')
  ) AS firsts CROSS JOIN requests due LEFT JOIN turns ON turns.dataset_id = due.dataset_id
  WHERE due.request_id = firsts.request_id
  ORDER BY CASE WHEN turns.claimed_at_ms <= :now_ms THEN turns.claimed_at_ms ELSE 0 END, due.not_before_ms, due.accepted_at_ms, due.window_start_ms,
    due.instant_ms LIMIT 1
)
RETURNING
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms

-- name: turns.take
INSERT INTO turns (dataset_id, claimed_at_ms) VALUES (:dataset_id, :now_ms)
ON CONFLICT (dataset_id) DO UPDATE SET claimed_at_ms = excluded.claimed_at_ms

-- name: requests.renew
UPDATE requests SET claim_until_ms = :until_ms
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id
RETURNING
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms

-- name: requests.renew_of_run
-- And of those that are promoted together with it.
UPDATE requests SET claim_until_ms = :until_ms
WHERE run_id IN (
    SELECT CAST(:run_id AS TEXT)
    UNION ALL
    SELECT b.run_id FROM runs h CROSS JOIN runs b
    WHERE h.run_id = :run_id AND b.status = 'running' AND b.fence = h.fence
      AND COALESCE(b.dataset_id, '') = h.dataset_id
  )
  AND state = 'running' AND state IN ('open', 'running', 'awaiting-approval') AND claim_until_ms < :until_ms

-- name: requests.binding
SELECT plan_digest FROM requests WHERE run_id = :run_id AND is_bound = 1
ORDER BY accepted_at_ms, request_id LIMIT 1

-- name: requests.hold
UPDATE requests SET claimed_by = claimed_by
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id AND cancel IS NULL
RETURNING request_id

-- name: requests.begun
UPDATE requests SET run_id = :run_id
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id

-- name: requests.settle
UPDATE requests SET state = :state, outcome = :outcome, reason = :reason, run_id = COALESCE(CAST(:run_id AS TEXT), run_id),
  blocked_by = NULL, claimed_by = NULL, claim_until_ms = 0, ended_at_ms = :ended_at_ms
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id
RETURNING request_id

-- name: requests.reopen
UPDATE requests SET state = 'open', not_before_ms = :not_before_ms, reason = :reason, blocked_by = :blocked_by,
  run_id = COALESCE(CAST(:run_id AS TEXT), run_id), claimed_by = NULL, claim_until_ms = 0,
  tries = tries - CAST(:untried AS BIGINT),
  tried_at_ms = CASE WHEN tries - CAST(:untried AS BIGINT) = 0 THEN NULL ELSE tried_at_ms END
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id
RETURNING request_id

-- name: requests.ended_with
-- With its run: whatever asked for it is answered.
UPDATE requests SET state = 'done', outcome = :outcome, reason = :reason, blocked_by = NULL, claimed_by = NULL,
  claim_until_ms = 0, ended_at_ms = :ended_at_ms
WHERE run_id = :run_id AND state IN ('open', 'running') AND state IN ('open', 'running', 'awaiting-approval') AND cancel IS NULL
RETURNING request_id

-- name: requests.put_off
-- An attempt of its run has failed, and another one is ahead.
UPDATE requests SET state = 'open', not_before_ms = :not_before_ms, reason = :reason, blocked_by = :blocked_by,
  claimed_by = NULL, claim_until_ms = 0
WHERE run_id = :run_id AND state IN ('open', 'running') AND state IN ('open', 'running', 'awaiting-approval') AND cancel IS NULL

-- name: requests.end_cancelled
UPDATE requests SET state = 'cancelled', outcome = 'cancelled', reason = cancel, blocked_by = NULL,
  claimed_by = NULL, claim_until_ms = 0, ended_at_ms = :ended_at_ms
WHERE run_id = :run_id AND state IN ('open', 'running') AND state IN ('open', 'running', 'awaiting-approval') AND cancel IS NOT NULL
RETURNING request_id

-- name: requests.orphans
-- Runs with an attempt ahead that no request asks for.
SELECT r.run_id, s.not_before_ms, s.attempt
FROM retry_states s CROSS JOIN runs r
WHERE r.run_id = s.run_id AND s.fate = 'retry' AND r.status = 'failed' AND r.attempts = s.attempt AND NOT EXISTS (
  SELECT 1 FROM requests q WHERE q.run_id = s.run_id AND q.state IN ('open', 'running', 'awaiting-approval')
)
ORDER BY s.not_before_ms, s.run_id LIMIT :row_limit

-- name: requests.wake
UPDATE requests SET not_before_ms = :not_before_ms WHERE request_id = :request_id AND state = 'open'
  AND blocked_by = :blocked_by

-- name: requests.blocked
SELECT request_id FROM requests WHERE state = 'open' AND blocked_by = :blocked_by

-- name: requests.await_approval
UPDATE requests SET state = 'awaiting-approval', plan_digest = :plan_digest, is_bound = 1, reason = :reason,
  claimed_by = NULL, claim_until_ms = 0
WHERE request_id = :request_id AND state = 'running' AND claimed_by = :worker_id AND cancel IS NULL
RETURNING request_id

-- name: requests.approved
UPDATE requests SET state = 'open', not_before_ms = 0, reason = :reason
WHERE request_id = :request_id AND state = 'awaiting-approval' AND plan_digest = :plan_digest
RETURNING request_id

-- name: requests.awaiting_same
-- Those that wait for an approval of the same work.
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests
WHERE state = 'awaiting-approval' AND state IN ('open', 'running', 'awaiting-approval')
  AND source_id = :source_id AND window_start_ms = :window_start_ms
  AND window_end_ms = :window_end_ms AND COALESCE(correction, '') = :correction AND request_id <> :request_id
ORDER BY +accepted_at_ms, request_id LIMIT :row_limit

-- name: requests.approved_same
-- One of the same work whose preview was approved, and which has not begun.
SELECT
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms
FROM requests
WHERE is_bound = 1 AND state IN ('open', 'running') AND state = 'open' AND source_id = :source_id
  AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms AND run_id IS NULL AND EXISTS (
    SELECT 1 FROM approvals a WHERE a.subject = requests.request_id AND a.kind = 'update' AND a.state = 'approved')
ORDER BY +accepted_at_ms, request_id LIMIT 1

-- name: requests.approved_of_dataset
-- What was approved of a dataset and has not ended: each moves its head.
SELECT r.request_id, a.request_id, a.base_sequence
FROM requests r CROSS JOIN approvals a
WHERE a.subject = r.request_id AND a.digest = r.plan_digest AND r.dataset_id = :dataset_id AND r.state IN ('open', 'running') AND r.is_bound = 1
  AND a.kind = 'update' AND a.state = 'approved'
ORDER BY a.approved_at_ms, a.request_id LIMIT :row_limit

-- name: requests.superseded
UPDATE requests SET state = 'cancelled', outcome = 'superseded', reason = :reason, cancel = :reason,
  blocked_by = NULL, ended_at_ms = :ended_at_ms
WHERE request_id = :request_id AND state = 'awaiting-approval'
RETURNING run_id

-- name: requests.rejected
UPDATE requests SET state = 'cancelled', outcome = 'rejected', reason = :reason, cancel = :reason,
  blocked_by = NULL, ended_at_ms = :ended_at_ms
WHERE request_id = :request_id AND state = 'awaiting-approval'
RETURNING run_id

-- name: requests.preview_anew
UPDATE requests SET state = 'open', not_before_ms = 0, reason = :reason, plan_digest = NULL, is_bound = 0
WHERE request_id = :request_id AND state = 'awaiting-approval' AND plan_digest = :plan_digest
RETURNING request_id

-- name: requests.take
-- A person makes an approved attempt at once.
UPDATE requests SET state = 'running', claimed_by = :worker_id, claim_until_ms = :until_ms, tries = tries + 1,
  tried_at_ms = COALESCE(tried_at_ms, :now_ms), blocked_by = NULL
WHERE request_id = :request_id AND state = 'open'
RETURNING
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, claimed_actor, rationale, ticket, correction, schedule_id, instant_ms, request_uuid,
  envelope_hash, needs_approval, details, state, outcome, reason, run_id, plan_digest, claimed_by,
  claim_until_ms, tries, cancel, ended_at_ms, blocked_by, is_bound, by_person, tried_at_ms

-- name: requests.previewed
UPDATE requests SET plan_digest = :plan_digest
WHERE is_bound = 0 AND state IN ('open', 'running') AND request_id IN (
  SELECT q.request_id FROM requests q WHERE q.request_id = :request_id
  UNION
  SELECT q.request_id FROM requests q
  WHERE q.run_id = :run_id AND q.state IN ('open', 'running', 'awaiting-approval')
)

-- name: requests.cancel_waiting
UPDATE requests SET state = 'cancelled', outcome = 'cancelled', reason = :reason, cancel = :reason,
  blocked_by = NULL, ended_at_ms = :ended_at_ms
WHERE request_id = :request_id AND state IN ('open', 'awaiting-approval')
RETURNING run_id

-- name: requests.cancel_running
UPDATE requests SET cancel = :reason WHERE request_id = :request_id AND state = 'running'
RETURNING request_id

-- name: requests.cancelled
-- Also of one that waited when it was cancelled, because its runner was taken for lost, if no other asks for it.
SELECT cancel FROM requests WHERE run_id = :run_id AND cancel IS NOT NULL AND (
  state IN ('open', 'running') OR (state = 'cancelled' AND NOT EXISTS (
    SELECT 1 FROM requests q WHERE q.run_id = :run_id AND q.state IN ('open', 'running', 'awaiting-approval')
  ))
)
ORDER BY state DESC LIMIT 1

-- name: retry_states.unwanted
-- No request asks for it any more: nothing is ahead of the run.
UPDATE retry_states SET fate = 'spent', reason = 'stopped', updated_at_ms = :now_ms
WHERE run_id = :run_id AND fate = 'retry' AND NOT EXISTS (
  SELECT 1 FROM requests q WHERE q.run_id = retry_states.run_id AND q.state IN ('open', 'running', 'awaiting-approval')
)

-- name: retry_states.leave
-- To the next run of its schedule: it is not left to the one after that.
UPDATE retry_states SET reason = 'next-run', not_before_ms = :not_before_ms
WHERE fate = 'retry' AND run_id = :run_id

-- name: retry_states.hasten
UPDATE retry_states SET not_before_ms = :not_before_ms
WHERE fate = 'retry' AND reason = 'circuit-open'
  AND run_id IN (SELECT run_id FROM requests WHERE request_id = :request_id)

-- name: requests.revive
UPDATE requests SET state = 'open', outcome = NULL, reason = :reason, not_before_ms = 0, tries = 0, tried_at_ms = NULL,
  ended_at_ms = NULL
WHERE request_id = :request_id AND state = 'done'

-- name: request_members.add
INSERT INTO request_members (request_id, member, dataset, start_ms, end_ms, at_ms)
VALUES (:request_id, :member, :dataset, :start_ms, :end_ms, :at_ms)
ON CONFLICT (request_id, member) DO NOTHING

-- name: request_members.of
SELECT member, dataset, start_ms, end_ms, at_ms FROM request_members WHERE request_id = :request_id
ORDER BY member LIMIT :row_limit

-- name: request_members.asked_for
-- The requests that this unit's content was a member of.
SELECT request_id FROM request_members WHERE member = :member ORDER BY request_id LIMIT :row_limit

-- name: acts.add
INSERT INTO acts (run_id, attempt, name, at_ms) VALUES (:run_id, :attempt, :name, :at_ms) ON CONFLICT DO NOTHING

-- name: acts.of_run
SELECT attempt, name, at_ms FROM acts WHERE run_id = :run_id ORDER BY attempt, at_ms, name

-- name: previews.insert
INSERT INTO previews (digest, plan, made_at_ms) VALUES (:digest, :plan, :made_at_ms)
ON CONFLICT (digest) DO NOTHING

-- name: previews.get
SELECT plan FROM previews WHERE digest = :digest
