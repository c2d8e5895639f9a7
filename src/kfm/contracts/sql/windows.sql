-- name: windows.runs
-- The run of each window that ended last, and the newest that is under way, which counts before it. From window to
-- window, the newest first, each step to the run itself: without a look at the other runs of each.
SELECT
  r.run_id, r.window_start_ms, r.window_end_ms, r.status, r.start_time_ms, r.end_time_ms, r.error_code, r.outcome,
  (SELECT h.error_code FROM held h WHERE h.grain = 'run' AND h.subject = r.run_id AND h.state = 'held'),
  CASE WHEN r.status = 'failed' THEN (
    SELECT s.not_before_ms FROM retry_states s
    WHERE s.run_id = r.run_id AND s.fate = 'retry' AND s.attempt = r.attempts
  ) END
FROM (
  WITH RECURSIVE newest (run_id) AS (
    SELECT (
      SELECT f.run_id FROM runs f
      WHERE f.source_id = :source_id AND f.dataset_id = :dataset_id AND f.window_end_ms > :start_ms
        AND f.end_time_ms IS NOT NULL
      ORDER BY f.window_end_ms DESC, f.window_start_ms DESC, f.end_time_ms DESC, f.start_time_ms DESC, f.revision DESC,
        f.run_id
      LIMIT 1
    )
    UNION ALL
    SELECT COALESCE(
      (SELECT n.run_id FROM runs n
        WHERE n.source_id = :source_id AND n.dataset_id = :dataset_id AND n.window_end_ms = c.window_end_ms
          AND n.window_start_ms < c.window_start_ms AND n.end_time_ms IS NOT NULL
        ORDER BY n.window_start_ms DESC, n.end_time_ms DESC, n.start_time_ms DESC, n.revision DESC, n.run_id LIMIT 1),
      (SELECT n.run_id FROM runs n
        WHERE n.source_id = :source_id AND n.dataset_id = :dataset_id AND n.window_end_ms < c.window_end_ms
          AND n.window_end_ms > :start_ms AND n.end_time_ms IS NOT NULL
        ORDER BY n.window_end_ms DESC, n.window_start_ms DESC, n.end_time_ms DESC, n.start_time_ms DESC,
          n.revision DESC, n.run_id
        LIMIT 1)
    )
    FROM newest JOIN runs c ON c.run_id = newest.run_id
  )
  SELECT run_id FROM newest
) AS newest CROSS JOIN runs r
WHERE r.run_id = newest.run_id AND r.window_start_ms < :end_ms
UNION ALL
SELECT
  r.run_id, r.window_start_ms, r.window_end_ms, r.status, r.start_time_ms, r.end_time_ms, r.error_code, r.outcome,
  (SELECT h.error_code FROM held h WHERE h.grain = 'run' AND h.subject = r.run_id AND h.state = 'held'), NULL
FROM runs r
WHERE r.status = 'running' AND r.source_id || '' = :source_id AND r.dataset_id || '' = :dataset_id
  AND +r.window_start_ms < :end_ms AND +r.window_end_ms > :start_ms
  AND NOT EXISTS (
    SELECT 1 FROM runs x
    WHERE x.status = 'running' AND x.source_id || '' = :source_id AND x.dataset_id || '' = :dataset_id
      AND +x.window_start_ms = r.window_start_ms AND +x.window_end_ms = r.window_end_ms
      AND (+x.start_time_ms > r.start_time_ms OR (+x.start_time_ms = r.start_time_ms
        AND (x.revision > r.revision OR (x.revision = r.revision AND x.run_id || '' < r.run_id))))
  )

