-- One row per attempt at a pass, and how many records it wrote: counted in the transactions that write them.
CREATE TABLE pass_attempts (
  number        SERIAL_KEY,
  run_id        TEXT NOT NULL,
  attempt       BIGINT NOT NULL,
  pipeline_id   TEXT NOT NULL,
  branch        TEXT NOT NULL,
  fence         BIGINT NOT NULL,
  state         TEXT NOT NULL CHECK (
    state IN ('running', 'success', 'partial', 'failed', 'cancelled', 'aborted')
  ),
  started_at_ms BIGINT NOT NULL,
  ended_at_ms   BIGINT CHECK ((state = 'running') = (ended_at_ms IS NULL)),
  success       BIGINT NOT NULL DEFAULT 0,
  failed        BIGINT NOT NULL DEFAULT 0,
  partial       BIGINT NOT NULL DEFAULT 0,
  skipped       BIGINT NOT NULL DEFAULT 0,
  worked_ms     BIGINT NOT NULL DEFAULT 0,
  UNIQUE (run_id, attempt)
);
