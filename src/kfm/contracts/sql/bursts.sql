-- name: burst_members.add
INSERT INTO burst_members (source_id, dataset, member, start_ms, end_ms, at_ms)
VALUES (:source_id, :dataset, :member, :start_ms, :end_ms, :at_ms)

-- name: burst_members.waiting
SELECT source_id, MIN(at_ms) FROM burst_members GROUP BY source_id ORDER BY source_id

-- name: burst_members.take
DELETE FROM burst_members
WHERE number IN (SELECT number FROM burst_members WHERE source_id = :source_id ORDER BY number LIMIT :row_limit)
RETURNING dataset, member, start_ms, end_ms, at_ms