-- name: windows.kept
-- The newest run of each window that found data, or that there is none: one that came later and found nothing at all
-- has taken nothing away.
SELECT r.run_id, r.window_start_ms, r.window_end_ms, r.end_time_ms, r.outcome
FROM (
  WITH RECURSIVE spans (run_id) AS (
    SELECT (
      SELECT f.run_id FROM runs f
      WHERE f.source_id = :source_id AND f.dataset_id = :dataset_id AND f.window_end_ms > :start_ms
      ORDER BY f.window_end_ms, f.window_start_ms LIMIT 1
    )
    UNION ALL
    SELECT COALESCE(
      (SELECT n.run_id FROM runs n
        WHERE n.source_id = :source_id AND n.dataset_id = :dataset_id AND n.window_end_ms = c.window_end_ms
        AND n.window_start_ms > c.window_start_ms
        ORDER BY n.window_start_ms LIMIT 1),
      (SELECT n.run_id FROM runs n
        WHERE n.source_id = :source_id AND n.dataset_id = :dataset_id AND n.window_end_ms > c.window_end_ms
        ORDER BY n.window_end_ms, n.window_start_ms LIMIT 1)
    )
    FROM spans JOIN runs c ON c.run_id = spans.run_id
  )
  SELECT (
    SELECT x.run_id FROM runs x
    WHERE x.source_id = :source_id AND x.dataset_id = :dataset_id AND x.window_end_ms = w.window_end_ms
      AND x.window_start_ms = w.window_start_ms AND x.end_time_ms IS NOT NULL AND x.status = 'success'
      AND x.outcome IN ('published', 'unchanged', 'empty')
    ORDER BY x.end_time_ms DESC, x.start_time_ms DESC, x.revision DESC, x.run_id LIMIT 1
  ) AS run_id
  FROM spans JOIN runs w ON w.run_id = spans.run_id
  WHERE w.window_start_ms < :end_ms
) AS newest CROSS JOIN runs r
WHERE r.run_id = newest.run_id

-- name: windows.invocations
-- The newest invocation of each window that no run came of: it was refused, failed before, or found the work done.
SELECT
  i.window_start_ms, i.window_end_ms, i.outcome, i.requested_at_ms, i.reason_code, i.gates,
  r.run_id, r.status, r.end_time_ms, r.outcome
FROM (
  WITH RECURSIVE spans (number) AS (
    SELECT (
      SELECT f.number FROM invocations f
      WHERE f.source_id = :source_id AND f.dataset_id = :dataset_id AND f.window_end_ms > :start_ms
        AND (f.outcome IN ('refused', 'noop') OR (f.outcome = 'failed' AND f.run_id IS NULL))
      ORDER BY f.window_end_ms, f.window_start_ms LIMIT 1
    )
    UNION ALL
    SELECT COALESCE(
      (SELECT n.number FROM invocations n
        WHERE n.source_id = :source_id AND n.dataset_id = :dataset_id AND n.window_end_ms = c.window_end_ms
        AND n.window_start_ms > c.window_start_ms
          AND (n.outcome IN ('refused', 'noop') OR (n.outcome = 'failed' AND n.run_id IS NULL))
        ORDER BY n.window_start_ms LIMIT 1),
      (SELECT n.number FROM invocations n
        WHERE n.source_id = :source_id AND n.dataset_id = :dataset_id AND n.window_end_ms > c.window_end_ms
          AND (n.outcome IN ('refused', 'noop') OR (n.outcome = 'failed' AND n.run_id IS NULL))
        ORDER BY n.window_end_ms, n.window_start_ms LIMIT 1)
    )
    FROM spans JOIN invocations c ON c.number = spans.number
  )
  SELECT (
    SELECT x.number FROM invocations x
    WHERE x.source_id = :source_id AND x.dataset_id = :dataset_id AND x.window_end_ms = w.window_end_ms
        AND x.window_start_ms = w.window_start_ms
      AND (x.outcome IN ('refused', 'noop') OR (x.outcome = 'failed' AND x.run_id IS NULL))
    ORDER BY x.number DESC LIMIT 1
  ) AS number
  FROM spans JOIN invocations w ON w.number = spans.number
  WHERE w.window_start_ms < :end_ms
) AS newest CROSS JOIN invocations i LEFT JOIN runs r ON r.run_id = i.run_id
WHERE i.number = newest.number

-- name: windows.requests
-- The newest request of each window that has no end, and the newest that ended without a run's answer.
SELECT
  window_start_ms, window_end_ms, 1 AS is_unsettled, request_id, state, outcome, blocked_by, accepted_at_ms,
  not_before_ms, ended_at_ms,
  (SELECT h.error_code FROM held h WHERE h.grain = 'request' AND h.subject = asked.request_id AND h.state = 'held')
FROM (
  SELECT
    request_id, window_start_ms, window_end_ms, state, outcome, blocked_by, accepted_at_ms, not_before_ms, ended_at_ms,
    ROW_NUMBER() OVER (
      PARTITION BY window_start_ms, window_end_ms
      ORDER BY CASE WHEN state = 'running' THEN 0 ELSE 1 END, ended_at_ms DESC, accepted_at_ms DESC, request_id DESC
    ) AS place
  FROM requests
  WHERE source_id = :source_id AND dataset_id = :dataset_id AND window_start_ms < :end_ms AND window_end_ms > :start_ms
    AND state IN ('open', 'running', 'awaiting-approval')
) AS asked
WHERE place = 1
UNION ALL
SELECT
  q.window_start_ms, q.window_end_ms, 0, q.request_id, q.state, q.outcome, q.blocked_by, q.accepted_at_ms,
  q.not_before_ms, q.ended_at_ms,
  (SELECT h.error_code FROM held h WHERE h.grain = 'request' AND h.subject = q.request_id AND h.state = 'held')
