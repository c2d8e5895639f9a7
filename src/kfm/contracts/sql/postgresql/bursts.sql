-- name: burst_members.take
-- Materialized, for the same reason as a claim.
WITH taken AS MATERIALIZED (
  SELECT number FROM burst_members WHERE source_id = :source_id
  ORDER BY number LIMIT :row_limit FOR UPDATE SKIP LOCKED
)
DELETE FROM burst_members AS gathered USING taken WHERE gathered.number = taken.number
RETURNING gathered.dataset, gathered.member, gathered.start_ms, gathered.end_ms, gathered.at_ms

-- name: bursts.claim
-- Materialized: a plan that asks again for each row would find other rows each time.
WITH due AS MATERIALIZED (
  SELECT burst_id FROM bursts WHERE state = 'open' AND not_before_ms <= :now_ms
  ORDER BY not_before_ms, closed_at_ms LIMIT :row_limit FOR UPDATE SKIP LOCKED
)
UPDATE bursts AS burst SET not_before_ms = :until_ms, tries = burst.tries + 1
FROM due WHERE burst.burst_id = due.burst_id
RETURNING burst.burst_id, burst.source_id, burst.dataset, burst.members, burst.start_ms, burst.end_ms,
  burst.closed_at_ms, burst.state, burst.run_id, burst.tries
