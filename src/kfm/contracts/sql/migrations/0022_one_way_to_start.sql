-- Requests of every kind: bursts of announced objects become requests, too. SQLite can't widen a check, so the
-- table is made anew there.
@postgresql ALTER TABLE requests DROP CONSTRAINT requests_kind_check;
@postgresql ALTER TABLE requests ADD CHECK (kind IN ('cron', 'webhook', 'manual', 'upstream-event'));
@sqlite CREATE TABLE requests_anew (
@sqlite   request_id      TEXT NOT NULL PRIMARY KEY,
@sqlite   key             TEXT NOT NULL,
@sqlite   kind            TEXT NOT NULL CHECK (kind IN ('cron', 'webhook', 'manual', 'upstream-event')),
@sqlite   source_id       TEXT NOT NULL,
@sqlite   dataset_id      TEXT NOT NULL,
@sqlite   window_start_ms BIGINT NOT NULL,
@sqlite   window_end_ms   BIGINT NOT NULL,
@sqlite   actor           TEXT NOT NULL,
@sqlite   accepted_at_ms  BIGINT NOT NULL,
@sqlite   not_before_ms   BIGINT NOT NULL,
@sqlite   claimed_actor   TEXT,
@sqlite   rationale       TEXT,
@sqlite   ticket          TEXT,
@sqlite   correction      TEXT,
@sqlite   schedule_id     TEXT,
@sqlite   instant_ms      BIGINT,
@sqlite   request_uuid    TEXT,
@sqlite   envelope_hash   TEXT,
@sqlite   needs_approval  BIGINT NOT NULL,
@sqlite   details         TEXT NOT NULL,
@sqlite   state           TEXT NOT NULL CHECK (state IN ('open', 'running', 'awaiting-approval', 'done', 'cancelled')),
@sqlite   outcome         TEXT,
@sqlite   reason          TEXT,
@sqlite   run_id          TEXT,
@sqlite   plan_digest     TEXT,
@sqlite   claimed_by      TEXT,
@sqlite   claim_until_ms  BIGINT NOT NULL,
@sqlite   tries           BIGINT NOT NULL,
@sqlite   cancel          TEXT,
@sqlite   ended_at_ms     BIGINT
@sqlite );
@sqlite INSERT INTO requests_anew SELECT
@sqlite   request_id, key, kind, source_id, dataset_id, window_start_ms,
@sqlite   window_end_ms, actor, accepted_at_ms, not_before_ms, claimed_actor, rationale,
@sqlite   ticket, correction, schedule_id, instant_ms, request_uuid, envelope_hash,
@sqlite   needs_approval, details, state, outcome, reason, run_id,
@sqlite   plan_digest, claimed_by, claim_until_ms, tries, cancel, ended_at_ms
@sqlite FROM requests;
@sqlite DROP TABLE requests;
@sqlite ALTER TABLE requests_anew RENAME TO requests;
@sqlite CREATE INDEX requests_due ON requests (not_before_ms) WHERE state = 'open';
@sqlite CREATE INDEX requests_claimed ON requests (claim_until_ms) WHERE state = 'running';
@sqlite CREATE INDEX requests_unsettled ON requests (schedule_id) WHERE state IN ('open', 'running', 'awaiting-approval');
@sqlite CREATE INDEX requests_recent ON requests (accepted_at_ms);
@sqlite CREATE INDEX requests_of_run ON requests (run_id) WHERE run_id IS NOT NULL;
-- What it waits for: retry, retry-after, circuit:NAME, switch:SCOPE, freeze, busy, next-run, trouble.
ALTER TABLE requests ADD COLUMN blocked_by TEXT;
-- 1: its plan's digest binds every attempt; of an approved preview, or of `kfm run --plan`.
ALTER TABLE requests ADD COLUMN is_bound BIGINT NOT NULL DEFAULT 0;
-- 1: a person asked, who may start earlier than a machine.
ALTER TABLE requests ADD COLUMN by_person BIGINT NOT NULL DEFAULT 0;
-- When it was tried first; what has no run yet has its budget from here.
ALTER TABLE requests ADD COLUMN tried_at_ms BIGINT;
UPDATE requests SET is_bound = 1 WHERE needs_approval = 1;
CREATE INDEX requests_blocked ON requests (blocked_by) WHERE state = 'open';

-- What a request gathers: the units of a burst, each with its content version.
CREATE TABLE request_members (
  request_id TEXT NOT NULL,
  member     TEXT NOT NULL,
  dataset    TEXT NOT NULL,
  start_ms   BIGINT,
  end_ms     BIGINT,
  at_ms      BIGINT NOT NULL,
  PRIMARY KEY (request_id, member)
) CLUSTERED;
CREATE INDEX request_members_of ON request_members (member);

