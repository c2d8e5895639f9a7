-- How far the windows that are due were looked at for each source, by the rule that they are expected by.
CREATE TABLE overdue_marks (
  source_id TEXT NOT NULL,
  rule      TEXT NOT NULL,
  mark_ms   BIGINT NOT NULL,
  PRIMARY KEY (source_id, rule)
) CLUSTERED;
