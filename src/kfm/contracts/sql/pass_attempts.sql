-- name: pass_attempts.open
INSERT INTO pass_attempts (run_id, attempt, pipeline_id, branch, node, fence, state, started_at_ms)
VALUES (:run_id, :attempt, :pipeline_id, :branch, :node, :fence, 'running', :started_at_ms)

-- name: pass_attempts.count
UPDATE pass_attempts SET success = success + :success, failed = failed + :failed, partial = partial + :partial,
  skipped = skipped + :skipped, worked_ms = worked_ms + :worked_ms
WHERE run_id = :run_id AND state = 'running' AND node IN ('', :node)

-- name: pass_attempts.close
UPDATE pass_attempts SET state = :state, ended_at_ms = :ended_at_ms
WHERE run_id = :run_id AND state = 'running' AND (:node = '' OR node = :node)
RETURNING run_id, pipeline_id, branch, attempt, started_at_ms

-- name: pass_attempts.parent
SELECT source_id, dataset_id FROM runs WHERE run_id = :run_id

-- name: pass_attempts.since
SELECT a.number, a.run_id, a.attempt, a.pipeline_id, a.branch, a.state, a.started_at_ms, a.ended_at_ms, a.success,
  a.failed, a.partial, a.skipped, a.worked_ms, r.dataset_id
FROM pass_attempts a LEFT JOIN runs r ON r.run_id = a.run_id
WHERE a.number > :after_number ORDER BY a.number LIMIT :row_limit

-- name: pass_attempts.of_run
SELECT a.run_id, a.attempt, a.pipeline_id, a.branch, a.state, a.started_at_ms, a.ended_at_ms, a.success,
  a.failed, a.partial, a.skipped, a.worked_ms, r.dataset_id
FROM pass_attempts a LEFT JOIN runs r ON r.run_id = a.run_id
WHERE a.run_id = :run_id ORDER BY a.attempt