-- When each dataset had its last turn: datasets are served in turn.
CREATE TABLE turns (
  dataset_id    TEXT NOT NULL PRIMARY KEY,
  claimed_at_ms BIGINT NOT NULL
);

-- Acts outside that must not be repeated: written before the first of them is made.
CREATE TABLE acts (
  run_id  TEXT NOT NULL,
  attempt BIGINT NOT NULL,
  name    TEXT NOT NULL,
  at_ms   BIGINT NOT NULL,
  PRIMARY KEY (run_id, attempt, name)
) CLUSTERED;

-- The inputs that a budget is for, and how many grants the day had.
ALTER TABLE retry_states ADD COLUMN fingerprint TEXT;
ALTER TABLE retry_states ADD COLUMN day_grants BIGINT NOT NULL DEFAULT 0;
CREATE INDEX runs_reaped ON runs (end_time_ms)
  WHERE status = 'failed' AND error_code IN ('WORKER_DIED', 'LEASE_EXPIRED');

INSERT INTO requests (
  request_id, key, kind, source_id, dataset_id, window_start_ms, window_end_ms, actor, accepted_at_ms,
  not_before_ms, needs_approval, details, state, outcome, run_id, claim_until_ms, tries, ended_at_ms
)
SELECT
  substr(burst_id, 8, 8) || '-' || substr(burst_id, 16, 4) || '-8' || substr(burst_id, 21, 3) || '-8' ||
    substr(burst_id, 25, 3) || '-' || substr(burst_id, 28, 12),
  burst_id, 'upstream-event', source_id,
  COALESCE((SELECT runs.dataset_id FROM runs WHERE runs.run_id = bursts.run_id), source_id),
  start_ms, end_ms, 'kfm', closed_at_ms, 0, 0, '{}',
  CASE state WHEN 'open' THEN 'open' ELSE 'done' END,
  CASE state WHEN 'open' THEN NULL WHEN 'refused' THEN 'refused' ELSE
    COALESCE((SELECT runs.status FROM runs WHERE runs.run_id = bursts.run_id), 'noop') END,
  run_id, 0, tries, CASE state WHEN 'open' THEN NULL ELSE closed_at_ms END
FROM bursts;
DROP TABLE bursts;

-- A request that ended without a run can be quarantined.
@postgresql ALTER TABLE held DROP CONSTRAINT held_grain_check;
@postgresql ALTER TABLE held ADD CHECK (grain IN ('run', 'unit', 'message', 'request'));
@sqlite CREATE TABLE held_anew (
@sqlite   number          INTEGER PRIMARY KEY,
@sqlite   held_id         TEXT NOT NULL,
@sqlite   kind            TEXT NOT NULL CHECK (kind IN ('dead-letter', 'quarantine')),
@sqlite   grain           TEXT NOT NULL CHECK (grain IN ('run', 'unit', 'message', 'request')),
@sqlite   subject         TEXT NOT NULL,
@sqlite   dataset_id      TEXT NOT NULL,
@sqlite   source_id       TEXT NOT NULL,
@sqlite   payload_hash    TEXT,
@sqlite   source_ids      TEXT NOT NULL,
@sqlite   code_sha        TEXT NOT NULL,
@sqlite   idempotency_key TEXT NOT NULL,
@sqlite   attempts        BIGINT NOT NULL,
@sqlite   error_classes   TEXT NOT NULL,
@sqlite   error_code      TEXT NOT NULL,
@sqlite   error_message   TEXT NOT NULL,
@sqlite   reason          TEXT NOT NULL,
@sqlite   held_at_ms      BIGINT NOT NULL,
@sqlite   state           TEXT NOT NULL CHECK (state IN ('held', 'released', 'resolved')),
@sqlite   released_at_ms  BIGINT,
@sqlite   released_by     TEXT
@sqlite );
@sqlite INSERT INTO held_anew SELECT
@sqlite   number, held_id, kind, grain, subject, dataset_id, source_id,
@sqlite   payload_hash, source_ids, code_sha, idempotency_key, attempts, error_classes, error_code,
@sqlite   error_message, reason, held_at_ms, state, released_at_ms, released_by
@sqlite FROM held;
@sqlite DROP TABLE held;
@sqlite ALTER TABLE held_anew RENAME TO held;
@sqlite CREATE UNIQUE INDEX held_once ON held (grain, subject) WHERE state = 'held';
@sqlite CREATE INDEX held_by_id ON held (held_id);
