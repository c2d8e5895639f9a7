-- name: windows.runs
-- The newest run of each window: one that is running, else the one that ended last.
SELECT
  run_id, window_start_ms, window_end_ms, status, start_time_ms, end_time_ms, error_code, outcome,
  (SELECT h.error_code FROM held h WHERE h.grain = 'run' AND h.subject = newest.run_id AND h.state = 'held'),
  (SELECT s.not_before_ms FROM retry_states s
    WHERE s.run_id = newest.run_id AND s.fate = 'retry' AND s.attempt = newest.attempts AND newest.status = 'failed')
FROM (
  SELECT
    run_id, window_start_ms, window_end_ms, status, attempts, start_time_ms, end_time_ms, error_code, outcome,
    ROW_NUMBER() OVER (
      PARTITION BY window_start_ms, window_end_ms
      ORDER BY CASE WHEN status = 'running' THEN 0 ELSE 1 END, end_time_ms DESC, start_time_ms DESC, revision DESC, run_id
    ) AS place
  FROM runs
  WHERE source_id = :source_id AND window_start_ms < :end_ms AND window_end_ms > :start_ms
) newest
WHERE place = 1

-- name: windows.invocations
-- The newest invocation of each window that no run came of: it was refused, failed before, or found the work done.
SELECT
  i.window_start_ms, i.window_end_ms, i.outcome, i.requested_at_ms, i.reason_code, i.gates,
  r.run_id, r.status, r.end_time_ms, r.outcome
FROM invocations i
JOIN (
  SELECT MAX(number) AS number FROM invocations
  WHERE source_id = :source_id AND window_start_ms < :end_ms AND window_end_ms > :start_ms
    AND (outcome IN ('refused', 'noop') OR (outcome = 'failed' AND run_id IS NULL))
  GROUP BY window_start_ms, window_end_ms
) newest ON newest.number = i.number
LEFT JOIN runs r ON r.run_id = i.run_id

-- name: windows.requests
-- The newest request of each window that has no end, and the newest that ended without a run's answer.
SELECT
  window_start_ms, window_end_ms, is_unsettled, request_id, state, outcome, blocked_by, accepted_at_ms, not_before_ms,
  ended_at_ms,
  (SELECT h.error_code FROM held h WHERE h.grain = 'request' AND h.subject = newest.request_id AND h.state = 'held')
FROM (
  SELECT
    request_id, window_start_ms, window_end_ms, state, outcome, blocked_by, accepted_at_ms, not_before_ms, ended_at_ms,
    is_unsettled,
    ROW_NUMBER() OVER (
      PARTITION BY window_start_ms, window_end_ms, is_unsettled
      ORDER BY CASE WHEN state = 'running' THEN 0 ELSE 1 END, ended_at_ms DESC, accepted_at_ms DESC, request_id DESC
    ) AS place
  FROM (
    SELECT
      request_id, window_start_ms, window_end_ms, state, outcome, blocked_by, accepted_at_ms, not_before_ms,
      ended_at_ms, CASE WHEN state IN ('open', 'running', 'awaiting-approval') THEN 1 ELSE 0 END AS is_unsettled
    FROM requests
    WHERE source_id = :source_id AND window_start_ms < :end_ms AND window_end_ms > :start_ms
      AND (state IN ('open', 'running', 'awaiting-approval', 'cancelled')
        OR (state = 'done' AND run_id IS NULL AND outcome IN ('failed', 'refused')))
  ) asked
) newest
WHERE place = 1

-- name: windows.absent
-- When a request for each window last ended because its data did not come in time.
SELECT window_start_ms, window_end_ms, MAX(ended_at_ms) FROM requests
WHERE source_id = :source_id AND window_start_ms < :end_ms AND window_end_ms > :start_ms
  AND state = 'done' AND outcome = 'absent'
GROUP BY window_start_ms, window_end_ms

