-- One row per node and run. Skipped ones name the run that made their result and hold nothing else of it.
CREATE TABLE run_states (
  run_id          TEXT NOT NULL,
  dataset_id      TEXT NOT NULL CHECK (length(dataset_id) BETWEEN 1 AND 300),
  lakefs_branch   TEXT NOT NULL CHECK (length(lakefs_branch) BETWEEN 1 AND 300),
  inputs_hash     TEXT NOT NULL CHECK (length(inputs_hash) = 71 AND inputs_hash LIKE 'sha256:%'),
  outcome         TEXT NOT NULL CHECK (outcome IN ('success', 'failed', 'partial', 'skipped')),
  recorded_at_ms  BIGINT NOT NULL,
  attempt         BIGINT NOT NULL,
  code_sha        TEXT,
  skipped_because TEXT CHECK ((outcome = 'skipped') = (skipped_because IS NOT NULL)),
  output_commit   TEXT,
  outputs_hash    TEXT,
  outputs         TEXT,
  validation      TEXT,
  pipeline_id     TEXT,
  duration_ms     BIGINT,
  error_code      TEXT,
  error_message   TEXT,
  reason          TEXT,
  reverted        BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (run_id, dataset_id)
) CLUSTERED;

CREATE INDEX run_states_made ON run_states (dataset_id, lakefs_branch, inputs_hash, recorded_at_ms)
WHERE outcome <> 'skipped';

-- What a branch knows of each node: the newest success whose outputs stand there.
CREATE TABLE node_heads (
  branch        TEXT NOT NULL,
  dataset_id    TEXT NOT NULL,
  run_id        TEXT NOT NULL,
  inputs_hash   TEXT NOT NULL,
  code_sha      TEXT,
  outputs_hash  TEXT NOT NULL,
  outputs       TEXT NOT NULL,
  output_commit TEXT,
  rerun         TEXT,
  PRIMARY KEY (branch, dataset_id)
) CLUSTERED;

CREATE INDEX node_heads_loose ON node_heads (branch) WHERE output_commit IS NULL;

CREATE TABLE passes (
  number        SERIAL_KEY,
  run_id        TEXT NOT NULL UNIQUE,
  pipeline_id   TEXT NOT NULL,
  branch        TEXT NOT NULL,
  state         TEXT NOT NULL CHECK (state IN ('running', 'success', 'partial', 'failed', 'cancelled')),
  attempt       BIGINT NOT NULL,
  fence         BIGINT NOT NULL,
  worker_id     TEXT NOT NULL,
  started_at_ms BIGINT NOT NULL,
  ended_at_ms   BIGINT,
  graph_hash    TEXT NOT NULL,
  counts        TEXT NOT NULL,
  commit_id     TEXT,
  error_code    TEXT
);

CREATE TABLE documents (
  hash TEXT NOT NULL PRIMARY KEY,
  body TEXT NOT NULL
);

CREATE TABLE file_checksums (
  path        TEXT NOT NULL PRIMARY KEY,
  size        BIGINT NOT NULL,
  modified_ns BIGINT NOT NULL,
  inode       BIGINT NOT NULL,
  checksum    TEXT NOT NULL
);
