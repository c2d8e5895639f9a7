-- Wishes to bring a source up to date, each accepted once: the id follows from the key. Rows are kept: what a
-- key was used for is evidence.
CREATE TABLE requests (
  request_id      TEXT NOT NULL PRIMARY KEY,
  key             TEXT NOT NULL,
  kind            TEXT NOT NULL CHECK (kind IN ('cron', 'webhook', 'manual')),
  source_id       TEXT NOT NULL,
  dataset_id      TEXT NOT NULL,
  window_start_ms BIGINT NOT NULL,
  window_end_ms   BIGINT NOT NULL,
  actor           TEXT NOT NULL,
  accepted_at_ms  BIGINT NOT NULL,
  not_before_ms   BIGINT NOT NULL,
  claimed_actor   TEXT,
  rationale       TEXT,
  ticket          TEXT,
  correction      TEXT,
  schedule_id     TEXT,
  instant_ms      BIGINT,
  request_uuid    TEXT,
  envelope_hash   TEXT,
  needs_approval  BIGINT NOT NULL,
  details         TEXT NOT NULL,
  state           TEXT NOT NULL CHECK (state IN ('open', 'running', 'awaiting-approval', 'done', 'cancelled')),
  outcome         TEXT,
  reason          TEXT,
  run_id          TEXT,
  plan_digest     TEXT,
  claimed_by      TEXT,
  claim_until_ms  BIGINT NOT NULL,
  tries           BIGINT NOT NULL,
  cancel          TEXT,
  ended_at_ms     BIGINT
);
CREATE INDEX requests_due ON requests (not_before_ms) WHERE state = 'open';
CREATE INDEX requests_claimed ON requests (claim_until_ms) WHERE state = 'running';
CREATE INDEX requests_unsettled ON requests (schedule_id) WHERE state IN ('open', 'running', 'awaiting-approval');
CREATE INDEX requests_recent ON requests (accepted_at_ms);
CREATE INDEX requests_of_run ON requests (run_id) WHERE run_id IS NOT NULL;

-- What a run is about to change, kept before it does.
CREATE TABLE previews (
  digest     TEXT NOT NULL PRIMARY KEY,
  plan       TEXT NOT NULL,
  made_at_ms BIGINT NOT NULL
);

-- How far each schedule has been accounted for, and whether it is paused.
CREATE TABLE schedules (
  schedule_id   TEXT NOT NULL PRIMARY KEY,
  definition    TEXT NOT NULL,
  cursor_ms     BIGINT NOT NULL,
  version       BIGINT NOT NULL,
  paused_at_ms  BIGINT,
  paused_by     TEXT,
  rationale     TEXT,
  updated_at_ms BIGINT NOT NULL
);

-- Every instant of a schedule that has come: the request that it became, or why it became none. A row without
-- a request may stand for all instants from its first to its last.
CREATE TABLE instants (
  schedule_id TEXT NOT NULL,
  instant_ms  BIGINT NOT NULL,
  last_ms     BIGINT NOT NULL,
  became      TEXT NOT NULL CHECK (became IN ('request', 'skipped', 'missed', 'dropped', 'redefined', 'backfilled')),
  request_id  TEXT,
  reason      TEXT,
  at_ms       BIGINT NOT NULL,
  PRIMARY KEY (schedule_id, instant_ms)
) CLUSTERED;
