-- name: burst_members.take
-- Materialized, for the same reason as a claim.
WITH taken AS MATERIALIZED (
  SELECT number FROM burst_members WHERE source_id = :source_id
  ORDER BY at_ms, number LIMIT :row_limit FOR UPDATE SKIP LOCKED
)
DELETE FROM burst_members AS gathered USING taken WHERE gathered.number = taken.number
RETURNING gathered.dataset, gathered.member, gathered.start_ms, gathered.end_ms, gathered.at_ms
