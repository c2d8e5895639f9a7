CREATE TABLE attempts (
  number        SERIAL_KEY,
  run_id        TEXT NOT NULL,
  attempt       BIGINT NOT NULL,
  node          TEXT NOT NULL,
  lineage_id    TEXT NOT NULL,
  invocation_id TEXT NOT NULL,
  started_at_ms BIGINT NOT NULL,
  delay_ms      BIGINT NOT NULL,
  ended_at_ms   BIGINT,
  ending        TEXT CHECK (ending IN ('complete', 'fail', 'abort')),
  outcome       TEXT CHECK (outcome IN ('success', 'failed', 'partial', 'skipped')),
  error_code    TEXT,
  error_class   TEXT,
  error_message TEXT,
  retryable     BIGINT,
  inputs_hash   TEXT,
  validation    TEXT,
  code_sha      TEXT,
  energy        TEXT
);

CREATE UNIQUE INDEX attempts_by_run ON attempts (run_id, attempt, node);

CREATE TABLE retries (
  number       SERIAL_KEY,
  run_id       TEXT NOT NULL,
  attempt      BIGINT NOT NULL,
  node         TEXT NOT NULL,
  call_number  BIGINT NOT NULL,
  try_number   BIGINT NOT NULL,
  delay_ms     BIGINT NOT NULL,
  error_class  TEXT NOT NULL,
  retryable    BIGINT NOT NULL,
  outcome      TEXT NOT NULL CHECK (outcome IN ('retried', 'gave-up')),
  circuit_open BIGINT NOT NULL,
  at_ms        BIGINT NOT NULL
);

CREATE INDEX retries_by_run ON retries (run_id);

CREATE TABLE inputs (
  fingerprint TEXT NOT NULL PRIMARY KEY,
  found       TEXT NOT NULL
);

CREATE TABLE policies (
  bundle_id TEXT NOT NULL PRIMARY KEY,
  texts     TEXT NOT NULL
);

CREATE TABLE outbox (
  number          SERIAL_KEY,
  event_id        TEXT NOT NULL,
  topic           TEXT NOT NULL,
  subject         TEXT NOT NULL,
  body            TEXT NOT NULL,
  recorded_at_ms  BIGINT NOT NULL,
  tries           BIGINT NOT NULL,
  not_before_ms   BIGINT NOT NULL,
  delivered_at_ms BIGINT
);

CREATE INDEX outbox_by_subject ON outbox (subject);
CREATE INDEX outbox_waiting ON outbox (topic, number) WHERE delivered_at_ms IS NULL;

CREATE TABLE marks (
  name  TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
);
