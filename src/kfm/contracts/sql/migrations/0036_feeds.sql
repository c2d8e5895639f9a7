-- Units by the time of their data: that of a model's cycle, else the start of what they cover. For hours of feeds.
@sqlite CREATE INDEX units_by_data_time ON units (dataset, COALESCE(json_extract(extra, '$.reference_time_ms'), time_range_start_ms));
@postgresql CREATE INDEX units_by_data_time ON units (dataset, (COALESCE((extra::jsonb ->> 'reference_time_ms')::bigint, time_range_start_ms)));

-- Hours of a feed's product that were due and not there when they were looked at: all others before the mark are
-- there. `is_told`: an incident was opened for it.
CREATE TABLE open_hours (
  dataset   TEXT NOT NULL,
  source_id TEXT NOT NULL,
  hour_ms   BIGINT NOT NULL,
  is_told   BIGINT NOT NULL,
  PRIMARY KEY (dataset, source_id, hour_ms)
) CLUSTERED;
