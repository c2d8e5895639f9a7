-- The write-ahead ledger of announced objects. One row a unit; what it went through is in unit_pages.
CREATE TABLE units (
  wal_id              TEXT NOT NULL PRIMARY KEY,
  dataset             TEXT NOT NULL,
  object_uri          TEXT NOT NULL,
  provider            TEXT NOT NULL,
  queue               TEXT NOT NULL,
  event_time_ms       BIGINT,
  time_range_start_ms BIGINT,
  time_range_end_ms   BIGINT,
  status              TEXT NOT NULL CHECK (status IN ('pending', 'in_progress', 'succeeded', 'failed', 'quarantined')),
  attempts            BIGINT NOT NULL,
  last_attempt_at_ms  BIGINT,
  last_error_code     TEXT,
  last_error_message  TEXT,
  integrity_status    TEXT NOT NULL,
  metadata_status     TEXT NOT NULL,
  stac_status         TEXT NOT NULL,
  provenance_status   TEXT NOT NULL,
  stac_item_id        TEXT,
  stac_collection_id  TEXT,
  stac_item_href      TEXT,
  ingest_run_id       TEXT,
  worker_id           TEXT,
  replay_reason       TEXT,
  created_at_ms       BIGINT NOT NULL,
  updated_at_ms       BIGINT NOT NULL,
  version             BIGINT NOT NULL,
  extra               TEXT NOT NULL,
  etag                TEXT,
  sequencer           TEXT,
  size                BIGINT,
  version_id          TEXT,
  content_version     BIGINT NOT NULL,
  done_version        BIGINT NOT NULL,
  lease_until_ms      BIGINT NOT NULL,
  not_before_ms       BIGINT NOT NULL,
  grants              BIGINT NOT NULL,
  grant_attempts      BIGINT NOT NULL,
  granted_at_ms       BIGINT NOT NULL,
  alone               BIGINT NOT NULL,
  removed             BIGINT NOT NULL,
  unclear             BIGINT NOT NULL,
  replacing           BIGINT NOT NULL,
  trail               TEXT NOT NULL
);

CREATE INDEX units_due ON units (dataset, provider, alone, not_before_ms) WHERE status = 'pending';
CREATE INDEX units_leased ON units (lease_until_ms) WHERE status = 'in_progress';
CREATE INDEX units_stuck ON units (dataset, status) WHERE status IN ('failed', 'quarantined');

-- The same transition of all the units that went through it in one transaction. Rows never change.
CREATE TABLE unit_pages (
@sqlite   number    INTEGER PRIMARY KEY,
@postgresql   number    BIGINT NOT NULL PRIMARY KEY,
  event     TEXT NOT NULL,
  status    TEXT NOT NULL,
  at_ms     BIGINT NOT NULL,
  worker_id TEXT,
  members   TEXT NOT NULL
);
-- Numbers of pages: on SQLite, which has one writer, the next one is the last and one more.
@postgresql CREATE SEQUENCE unit_page_numbers;

-- Figures as changes that nobody waits for, added up later.
CREATE TABLE unit_deltas (
  number  SERIAL_KEY,
  dataset TEXT NOT NULL,
  name    TEXT NOT NULL,
  amount  BIGINT NOT NULL,
  high_ms BIGINT
);
CREATE TABLE unit_totals (
  dataset TEXT NOT NULL,
  name    TEXT NOT NULL,
  amount  BIGINT NOT NULL,
  high_ms BIGINT,
  PRIMARY KEY (dataset, name)
);

-- Records of messages that are not taken in.
CREATE TABLE dead_messages (
  envelope_hash TEXT NOT NULL,
  record_index  BIGINT NOT NULL,
  queue         TEXT NOT NULL,
  error_code    TEXT NOT NULL,
  error         TEXT NOT NULL,
  body          TEXT,
  times         BIGINT NOT NULL,
  first_at_ms   BIGINT NOT NULL,
  last_at_ms    BIGINT NOT NULL,
  state         TEXT NOT NULL,
  PRIMARY KEY (envelope_hash, record_index)
);
CREATE INDEX dead_messages_by_time ON dead_messages (last_at_ms);
