-- name: run_states.put
INSERT INTO run_states (run_id, dataset_id, lakefs_branch, inputs_hash, outcome, recorded_at_ms, attempt,
  code_sha, skipped_because, output_commit, outputs_hash, outputs, validation, pipeline_id, duration_ms,
  error_code, error_message, reason)
VALUES (:run_id, :dataset_id, :lakefs_branch, :inputs_hash, :outcome, :recorded_at_ms, :attempt,
  :code_sha, :skipped_because, :output_commit, :outputs_hash, :outputs, :validation, :pipeline_id, :duration_ms,
  :error_code, :error_message, :reason)
ON CONFLICT (run_id, dataset_id) DO UPDATE SET
  lakefs_branch = excluded.lakefs_branch, inputs_hash = excluded.inputs_hash, outcome = excluded.outcome,
  recorded_at_ms = excluded.recorded_at_ms, attempt = excluded.attempt, code_sha = excluded.code_sha,
  skipped_because = excluded.skipped_because, output_commit = excluded.output_commit,
  outputs_hash = excluded.outputs_hash, outputs = excluded.outputs, validation = excluded.validation,
  pipeline_id = excluded.pipeline_id, duration_ms = excluded.duration_ms, error_code = excluded.error_code,
  error_message = excluded.error_message, reason = excluded.reason, reverted = 0

-- name: run_states.skip
INSERT INTO run_states (run_id, dataset_id, lakefs_branch, inputs_hash, outcome, recorded_at_ms, attempt, code_sha,
  skipped_because, pipeline_id, reason)
VALUES (:run_id, :dataset_id, :lakefs_branch, :inputs_hash, 'skipped', :recorded_at_ms, 1, :code_sha,
  :skipped_because, :pipeline_id, :reason)
ON CONFLICT (run_id, dataset_id) DO UPDATE SET
  lakefs_branch = excluded.lakefs_branch, inputs_hash = excluded.inputs_hash, outcome = excluded.outcome,
  recorded_at_ms = excluded.recorded_at_ms, code_sha = excluded.code_sha,
  skipped_because = excluded.skipped_because, pipeline_id = excluded.pipeline_id, reason = excluded.reason,
  output_commit = NULL, outputs_hash = NULL, outputs = NULL, validation = NULL, duration_ms = NULL,
  error_code = NULL, error_message = NULL, reverted = 0

-- name: run_states.skip_heads
INSERT INTO run_states (run_id, dataset_id, lakefs_branch, inputs_hash, outcome, recorded_at_ms, attempt, code_sha,
  skipped_because, pipeline_id, reason)
SELECT :run_id, dataset_id, branch, inputs_hash, 'skipped', :recorded_at_ms, 1, code_sha, run_id, :pipeline_id, :reason
FROM node_heads WHERE branch = :branch AND dataset_id >= :first AND dataset_id <= :last
ON CONFLICT (run_id, dataset_id) DO UPDATE SET
  lakefs_branch = excluded.lakefs_branch, inputs_hash = excluded.inputs_hash, outcome = excluded.outcome,
  recorded_at_ms = excluded.recorded_at_ms, code_sha = excluded.code_sha,
  skipped_because = excluded.skipped_because, pipeline_id = excluded.pipeline_id, reason = excluded.reason,
  output_commit = NULL, outputs_hash = NULL, outputs = NULL, validation = NULL, duration_ms = NULL,
  error_code = NULL, error_message = NULL, reverted = 0

-- name: run_states.of_run
SELECT r.run_id, r.dataset_id, r.lakefs_branch, r.inputs_hash, r.outcome, r.recorded_at_ms, r.attempt, r.code_sha,
  r.skipped_because, COALESCE(r.output_commit, m.output_commit), COALESCE(r.outputs, m.outputs, '[]'),
  COALESCE(r.validation, m.validation), r.pipeline_id, r.duration_ms, r.error_code, r.error_message, r.reason
FROM run_states r
LEFT JOIN run_states m ON r.skipped_because IS NOT NULL AND m.run_id = r.skipped_because AND m.dataset_id = r.dataset_id
  AND m.outcome = 'success' AND m.inputs_hash = r.inputs_hash AND COALESCE(m.code_sha, '') = COALESCE(r.code_sha, '')
WHERE r.run_id = :run_id AND r.dataset_id > :after
ORDER BY r.dataset_id LIMIT :limit

