-- name: run_inputs.add
INSERT INTO run_inputs (run_id, dataset_id, read_as, sequence, version_id, part)
VALUES (:run_id, :dataset_id, :read_as, :sequence, :version_id, :part)
ON CONFLICT (run_id, dataset_id) DO UPDATE SET read_as = excluded.read_as, sequence = excluded.sequence,
  version_id = excluded.version_id, part = excluded.part

-- name: run_inputs.of_run
SELECT dataset_id, read_as, sequence, version_id, part FROM run_inputs WHERE run_id = :run_id ORDER BY dataset_id

-- name: derived_windows.pin
INSERT INTO derived_windows (source_id, window_start_ms, window_end_ms, pinned, run_id, asked, asks)
VALUES (:source_id, :window_start_ms, :window_end_ms, :pinned, :run_id, NULL, 0)
ON CONFLICT (source_id, window_start_ms, window_end_ms) DO UPDATE SET pinned = excluded.pinned,
  run_id = excluded.run_id,
  asked = CASE WHEN derived_windows.asked = excluded.pinned THEN NULL ELSE derived_windows.asked END

-- name: derived_windows.of_source
SELECT window_start_ms, window_end_ms, pinned, run_id, asked, asks FROM derived_windows WHERE source_id = :source_id
ORDER BY window_start_ms, window_end_ms

-- name: derived_windows.ask
INSERT INTO derived_windows (source_id, window_start_ms, window_end_ms, pinned, run_id, asked, asks)
VALUES (:source_id, :window_start_ms, :window_end_ms, '', NULL, :asked, 1)
ON CONFLICT (source_id, window_start_ms, window_end_ms) DO UPDATE SET asked = excluded.asked,
  asks = derived_windows.asks + 1
RETURNING asks

-- name: derived_windows.settle
-- What was asked for is there, or is not wanted any more: the next change is asked for again.
UPDATE derived_windows SET asked = NULL WHERE source_id = :source_id AND window_start_ms = :window_start_ms
  AND window_end_ms = :window_end_ms

-- name: derived_sources.seen
SELECT seen FROM derived_sources WHERE source_id = :source_id

-- name: derived_sources.first
INSERT INTO derived_sources (source_id, seen) VALUES (:source_id, :seen) ON CONFLICT (source_id) DO NOTHING
RETURNING source_id

-- name: derived_sources.advance
UPDATE derived_sources SET seen = :seen WHERE source_id = :source_id AND seen = :before RETURNING source_id
