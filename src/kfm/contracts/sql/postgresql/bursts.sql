-- name: burst_members.take
DELETE FROM burst_members
WHERE number IN (
  SELECT number FROM burst_members WHERE source_id = :source_id
  ORDER BY number LIMIT :row_limit FOR UPDATE SKIP LOCKED
)
RETURNING dataset, member, start_ms, end_ms, at_ms

-- name: bursts.claim
UPDATE bursts SET not_before_ms = :until_ms, tries = tries + 1
WHERE burst_id IN (
  SELECT burst_id FROM bursts WHERE state = 'open' AND not_before_ms <= :now_ms
  ORDER BY not_before_ms, closed_at_ms LIMIT :row_limit FOR UPDATE SKIP LOCKED
) AND state = 'open'
RETURNING burst_id, source_id, dataset, members, start_ms, end_ms, closed_at_ms, state, run_id, tries
