CREATE TABLE incidents (
  cause          TEXT NOT NULL PRIMARY KEY,
  incident_id    TEXT NOT NULL,
  about          TEXT NOT NULL CHECK (about IN ('dataset', 'provider')),
  name           TEXT NOT NULL,
  kind           TEXT NOT NULL CHECK (kind IN ('circuit-open', 'dead-letter', 'quarantine', 'halt')),
  error_class    TEXT NOT NULL,
  error_code     TEXT NOT NULL,
  message        TEXT NOT NULL,
  subject        TEXT NOT NULL,
  state          TEXT NOT NULL CHECK (state IN ('open', 'resolved')),
  occurrence     BIGINT NOT NULL,
  changes        BIGINT NOT NULL,
  affected       BIGINT NOT NULL,
  opened_at_ms   BIGINT NOT NULL,
  last_at_ms     BIGINT NOT NULL,
  resolved_at_ms BIGINT,
  CHECK ((state = 'resolved') = (resolved_at_ms IS NOT NULL))
);

CREATE INDEX incidents_open ON incidents (opened_at_ms) WHERE state = 'open';

CREATE TABLE incident_subjects (
  cause      TEXT NOT NULL REFERENCES incidents (cause),
  subject    TEXT NOT NULL,
  dataset_id TEXT NOT NULL,
  source_id  TEXT NOT NULL,
  PRIMARY KEY (cause, subject)
);

CREATE INDEX incident_subjects_by_source ON incident_subjects (source_id, dataset_id);

CREATE TABLE hook_deliveries (
  hook            TEXT NOT NULL,
  number          BIGINT NOT NULL,
  tries           BIGINT NOT NULL,
  not_before_ms   BIGINT NOT NULL,
  delivered_at_ms BIGINT,
  PRIMARY KEY (number, hook)
);
