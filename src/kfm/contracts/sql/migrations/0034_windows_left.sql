-- How far the windows that scheduled times have left were asked for: each step goes on from there, the oldest first.
-- What was let go longer ago than the former rule looked back stays let go; `kfm run --missing` asks for it.
ALTER TABLE schedules ADD COLUMN left_ms BIGINT NOT NULL DEFAULT 0;
UPDATE schedules SET left_ms = cursor_ms - 604800000;

-- What gates decided by when the windows that they had refused were last asked for.
ALTER TABLE schedules ADD COLUMN grounds TEXT;

-- A newer scheduled time cancelled it: its window is asked for again.
ALTER TABLE requests ADD COLUMN overtaken INTEGER NOT NULL DEFAULT 0;
CREATE INDEX requests_refused ON requests (schedule_id, window_start_ms) WHERE outcome = 'refused' OR overtaken = 1;
