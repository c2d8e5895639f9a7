-- name: attempts.open
INSERT INTO attempts (
  run_id, attempt, node, lineage_id, invocation_id, started_at_ms, delay_ms, inputs_hash, code_sha
) VALUES (
  :run_id, :attempt, :node, :lineage_id, :invocation_id, :started_at_ms, :delay_ms, :inputs_hash, :code_sha
)

-- name: attempts.close
UPDATE attempts SET
  ended_at_ms = :ended_at_ms, ending = :ending, outcome = :outcome, error_code = :error_code,
  error_class = :error_class, error_message = :error_message, retryable = :retryable,
  inputs_hash = :inputs_hash, validation = :validation, code_sha = :code_sha, energy = :energy
WHERE run_id = :run_id AND attempt = :attempt AND node = :node AND ending IS NULL
RETURNING run_id

-- name: attempts.under_way
SELECT
  run_id, attempt, node, lineage_id, invocation_id, started_at_ms, delay_ms, ended_at_ms, ending, outcome,
  error_code, error_class, error_message, retryable, inputs_hash, validation, code_sha, energy
FROM attempts WHERE run_id = :run_id AND ending IS NULL
ORDER BY number DESC

-- name: attempts.of_run
SELECT
  run_id, attempt, node, lineage_id, invocation_id, started_at_ms, delay_ms, ended_at_ms, ending, outcome,
  error_code, error_class, error_message, retryable, inputs_hash, validation, code_sha, energy
FROM attempts WHERE run_id = :run_id
ORDER BY number

-- name: attempts.last_end
SELECT MAX(ended_at_ms) FROM attempts WHERE run_id = :run_id AND node = ''

-- name: attempts.since
SELECT
  a.number,
  a.run_id, a.attempt, a.node, a.lineage_id, a.invocation_id, a.started_at_ms, a.delay_ms, a.ended_at_ms,
  a.ending, a.outcome, a.error_code, a.error_class, a.error_message, a.retryable, a.inputs_hash, a.validation,
  a.code_sha, a.energy,
  r.run_id, r.source_id, r.dataset_id, r.pipeline_id, r.idempotency_key, r.work_key, r.work_base, r.revision,
  r.trigger_type, r.window_spec, r.window_start_ms, r.window_end_ms, r.partition_key, r.pipeline_version,
  r.status, r.attempts, r.fence, r.start_time_ms, r.end_time_ms, r.fingerprint, r.version_id, r.error_code,
  r.error_message, r.force, r.correction, r.outcome
FROM attempts a JOIN runs r ON r.run_id = a.run_id
WHERE a.number > :after_number
ORDER BY a.number
LIMIT :row_limit

-- name: retries.append
INSERT INTO retries (
  run_id, attempt, node, call_number, try_number, delay_ms, error_class, retryable, outcome, circuit_open, at_ms,
  energy
)
SELECT
  :run_id, :attempt, :node, :call_number, :try_number, :delay_ms, :error_class, :retryable, :outcome,
  :circuit_open, :at_ms, :energy
WHERE NOT EXISTS (
  SELECT 1 FROM retries
  WHERE run_id = :run_id AND attempt = :attempt AND node = :node AND call_number = :call_number
    AND try_number = :try_number AND outcome = :outcome AND at_ms = :at_ms
)

-- name: retries.of_run
SELECT
  run_id, attempt, node, call_number, try_number, delay_ms, error_class, retryable, outcome, circuit_open, at_ms,
  energy
FROM retries WHERE run_id = :run_id ORDER BY number

-- name: retries.since
SELECT
  number, run_id, attempt, node, call_number, try_number, delay_ms, error_class, retryable, outcome,
  circuit_open, at_ms, energy
FROM retries WHERE number > :after_number ORDER BY number LIMIT :row_limit

-- name: inputs.keep
INSERT INTO inputs (fingerprint, found) VALUES (:fingerprint, :found) ON CONFLICT DO NOTHING

-- name: inputs.get
SELECT found FROM inputs WHERE fingerprint = :fingerprint

-- name: policies.keep
INSERT INTO policies (bundle_id, texts) VALUES (:bundle_id, :texts) ON CONFLICT DO NOTHING

-- name: policies.get
SELECT texts FROM policies WHERE bundle_id = :bundle_id

-- name: marks.ensure
INSERT INTO marks (name, value) VALUES (:name, :value) ON CONFLICT DO NOTHING

-- name: marks.get
SELECT value FROM marks WHERE name = :name