-- name: run_states.one
SELECT r.run_id, r.dataset_id, r.lakefs_branch, r.inputs_hash, r.outcome, r.recorded_at_ms, r.attempt, r.code_sha,
  r.skipped_because, COALESCE(r.output_commit, m.output_commit), COALESCE(r.outputs, m.outputs, '[]'),
  COALESCE(r.validation, m.validation), r.pipeline_id, r.duration_ms, r.error_code, r.error_message, r.reason
FROM run_states r
LEFT JOIN run_states m ON r.skipped_because IS NOT NULL AND m.run_id = r.skipped_because AND m.dataset_id = r.dataset_id
  AND m.outcome = 'success' AND m.inputs_hash = r.inputs_hash AND COALESCE(m.code_sha, '') = COALESCE(r.code_sha, '')
WHERE r.run_id = :run_id AND r.dataset_id = :dataset_id

-- name: run_states.history
SELECT p.number, r.run_id, r.dataset_id, r.lakefs_branch, r.inputs_hash, r.outcome, r.recorded_at_ms, r.attempt,
  r.code_sha, r.skipped_because, COALESCE(r.output_commit, m.output_commit), COALESCE(r.outputs, m.outputs, '[]'),
  COALESCE(r.validation, m.validation), r.pipeline_id, r.duration_ms, r.error_code, r.error_message, r.reason
FROM passes p
JOIN run_states r ON r.run_id = p.run_id AND r.dataset_id = :dataset_id
LEFT JOIN run_states m ON r.skipped_because IS NOT NULL AND m.run_id = r.skipped_because AND m.dataset_id = r.dataset_id
  AND m.outcome = 'success' AND m.inputs_hash = r.inputs_hash AND COALESCE(m.code_sha, '') = COALESCE(r.code_sha, '')
WHERE p.number < :before AND (:branch = '' OR p.branch = :branch)
ORDER BY p.number DESC LIMIT :limit

-- name: run_states.own
SELECT r.dataset_id, r.outcome, r.inputs_hash, r.code_sha, COALESCE(r.outputs_hash, m.outputs_hash, ''),
  COALESCE(r.outputs, m.outputs), r.attempt, r.skipped_because
FROM run_states r
LEFT JOIN run_states m ON r.skipped_because IS NOT NULL AND m.run_id = r.skipped_because AND m.dataset_id = r.dataset_id
  AND m.outcome = 'success' AND m.inputs_hash = r.inputs_hash AND COALESCE(m.code_sha, '') = COALESCE(r.code_sha, '')
WHERE r.run_id = :run_id

-- name: run_states.page
SELECT run_id, dataset_id, lakefs_branch, inputs_hash, outcome, recorded_at_ms, attempt, code_sha, skipped_because,
  output_commit, COALESCE(outputs, '[]'), validation, pipeline_id, duration_ms, error_code, error_message, reason
FROM run_states WHERE (run_id, dataset_id) > (:run_id, :dataset_id)
ORDER BY run_id, dataset_id LIMIT :limit

-- name: run_states.made
SELECT run_id, inputs_hash, code_sha, outputs_hash, outputs, NULL FROM run_states
WHERE dataset_id = :dataset_id AND lakefs_branch = :branch AND inputs_hash = :inputs_hash AND outcome <> 'skipped' AND outcome = 'success'
  AND reverted = 0 AND COALESCE(code_sha, '') = :code_sha
ORDER BY recorded_at_ms DESC, run_id DESC LIMIT 1

-- name: run_states.was_reverted
SELECT run_id FROM run_states
WHERE dataset_id = :dataset_id AND lakefs_branch = :branch AND inputs_hash = :inputs_hash AND outcome <> 'skipped' AND outcome = 'success'
  AND reverted = 1 AND COALESCE(code_sha, '') = :code_sha LIMIT 1

-- name: run_states.successes
SELECT run_id, inputs_hash, code_sha, outputs_hash, outputs, output_commit FROM run_states
WHERE dataset_id = :dataset_id AND lakefs_branch = :branch AND outcome <> 'skipped' AND outcome = 'success' AND reverted = 0
ORDER BY recorded_at_ms DESC, run_id DESC LIMIT :limit

-- name: run_states.revert
UPDATE run_states SET reverted = 1
WHERE dataset_id = :dataset_id AND lakefs_branch = :branch AND outcome <> 'skipped' AND outcome = 'success' AND run_id <> :spared

-- name: run_states.reverted
SELECT run_id, dataset_id FROM run_states WHERE reverted = 1

-- name: run_states.take_back
UPDATE run_states SET reverted = 1 WHERE run_id = :run_id AND dataset_id = :dataset_id

