CREATE TABLE retry_states (
  run_id         TEXT NOT NULL PRIMARY KEY REFERENCES runs (run_id),
  attempt        BIGINT NOT NULL,
  grants         BIGINT NOT NULL,
  grant_attempts BIGINT NOT NULL,
  granted_at_ms  BIGINT NOT NULL,
  not_before_ms  BIGINT,
  fate           TEXT NOT NULL CHECK (fate IN ('retry', 'spent', 'quarantine')),
  error_class    TEXT NOT NULL,
  reason         TEXT NOT NULL,
  updated_at_ms  BIGINT NOT NULL
);

CREATE INDEX retry_states_waiting ON retry_states (not_before_ms) WHERE fate = 'retry';

CREATE TABLE held (
  number          SERIAL_KEY,
  held_id         TEXT NOT NULL,
  kind            TEXT NOT NULL CHECK (kind IN ('dead-letter', 'quarantine')),
  grain           TEXT NOT NULL CHECK (grain IN ('run', 'unit', 'message')),
  subject         TEXT NOT NULL,
  dataset_id      TEXT NOT NULL,
  source_id       TEXT NOT NULL,
  payload_hash    TEXT,
  source_ids      TEXT NOT NULL,
  code_sha        TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  attempts        BIGINT NOT NULL,
  error_classes   TEXT NOT NULL,
  error_code      TEXT NOT NULL,
  error_message   TEXT NOT NULL,
  reason          TEXT NOT NULL,
  held_at_ms      BIGINT NOT NULL,
  state           TEXT NOT NULL CHECK (state IN ('held', 'released', 'resolved')),
  released_at_ms  BIGINT,
  released_by     TEXT
);

CREATE UNIQUE INDEX held_once ON held (grain, subject) WHERE state = 'held';
CREATE INDEX held_by_id ON held (held_id);

CREATE TABLE approvals (
  request_id         TEXT NOT NULL PRIMARY KEY,
  kind               TEXT NOT NULL,
  subject            TEXT NOT NULL,
  digest             TEXT NOT NULL,
  requested_by       TEXT NOT NULL,
  requested_at_ms    BIGINT NOT NULL,
  rationale          TEXT NOT NULL,
  ticket             TEXT,
  state              TEXT NOT NULL CHECK (state IN ('requested', 'approved')),
  approved_by        TEXT,
  approved_at_ms     BIGINT,
  approval_rationale TEXT,
  CHECK (approved_by IS NULL OR approved_by <> requested_by)
);
