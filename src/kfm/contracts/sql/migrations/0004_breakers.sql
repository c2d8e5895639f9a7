CREATE TABLE breakers (
  provider       TEXT NOT NULL PRIMARY KEY,
  state          TEXT NOT NULL CHECK (state IN ('closed', 'open', 'half-open')),
  failures       BIGINT NOT NULL,
  opened_at_ms   BIGINT,
  probe_until_ms BIGINT,
  fence          BIGINT NOT NULL,
  tripped_at_ms  BIGINT,
  closed_at_ms   BIGINT
);
