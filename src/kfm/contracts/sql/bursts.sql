-- name: burst_members.add
INSERT INTO burst_members (source_id, dataset, member, start_ms, end_ms, at_ms)
VALUES (:source_id, :dataset, :member, :start_ms, :end_ms, :at_ms)

-- name: burst_members.waiting
-- From source to source, without a look at the members in between.
SELECT sources.source_id, (SELECT MIN(b.at_ms) FROM burst_members b WHERE b.source_id = sources.source_id)
FROM (
  WITH RECURSIVE waiting (source_id) AS (
    SELECT MIN(m.source_id) FROM burst_members m
    UNION ALL
    SELECT (SELECT MIN(m.source_id) FROM burst_members m WHERE m.source_id > waiting.source_id) FROM waiting
    WHERE waiting.source_id IS NOT NULL
  )
  SELECT source_id FROM waiting WHERE source_id IS NOT NULL
) AS sources ORDER BY sources.source_id

-- name: burst_members.take
DELETE FROM burst_members
WHERE number IN (SELECT number FROM burst_members WHERE source_id = :source_id ORDER BY at_ms, number LIMIT :row_limit)
RETURNING dataset, member, start_ms, end_ms, at_ms
