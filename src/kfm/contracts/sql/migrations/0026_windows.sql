-- What a successful run came to: a run that found nothing is a success, and no data. `empty`: upstream has said so.
-- `absent`: nothing was found where something was looked for. NULL: it has not succeeded.
ALTER TABLE runs ADD COLUMN outcome TEXT CHECK (outcome IN ('published', 'unchanged', 'empty', 'absent'));
UPDATE runs SET outcome = CASE
  WHEN EXISTS (SELECT 1 FROM promotions p WHERE p.run_id = runs.run_id) THEN 'published'
  WHEN fingerprint = 'sha256:1b1f726af41509a38c74202e2ac2f997c6c27a60da8d6d28f24b2267b4cab118' THEN 'absent'
  ELSE 'unchanged' END
WHERE status = 'success';

-- Which window an invocation asked for, also where no run came of it. Older rows do not say.
ALTER TABLE invocations ADD COLUMN window_start_ms BIGINT;
ALTER TABLE invocations ADD COLUMN window_end_ms BIGINT;

-- Everything about a window is found by source and window; the newest of a dataset without a look at other datasets.
CREATE INDEX runs_by_window ON runs (source_id, window_start_ms, window_end_ms);
CREATE INDEX runs_of_dataset ON runs (dataset_id, start_time_ms, run_id);
CREATE INDEX invocations_by_window ON invocations (source_id, window_start_ms, window_end_ms);
CREATE INDEX invocations_of_dataset ON invocations (dataset_id, number);
CREATE INDEX requests_by_window ON requests (source_id, window_start_ms, window_end_ms);

-- Since when windows are expected of a source, once for each rule of its windows.
CREATE TABLE expectations (
  source_id TEXT NOT NULL,
  rule      TEXT NOT NULL,
  since_ms  BIGINT NOT NULL,
  PRIMARY KEY (source_id, rule)
) CLUSTERED;

-- Windows that a person has settled: no data will come, or what came was taken down.
CREATE TABLE settled_windows (
  source_id       TEXT NOT NULL,
  window_start_ms BIGINT NOT NULL,
  window_end_ms   BIGINT NOT NULL,
  dataset_id      TEXT NOT NULL,
  kind            TEXT NOT NULL CHECK (kind IN ('dismissed', 'withdrawn')),
  settled_at_ms   BIGINT NOT NULL,
  actor           TEXT NOT NULL,
  rationale       TEXT NOT NULL,
  ticket          TEXT,
  PRIMARY KEY (source_id, window_start_ms, window_end_ms)
) CLUSTERED;
