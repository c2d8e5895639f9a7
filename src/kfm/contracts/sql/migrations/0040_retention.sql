-- Retention: rows that no promise needs go once they are old. Keys, digests and verdicts of windows stay.

-- How far each kind was looked through, and what has gone. Nothing younger than `before_ms` has.
CREATE TABLE retention_marks (
  kind       TEXT NOT NULL PRIMARY KEY,
  mark       TEXT NOT NULL,
  before_ms  BIGINT NOT NULL,
  gone_rows  BIGINT NOT NULL,
  gone_bytes BIGINT NOT NULL,
  at_ms      BIGINT NOT NULL
) CLUSTERED;

INSERT INTO locks (scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms)
VALUES ('retention', 0, NULL, NULL, 0, 0) ON CONFLICT DO NOTHING;

CREATE INDEX previews_by_time ON previews (made_at_ms, digest);
CREATE INDEX runs_by_fingerprint ON runs (fingerprint, start_time_ms) WHERE fingerprint IS NOT NULL;
