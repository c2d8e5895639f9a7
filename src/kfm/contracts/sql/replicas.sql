-- name: replica_items.claim
UPDATE replica_items SET not_before_ms = :until_ms, tries = tries + 1
WHERE replica = :replica AND (collection_id, item_id) IN (
  SELECT collection_id, item_id FROM replica_items
  WHERE replica = :replica AND wanted > sent AND not_before_ms <= :now_ms
  ORDER BY not_before_ms LIMIT :row_limit
) AND wanted > sent
RETURNING collection_id, item_id, wanted, sent, tries, not_before_ms

-- name: replica_items.delivered
UPDATE replica_items SET
  sent = CASE WHEN :sent > sent THEN :sent ELSE sent END, not_before_ms = 0, tries = 0
WHERE replica = :replica AND collection_id = :collection_id AND item_id = :item_id AND not_before_ms = :until_ms
RETURNING item_id

-- name: replica_items.outrun
UPDATE replica_items SET wanted = wanted + 1
WHERE replica = :replica AND collection_id = :collection_id AND item_id = :item_id

-- name: replica_items.put_back
UPDATE replica_items SET not_before_ms = :not_before_ms, tries = tries - :untried
WHERE replica = :replica AND collection_id = :collection_id AND item_id = :item_id AND not_before_ms = :until_ms
RETURNING item_id

-- name: replica_items.again
INSERT INTO replica_items (replica, collection_id, item_id, wanted, sent, not_before_ms, tries)
VALUES (:replica, :collection_id, :item_id, :wanted, 0, 0, 0)
ON CONFLICT (replica, collection_id, item_id) DO UPDATE SET
  not_before_ms = 0, tries = 0,
  wanted = 1 + CASE
    WHEN excluded.wanted > replica_items.wanted THEN excluded.wanted ELSE replica_items.wanted
  END

-- name: replica_items.due
SELECT 1 FROM replica_items
WHERE replica = :replica AND wanted > sent AND (not_before_ms <= :now_ms OR not_before_ms > :last_ms) LIMIT 1

-- name: replica_items.make_due
UPDATE replica_items SET not_before_ms = 0
WHERE replica = :replica AND wanted > sent AND not_before_ms > :last_ms

-- name: replica_items.backlog
SELECT COUNT(*) FROM replica_items WHERE replica = :replica AND wanted > sent
