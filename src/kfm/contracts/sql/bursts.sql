-- name: burst_members.add
INSERT INTO burst_members (source_id, dataset, member, start_ms, end_ms, at_ms)
VALUES (:source_id, :dataset, :member, :start_ms, :end_ms, :at_ms)

-- name: burst_members.waiting
SELECT source_id, MIN(at_ms) FROM burst_members GROUP BY source_id ORDER BY source_id

-- name: burst_members.take
DELETE FROM burst_members
WHERE number IN (SELECT number FROM burst_members WHERE source_id = :source_id ORDER BY number LIMIT :row_limit)
RETURNING dataset, member, start_ms, end_ms, at_ms

-- name: bursts.insert
INSERT INTO bursts (
  burst_id, source_id, dataset, members, start_ms, end_ms, closed_at_ms, state, run_id, tries, not_before_ms
) VALUES (:burst_id, :source_id, :dataset, :members, :start_ms, :end_ms, :closed_at_ms, 'open', NULL, 0, 0)
ON CONFLICT (burst_id) DO NOTHING

-- name: bursts.claim
UPDATE bursts SET not_before_ms = :until_ms, tries = tries + 1
WHERE burst_id IN (
  SELECT burst_id FROM bursts WHERE state = 'open' AND not_before_ms <= :now_ms
  ORDER BY not_before_ms, closed_at_ms LIMIT :row_limit
) AND state = 'open'
RETURNING burst_id, source_id, dataset, members, start_ms, end_ms, closed_at_ms, state, run_id, tries

-- name: bursts.settle
UPDATE bursts SET state = :state, run_id = :run_id, not_before_ms = :not_before_ms
WHERE burst_id = :burst_id AND state = 'open'

-- name: bursts.list
SELECT burst_id, source_id, dataset, members, start_ms, end_ms, closed_at_ms, state, run_id, tries
FROM bursts ORDER BY closed_at_ms DESC, burst_id LIMIT :row_limit

-- name: bursts.due
SELECT 1 FROM bursts WHERE state = 'open' AND not_before_ms <= :now_ms LIMIT 1
