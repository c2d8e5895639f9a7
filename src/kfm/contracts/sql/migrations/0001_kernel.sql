CREATE TABLE counters (
  name  TEXT NOT NULL PRIMARY KEY,
  value BIGINT NOT NULL
);

INSERT INTO counters (name, value) VALUES ('policy_epoch', 1);

CREATE TABLE runs (
  run_id           TEXT NOT NULL PRIMARY KEY,
  source_id        TEXT NOT NULL,
  dataset_id       TEXT NOT NULL,
  pipeline_id      TEXT NOT NULL,
  idempotency_key  TEXT NOT NULL UNIQUE,
  work_key         TEXT NOT NULL UNIQUE,
  work_base        TEXT NOT NULL,
  revision         BIGINT NOT NULL,
  trigger_type     TEXT NOT NULL CHECK (trigger_type IN ('cron', 'webhook', 'upstream-event', 'manual', 'retry')),
  window_spec      TEXT NOT NULL,
  window_start_ms  BIGINT NOT NULL,
  window_end_ms    BIGINT NOT NULL,
  partition_key    TEXT,
  pipeline_version TEXT NOT NULL,
  status           TEXT NOT NULL CHECK (status IN ('running', 'success', 'failed')),
  attempts         BIGINT NOT NULL,
  fence            BIGINT NOT NULL,
  start_time_ms    BIGINT NOT NULL,
  end_time_ms      BIGINT,
  fingerprint      TEXT,
  version_id       TEXT,
  error_code       TEXT,
  error_message    TEXT,
  force            BIGINT NOT NULL,
  correction       TEXT
);

CREATE UNIQUE INDEX runs_by_work ON runs (work_base, revision);
CREATE INDEX runs_by_start ON runs (start_time_ms);

CREATE TABLE invocations (
  number          SERIAL_KEY,
  invocation_id   TEXT NOT NULL,
  run_id          TEXT,
  source_id       TEXT NOT NULL,
  dataset_id      TEXT NOT NULL,
  trigger_type    TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  outcome         TEXT CHECK (outcome IN ('success', 'noop', 'failed', 'refused', 'busy')),
  actor           TEXT NOT NULL,
  requested_at_ms BIGINT NOT NULL,
  claimed_actor   TEXT,
  rationale       TEXT,
  ticket          TEXT,
  reason          TEXT,
  gates           TEXT NOT NULL
);

CREATE UNIQUE INDEX invocations_by_run ON invocations (run_id, invocation_id);

CREATE TABLE locks (
  scope          TEXT NOT NULL PRIMARY KEY,
  fence          BIGINT NOT NULL,
  worker_id      TEXT,
  run_id         TEXT,
  acquired_at_ms BIGINT NOT NULL,
  lease_until_ms BIGINT NOT NULL
);

INSERT INTO locks (scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms) VALUES ('gc', 0, NULL, NULL, 0, 0);

CREATE TABLE versions (
  version_id TEXT NOT NULL PRIMARY KEY,
  dataset_id TEXT NOT NULL,
  manifest   TEXT NOT NULL
);

CREATE TABLE promotions (
  dataset_id     TEXT NOT NULL,
  sequence       BIGINT NOT NULL,
  version_id     TEXT NOT NULL REFERENCES versions (version_id),
  run_id         TEXT NOT NULL UNIQUE REFERENCES runs (run_id),
  fence          BIGINT NOT NULL,
  policy_epoch   BIGINT NOT NULL,
  promoted_at_ms BIGINT NOT NULL,
  PRIMARY KEY (dataset_id, sequence)
);

CREATE TABLE projections (
  dataset_id TEXT NOT NULL,
  target     TEXT NOT NULL,
  sequence   BIGINT NOT NULL,
  PRIMARY KEY (dataset_id, target)
);

CREATE TABLE switches (
  scope     TEXT NOT NULL PRIMARY KEY,
  position  TEXT NOT NULL CHECK (position IN ('running', 'paused', 'stopped')),
  rationale TEXT NOT NULL,
  actor     TEXT NOT NULL,
  set_at_ms BIGINT NOT NULL
);

CREATE TABLE governance (
  number         SERIAL_KEY,
  kind           TEXT NOT NULL,
  subject        TEXT NOT NULL,
  actor          TEXT NOT NULL,
  recorded_at_ms BIGINT NOT NULL,
  rationale      TEXT,
  ticket         TEXT,
  details        TEXT NOT NULL
);

CREATE INDEX governance_by_subject ON governance (subject);

CREATE TABLE states (
  dataset_id TEXT NOT NULL,
  state_key  TEXT NOT NULL,
  value      TEXT NOT NULL,
  run_id     TEXT NOT NULL,
  PRIMARY KEY (dataset_id, state_key)
);

CREATE TABLE events (
  number        SERIAL_KEY,
  run_id        TEXT NOT NULL,
  dataset_id    TEXT NOT NULL,
  event_type    TEXT NOT NULL,
  payload       TEXT NOT NULL,
  emitted_at_ms BIGINT NOT NULL
);