FROM (
  WITH RECURSIVE spans (request_id) AS (
    SELECT (
      SELECT f.request_id FROM requests f
      WHERE f.source_id = :source_id AND f.dataset_id = :dataset_id AND f.window_end_ms > :start_ms
        AND (f.state = 'cancelled' OR (f.state = 'done' AND f.run_id IS NULL AND f.outcome IN ('failed', 'refused')))
      ORDER BY f.window_end_ms, f.window_start_ms, f.ended_at_ms LIMIT 1
    )
    UNION ALL
    SELECT COALESCE(
      (SELECT n.request_id FROM requests n
        WHERE n.source_id = :source_id AND n.dataset_id = :dataset_id AND n.window_end_ms = c.window_end_ms
        AND n.window_start_ms > c.window_start_ms
          AND (n.state = 'cancelled' OR (n.state = 'done' AND n.run_id IS NULL AND n.outcome IN ('failed', 'refused')))
        ORDER BY n.window_start_ms, n.ended_at_ms LIMIT 1),
      (SELECT n.request_id FROM requests n
        WHERE n.source_id = :source_id AND n.dataset_id = :dataset_id AND n.window_end_ms > c.window_end_ms
          AND (n.state = 'cancelled' OR (n.state = 'done' AND n.run_id IS NULL AND n.outcome IN ('failed', 'refused')))
        ORDER BY n.window_end_ms, n.window_start_ms, n.ended_at_ms LIMIT 1)
    )
    FROM spans JOIN requests c ON c.request_id = spans.request_id
  )
  SELECT (
    SELECT x.request_id FROM requests x
    WHERE x.source_id = :source_id AND x.dataset_id = :dataset_id AND x.window_end_ms = w.window_end_ms
        AND x.window_start_ms = w.window_start_ms
      AND (x.state = 'cancelled' OR (x.state = 'done' AND x.run_id IS NULL AND x.outcome IN ('failed', 'refused')))
    ORDER BY x.ended_at_ms DESC, x.accepted_at_ms DESC, x.request_id DESC LIMIT 1
  ) AS request_id
  FROM spans JOIN requests w ON w.request_id = spans.request_id
  WHERE w.window_start_ms < :end_ms
) AS ended CROSS JOIN requests q
WHERE q.request_id = ended.request_id

-- name: windows.absent
-- When a request for each window last ended because its data did not come in time.
SELECT window_start_ms, window_end_ms, MAX(ended_at_ms) FROM requests
WHERE source_id = :source_id AND dataset_id = :dataset_id
  AND window_start_ms < :end_ms AND window_end_ms > :start_ms
  AND state = 'done' AND outcome = 'absent'
GROUP BY window_end_ms, window_start_ms

-- name: windows.seen
-- The newest request of each window whose preview would have changed nothing: it became no run.
SELECT r.window_start_ms, r.window_end_ms, r.outcome, r.ended_at_ms FROM requests r
JOIN (
  SELECT window_start_ms, window_end_ms, MAX(ended_at_ms) AS ended_at_ms FROM requests
  WHERE source_id = :source_id AND dataset_id = :dataset_id
    AND window_start_ms < :end_ms AND window_end_ms > :start_ms
    AND state = 'done' AND run_id IS NULL AND outcome IN ('noop', 'empty')
  GROUP BY window_end_ms, window_start_ms
) newest ON newest.window_start_ms = r.window_start_ms AND newest.window_end_ms = r.window_end_ms
  AND newest.ended_at_ms = r.ended_at_ms
WHERE r.source_id = :source_id AND r.dataset_id = :dataset_id
  AND r.state = 'done' AND r.run_id IS NULL AND r.outcome IN ('noop', 'empty')

-- name: windows.settled
-- A dismissal ends for good with data that came after it, whatever becomes of that data.
SELECT window_start_ms, window_end_ms, kind, settled_at_ms, actor, rationale, ticket, dataset_id FROM settled_windows s
WHERE source_id = :source_id AND window_start_ms < :end_ms AND window_end_ms > :start_ms
  AND NOT EXISTS (
    SELECT 1 FROM runs r
    WHERE r.source_id = s.source_id AND r.window_start_ms = s.window_start_ms AND r.window_end_ms = s.window_end_ms
      AND r.status = 'success' AND r.outcome <> 'absent' AND r.end_time_ms > s.settled_at_ms
  )
