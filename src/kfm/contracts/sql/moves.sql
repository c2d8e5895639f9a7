-- name: moves.begin
INSERT INTO moves (move_id, role, place, state, started_at_ms, changed_at_ms, progress)
VALUES (:move_id, :role, :place, 'copying', :now_ms, :now_ms, '{}')

-- name: moves.latest
SELECT move_id, role, place, state, progress FROM moves ORDER BY started_at_ms DESC, move_id DESC LIMIT 1

-- name: moves.get
SELECT role, state FROM moves WHERE move_id = :move_id

-- name: moves.set_state
UPDATE moves SET state = :state, changed_at_ms = :now_ms WHERE move_id = :move_id

-- name: moves.set_progress
UPDATE moves SET progress = :progress, changed_at_ms = :now_ms WHERE move_id = :move_id

-- name: captured.count
SELECT count(*) FROM (SELECT 1 FROM captured LIMIT :row_limit) AS noted

-- name: captured.clear
DELETE FROM captured

-- name: migrations.remove
DELETE FROM migrations WHERE version = :version
