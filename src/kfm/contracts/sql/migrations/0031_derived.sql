-- Datasets made from datasets.
-- What a run read of other datasets: which version was their head, and the digest of the part that it read.
CREATE TABLE run_inputs (
  run_id     TEXT NOT NULL REFERENCES runs (run_id),
  dataset_id TEXT NOT NULL,
  read_as    TEXT NOT NULL CHECK (read_as IN ('window', 'current')),
  sequence   BIGINT NOT NULL,
  version_id TEXT,
  part       TEXT NOT NULL,
  PRIMARY KEY (run_id, dataset_id)
);

-- Of each window of a derived source: the digest of what the last run that published it has read ('': none has), and
-- of what was asked for last (NULL: nothing, or it has been made).
CREATE TABLE derived_windows (
  source_id       TEXT NOT NULL,
  window_start_ms BIGINT NOT NULL,
  window_end_ms   BIGINT NOT NULL,
  pinned          TEXT NOT NULL,
  run_id          TEXT REFERENCES runs (run_id),
  asked           TEXT,
  asks            BIGINT NOT NULL,
  PRIMARY KEY (source_id, window_start_ms, window_end_ms)
);

-- Of each derived source: its definition and the sequences of its inputs when they were looked at last.
CREATE TABLE derived_sources (
  source_id TEXT NOT NULL PRIMARY KEY,
  seen      TEXT NOT NULL
);