-- name: run_states.moved
UPDATE run_states SET lakefs_branch = :into WHERE run_id = :run_id AND lakefs_branch = :branch

-- name: run_states.committed
UPDATE run_states SET output_commit = :commit_id
WHERE run_id = :run_id AND dataset_id = :dataset_id AND outcome <> 'skipped'

-- name: node_heads.of_branch
SELECT run_id, inputs_hash, code_sha, outputs_hash, outputs, rerun, dataset_id FROM node_heads
WHERE branch = :branch AND dataset_id >= :first AND dataset_id <= :last

-- name: node_heads.whole
SELECT dataset_id, run_id, outputs_hash, outputs, output_commit, rerun FROM node_heads
WHERE branch = :branch AND dataset_id > :after ORDER BY dataset_id LIMIT :limit

-- name: node_heads.outputs
SELECT branch, dataset_id, outputs FROM node_heads
WHERE (branch, dataset_id) > (:branch, :dataset_id) ORDER BY branch, dataset_id LIMIT :limit

-- name: node_heads.put
INSERT INTO node_heads (branch, dataset_id, run_id, inputs_hash, code_sha, outputs_hash, outputs, output_commit, rerun)
VALUES (:branch, :dataset_id, :run_id, :inputs_hash, :code_sha, :outputs_hash, :outputs, :output_commit, NULL)
ON CONFLICT (branch, dataset_id) DO UPDATE SET run_id = excluded.run_id, inputs_hash = excluded.inputs_hash,
  code_sha = excluded.code_sha, outputs_hash = excluded.outputs_hash, outputs = excluded.outputs,
  output_commit = excluded.output_commit, rerun = NULL

-- name: node_heads.committed
UPDATE node_heads SET output_commit = :commit_id
WHERE branch = :branch AND dataset_id = :dataset_id AND output_commit IS NULL

-- name: node_heads.loose
SELECT dataset_id, run_id, outputs FROM node_heads WHERE branch = :branch AND output_commit IS NULL

-- name: node_heads.rerun
UPDATE node_heads SET rerun = :rerun WHERE branch = :branch AND dataset_id = :dataset_id AND rerun IS NULL

-- name: node_heads.copy
INSERT INTO node_heads (branch, dataset_id, run_id, inputs_hash, code_sha, outputs_hash, outputs, output_commit, rerun)
SELECT :into, dataset_id, run_id, inputs_hash, code_sha, outputs_hash, outputs, output_commit, rerun FROM node_heads
WHERE branch = :branch AND (:dataset_id = '' OR dataset_id = :dataset_id)
ON CONFLICT (branch, dataset_id) DO UPDATE SET run_id = excluded.run_id, inputs_hash = excluded.inputs_hash,
  code_sha = excluded.code_sha, outputs_hash = excluded.outputs_hash, outputs = excluded.outputs,
  output_commit = excluded.output_commit, rerun = excluded.rerun

-- name: node_heads.copy_equal
-- What the target has to make again is not on it, whatever its outputs were.
INSERT INTO node_heads (branch, dataset_id, run_id, inputs_hash, code_sha, outputs_hash, outputs, output_commit, rerun)
SELECT t.branch, s.dataset_id, s.run_id, s.inputs_hash, s.code_sha, s.outputs_hash, s.outputs, s.output_commit, s.rerun
FROM node_heads s
JOIN node_heads t ON t.branch = :into AND t.dataset_id = s.dataset_id
WHERE s.branch = :branch AND t.outputs_hash = s.outputs_hash AND t.run_id <> s.run_id
  AND s.output_commit IS NOT NULL AND t.output_commit IS NOT NULL AND t.rerun IS NULL
ON CONFLICT (branch, dataset_id) DO UPDATE SET run_id = excluded.run_id, inputs_hash = excluded.inputs_hash,
  code_sha = excluded.code_sha, outputs_hash = excluded.outputs_hash, outputs = excluded.outputs,
  output_commit = excluded.output_commit, rerun = excluded.rerun

-- name: node_heads.forget
DELETE FROM node_heads WHERE branch = :branch

-- name: node_heads.branches
SELECT branches_known.branch FROM (
  WITH RECURSIVE known (branch) AS (
    SELECT MIN(n.branch) FROM node_heads n
    UNION ALL
    SELECT (SELECT MIN(n.branch) FROM node_heads n WHERE n.branch > known.branch) FROM known
    WHERE known.branch IS NOT NULL
  )
  SELECT branch FROM known WHERE branch IS NOT NULL
) AS branches_known ORDER BY branches_known.branch

