-- name: replica_items.claim
-- Materialized: a plan that asks again for each row would find other rows each time.
WITH due AS MATERIALIZED (
  SELECT collection_id, item_id FROM replica_items
  WHERE replica = :replica AND wanted > sent AND not_before_ms <= :now_ms
  ORDER BY not_before_ms LIMIT :row_limit FOR UPDATE SKIP LOCKED
)
UPDATE replica_items AS owed SET not_before_ms = :until_ms, tries = owed.tries + 1
FROM due
WHERE owed.replica = :replica AND owed.collection_id = due.collection_id AND owed.item_id = due.item_id
RETURNING owed.collection_id, owed.item_id, owed.wanted, owed.sent, owed.tries, owed.not_before_ms
