-- expand: columns and tables that earlier processes leave as they are.
-- A replay's name; whether a service carries it out (1), a person has stopped that (0), or a command does it (null); how
-- fast, in units per 1,000 seconds; and what lists say of its plan, which may be long.
ALTER TABLE replays ADD COLUMN name TEXT;
ALTER TABLE replays ADD COLUMN served BIGINT;
ALTER TABLE replays ADD COLUMN rate_milli BIGINT;
ALTER TABLE replays ADD COLUMN summary TEXT;
CREATE INDEX replays_served ON replays (served, created_at_ms, replay_id) WHERE state = 'running';

-- Windows that were asked for together: missing ones, or scheduled times. The list as it was, each with its request.
CREATE TABLE window_plans (
  plan_id       TEXT NOT NULL PRIMARY KEY,
  kind          TEXT NOT NULL,
  digest        TEXT NOT NULL,
  subject       TEXT NOT NULL,
  name          TEXT,
  rationale     TEXT,
  ticket        TEXT,
  requested_by  TEXT NOT NULL,
  datasets      TEXT NOT NULL,
  entries       BIGINT NOT NULL,
  left_out      TEXT NOT NULL,
  created_at_ms BIGINT NOT NULL
);
CREATE INDEX window_plans_recent ON window_plans (created_at_ms DESC, plan_id);
CREATE TABLE window_plan_entries (
  plan_id         TEXT NOT NULL,
  number          BIGINT NOT NULL,
  source_id       TEXT NOT NULL,
  dataset_id      TEXT NOT NULL,
  window_start_ms BIGINT NOT NULL,
  window_end_ms   BIGINT NOT NULL,
  instant_ms      BIGINT,
  was             TEXT NOT NULL,
  why             TEXT NOT NULL,
  request_id      TEXT,
  PRIMARY KEY (plan_id, number)
) CLUSTERED;
