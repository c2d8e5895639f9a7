-- name: replica_items.claim
UPDATE replica_items SET not_before_ms = :until_ms, tries = tries + 1
WHERE replica = :replica AND (collection_id, item_id) IN (
  SELECT collection_id, item_id FROM replica_items
  WHERE replica = :replica AND wanted > sent AND not_before_ms <= :now_ms
  ORDER BY not_before_ms LIMIT :row_limit FOR UPDATE SKIP LOCKED
) AND wanted > sent
RETURNING collection_id, item_id, wanted, sent, tries, not_before_ms