-- name: windows.settled
SELECT window_start_ms, window_end_ms, kind, settled_at_ms, actor, rationale, ticket, dataset_id FROM settled_windows
WHERE source_id = :source_id AND window_start_ms < :end_ms AND window_end_ms > :start_ms
ORDER BY window_start_ms, window_end_ms

-- name: windows.settle
INSERT INTO settled_windows (
  source_id, window_start_ms, window_end_ms, dataset_id, kind, settled_at_ms, actor, rationale, ticket
) VALUES (
  :source_id, :window_start_ms, :window_end_ms, :dataset_id, :kind, :settled_at_ms, :actor, :rationale, :ticket
)
ON CONFLICT (source_id, window_start_ms, window_end_ms) DO UPDATE SET
  kind = excluded.kind, settled_at_ms = excluded.settled_at_ms, actor = excluded.actor,
  rationale = excluded.rationale, ticket = excluded.ticket
WHERE settled_windows.kind = 'dismissed'
RETURNING source_id

-- name: windows.unsettle
DELETE FROM settled_windows
WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms AND kind = :kind
RETURNING source_id

-- name: windows.unsettled_requests
SELECT request_id FROM requests
WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
  AND state IN ('open', 'awaiting-approval')
ORDER BY accepted_at_ms, request_id

-- name: windows.held
-- What is quarantined of one window, by run or by request.
SELECT h.held_id, h.grain, h.subject, h.dataset_id, h.error_code, h.error_classes FROM held h
WHERE h.state = 'held' AND (
  (h.grain = 'run' AND h.subject IN (
    SELECT run_id FROM runs
    WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
  ))
  OR (h.grain = 'request' AND h.subject IN (
    SELECT request_id FROM requests
    WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
  ))
)
ORDER BY h.number

-- name: windows.running
SELECT run_id FROM runs
WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
  AND status = 'running'

-- name: held.dismiss
UPDATE held SET state = 'resolved', released_at_ms = :released_at_ms, released_by = :released_by
WHERE held_id = :held_id AND state = 'held'
RETURNING held_id

-- name: retry_states.dismiss
-- The window will never have data: nothing is ahead of its runs.
UPDATE retry_states SET fate = 'spent', reason = 'stopped', updated_at_ms = :now_ms
WHERE fate = 'retry' AND run_id IN (
  SELECT run_id FROM runs
  WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
)

-- name: expectations.list
SELECT source_id, rule, since_ms FROM expectations

-- name: expectations.ensure
INSERT INTO expectations (source_id, rule, since_ms) VALUES (:source_id, :rule, :since_ms)
ON CONFLICT (source_id, rule) DO NOTHING

-- name: overdue_marks.list
SELECT source_id, rule, mark_ms FROM overdue_marks

-- name: overdue_marks.insert
INSERT INTO overdue_marks (source_id, rule, mark_ms) VALUES (:source_id, :rule, :mark_ms)
ON CONFLICT (source_id, rule) DO NOTHING
RETURNING source_id

-- name: overdue_marks.move
UPDATE overdue_marks SET mark_ms = :mark_ms WHERE source_id = :source_id AND rule = :rule AND mark_ms = :seen_ms
RETURNING source_id

-- name: overdue_marks.lower
-- Windows from here on are looked at again.
UPDATE overdue_marks SET mark_ms = :mark_ms WHERE source_id = :source_id AND mark_ms > :mark_ms

-- name: overdue_marks.lower_dataset
-- Windows of a dataset from here on are looked at again, of whichever source.
UPDATE overdue_marks SET mark_ms = :mark_ms
WHERE mark_ms > :mark_ms AND source_id IN (SELECT source_id FROM runs WHERE dataset_id = :dataset_id)

-- name: overdue_marks.lower_request
-- The window of a request, and those after it, are looked at again.
UPDATE overdue_marks SET mark_ms = (SELECT r.window_start_ms FROM requests r WHERE r.request_id = :request_id)
WHERE EXISTS (
  SELECT 1 FROM requests r
  WHERE r.request_id = :request_id AND r.source_id = overdue_marks.source_id
    AND r.window_start_ms < overdue_marks.mark_ms
)