ORDER BY window_start_ms, window_end_ms

-- name: windows.settle
INSERT INTO settled_windows (
  source_id, window_start_ms, window_end_ms, dataset_id, kind, settled_at_ms, actor, rationale, ticket
) VALUES (
  :source_id, :window_start_ms, :window_end_ms, :dataset_id, :kind, :settled_at_ms, :actor, :rationale, :ticket
)
ON CONFLICT (source_id, window_start_ms, window_end_ms) DO UPDATE SET
  dataset_id = excluded.dataset_id, kind = excluded.kind, settled_at_ms = excluded.settled_at_ms,
  actor = excluded.actor, rationale = excluded.rationale, ticket = excluded.ticket
WHERE settled_windows.kind = 'dismissed'
RETURNING source_id

-- name: windows.unsettle
DELETE FROM settled_windows
WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms AND kind = :kind
RETURNING source_id

-- name: windows.unsettled_requests
SELECT request_id FROM requests
WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
  AND state IN ('open', 'running', 'awaiting-approval') AND state IN ('open', 'awaiting-approval')
ORDER BY +accepted_at_ms, request_id

-- name: windows.held
-- What is quarantined of one window, by run or by request.
SELECT h.held_id, h.grain, h.subject, h.dataset_id, h.error_code, h.error_classes FROM held h
WHERE h.state = 'held' AND h.source_id = :source_id AND (
  (h.grain = 'run' AND EXISTS (
    SELECT 1 FROM runs r
    WHERE r.run_id = h.subject AND r.source_id = :source_id AND r.window_start_ms = :window_start_ms
      AND r.window_end_ms = :window_end_ms
  ))
  OR (h.grain = 'request' AND EXISTS (
    SELECT 1 FROM requests q
    WHERE q.request_id = h.subject AND q.source_id = :source_id AND q.window_start_ms = :window_start_ms
      AND q.window_end_ms = :window_end_ms
  ))
)
ORDER BY +h.number

-- name: windows.running
SELECT run_id FROM runs
WHERE status = 'running' AND +window_start_ms = :window_start_ms AND +window_end_ms = :window_end_ms
  AND source_id || '' = :source_id

-- name: held.dismiss
UPDATE held SET state = 'resolved', released_at_ms = :released_at_ms, released_by = :released_by
WHERE held_id = :held_id AND state = 'held'
RETURNING held_id

-- name: retry_states.dismiss
-- The window will never have data: nothing is ahead of its runs.
UPDATE retry_states SET fate = 'spent', reason = 'stopped', updated_at_ms = :now_ms
WHERE fate = 'retry' AND EXISTS (
  SELECT 1 FROM runs r
  WHERE r.run_id = retry_states.run_id AND r.source_id = :source_id AND r.window_start_ms = :window_start_ms
    AND r.window_end_ms = :window_end_ms
)

-- name: expectations.list
SELECT source_id, rule, since_ms FROM expectations

-- name: expectations.ensure
INSERT INTO expectations (source_id, rule, since_ms) VALUES (:source_id, :rule, :since_ms)
ON CONFLICT (source_id, rule) DO NOTHING

-- name: expectations.carry
-- Another rule of a source is expected since the earlier one was.
INSERT INTO expectations (source_id, rule, since_ms)
SELECT source_id, :new_rule, since_ms FROM expectations WHERE source_id = :source_id AND rule = :rule
ON CONFLICT (source_id, rule) DO UPDATE SET since_ms = excluded.since_ms WHERE expectations.since_ms > excluded.since_ms

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

-- name: open_hours.list
SELECT source_id, hour_ms, is_told FROM open_hours WHERE dataset = :dataset ORDER BY source_id, hour_ms

-- name: open_hours.put
INSERT INTO open_hours (dataset, source_id, hour_ms, is_told) VALUES (:dataset, :source_id, :hour_ms, :is_told)
ON CONFLICT (dataset, source_id, hour_ms) DO UPDATE SET
  is_told = CASE WHEN excluded.is_told > open_hours.is_told THEN excluded.is_told ELSE open_hours.is_told END

-- name: open_hours.told
-- Told once, by one process.
UPDATE open_hours SET is_told = 1
WHERE dataset = :dataset AND source_id = :source_id AND hour_ms = :hour_ms AND is_told = 0
RETURNING source_id

-- name: open_hours.close
DELETE FROM open_hours WHERE dataset = :dataset AND source_id = :source_id AND hour_ms = :hour_ms
RETURNING source_id
