-- A frozen selection of units, and what became of each when it was carried out.
CREATE TABLE replays (
  replay_id     TEXT NOT NULL PRIMARY KEY,
  digest        TEXT NOT NULL,
  plan          TEXT NOT NULL,
  mode          TEXT NOT NULL,
  reason        TEXT NOT NULL,
  rationale     TEXT NOT NULL,
  requested_by  TEXT NOT NULL,
  state         TEXT NOT NULL,
  created_at_ms BIGINT NOT NULL,
  updated_at_ms BIGINT NOT NULL
);
CREATE TABLE replay_units (
  replay_id TEXT NOT NULL,
  wal_id    TEXT NOT NULL,
  version   BIGINT NOT NULL,
  receipt   TEXT,
  at_ms     BIGINT,
  PRIMARY KEY (replay_id, wal_id)
) CLUSTERED;

-- Units that a source waits for, until their burst is handed on.
CREATE TABLE burst_members (
  number    SERIAL_KEY,
  source_id TEXT NOT NULL,
  dataset   TEXT NOT NULL,
  member    TEXT NOT NULL,
  start_ms  BIGINT,
  end_ms    BIGINT,
  at_ms     BIGINT NOT NULL
);
CREATE INDEX burst_members_waiting ON burst_members (source_id, at_ms);
CREATE TABLE bursts (
  burst_id     TEXT NOT NULL PRIMARY KEY,
  source_id    TEXT NOT NULL,
  dataset      TEXT NOT NULL,
  members      BIGINT NOT NULL,
  start_ms     BIGINT,
  end_ms       BIGINT,
  closed_at_ms BIGINT NOT NULL,
  state        TEXT NOT NULL,
  run_id       TEXT,
  tries        BIGINT NOT NULL,
  not_before_ms BIGINT NOT NULL
);
CREATE INDEX bursts_open ON bursts (not_before_ms) WHERE state = 'open';