-- name: passes.any
SELECT 1 FROM passes LIMIT 1

-- name: marks.move
UPDATE marks SET value = :value WHERE name = :name AND value = :seen
RETURNING value

-- name: passes.begin
INSERT INTO passes (run_id, pipeline_id, branch, state, attempt, fence, worker_id, started_at_ms, graph_hash, counts)
VALUES (:run_id, :pipeline_id, :branch, 'running', 1, :fence, :worker_id, :started_at_ms, :graph_hash, '{}')
ON CONFLICT (run_id) DO UPDATE SET state = 'running', attempt = passes.attempt + 1, fence = excluded.fence,
  worker_id = excluded.worker_id, graph_hash = excluded.graph_hash, ended_at_ms = NULL, error_code = NULL
RETURNING attempt

-- name: passes.interrupt
UPDATE passes SET state = 'failed', ended_at_ms = :ended_at_ms, error_code = :error_code
WHERE run_id = :run_id AND state = 'running'

-- name: passes.end
UPDATE passes SET state = :state, ended_at_ms = :ended_at_ms, counts = :counts, commit_id = :commit_id,
  error_code = :error_code
WHERE run_id = :run_id AND fence = :fence AND state = 'running'
RETURNING number

-- name: passes.join
INSERT INTO passes (run_id, pipeline_id, branch, state, attempt, fence, worker_id, started_at_ms, graph_hash, counts)
VALUES (:run_id, :pipeline_id, :branch, 'running', 1, :fence, :worker_id, :started_at_ms, :graph_hash, '{}')
ON CONFLICT (run_id) DO UPDATE SET state = 'running', attempt = passes.attempt + 1,
  worker_id = excluded.worker_id, ended_at_ms = NULL, error_code = NULL
RETURNING attempt, graph_hash

-- name: passes.redraw
UPDATE passes SET graph_hash = :graph_hash WHERE run_id = :run_id

-- name: passes.leave
UPDATE passes SET state = :state, ended_at_ms = :ended_at_ms, counts = :counts,
  commit_id = COALESCE(:commit_id, commit_id), error_code = :error_code
WHERE run_id = :run_id
RETURNING number

-- name: run_states.outcomes
SELECT outcome, COUNT(*) FROM run_states WHERE run_id = :run_id GROUP BY outcome

-- name: passes.get
SELECT p.run_id, p.pipeline_id, p.branch, p.state, p.started_at_ms, p.worker_id, p.fence, p.attempt, p.ended_at_ms,
  d.body, p.counts, p.commit_id, p.error_code
FROM passes p JOIN documents d ON d.hash = p.graph_hash WHERE p.run_id = :run_id

-- name: passes.list
SELECT p.number, p.run_id, p.pipeline_id, p.branch, p.state, p.started_at_ms, p.worker_id, p.fence, p.attempt,
  p.ended_at_ms, NULL, p.counts, p.commit_id, p.error_code
FROM passes p
WHERE p.number < :before ORDER BY p.number DESC LIMIT :limit

-- name: passes.of_pipeline
SELECT p.number, p.run_id, p.pipeline_id, p.branch, p.state, p.started_at_ms, p.worker_id, p.fence, p.attempt,
  p.ended_at_ms, NULL, p.counts, p.commit_id, p.error_code
FROM passes p
WHERE p.pipeline_id = :pipeline_id AND p.number < :before AND (:branch = '' OR p.branch = :branch)
ORDER BY p.number DESC LIMIT :limit

-- name: passes.of_branch
SELECT p.number, p.run_id, p.pipeline_id, p.branch, p.state, p.started_at_ms, p.worker_id, p.fence, p.attempt,
  p.ended_at_ms, NULL, p.counts, p.commit_id, p.error_code
FROM passes p
WHERE p.branch = :branch AND p.number < :before ORDER BY p.number DESC LIMIT :limit

-- name: documents.keep
INSERT INTO documents (hash, body) VALUES (:hash, :body) ON CONFLICT (hash) DO NOTHING

-- name: documents.get
SELECT body FROM documents WHERE hash = :hash

-- name: file_checksums.put
INSERT INTO file_checksums (path, size, modified_ns, inode, checksum)
VALUES (:path, :size, :modified_ns, :inode, :checksum)
ON CONFLICT (path) DO UPDATE SET size = excluded.size, modified_ns = excluded.modified_ns,
  inode = excluded.inode, checksum = excluded.checksum

-- name: file_checksums.within
SELECT path, size, modified_ns, inode, checksum FROM file_checksums WHERE path >= :first AND path <= :last
