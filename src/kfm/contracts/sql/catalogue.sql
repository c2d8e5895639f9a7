-- name: items.known
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM (
  SELECT json_extract(value, '$[2]') AS wanted_order, json_extract(value, '$[3]') AS wanted_digest
  FROM json_each(:pairs)
) CROSS JOIN items
WHERE name_order = wanted_order AND name_digest = wanted_digest AND name_digest IS NOT NULL
UNION ALL
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM (
  SELECT json_extract(value, '$[0]') AS wanted_collection, json_extract(value, '$[1]') AS wanted_id
  FROM json_each(:pairs)
) CROSS JOIN items
WHERE collection_id = wanted_collection AND item_id = wanted_id AND name_digest IS NULL
  AND substr(item_id, length(rtrim(item_id, '0123456789')) + 1) =
    substr(wanted_id, length(rtrim(wanted_id, '0123456789')) + 1)

-- name: items.get_for_update
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM items
WHERE name_order = :name_order AND name_digest = :name_digest AND name_digest IS NOT NULL

-- name: items.get_old_for_update
-- Of a ledger from before items were found by digests of their names.
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM items
WHERE collection_id = :collection_id AND item_id = :item_id AND name_digest IS NULL
  AND substr(item_id, length(rtrim(item_id, '0123456789')) + 1) =
    substr(:item_id, length(rtrim(:item_id, '0123456789')) + 1)

-- name: items.any_old
SELECT collection_id FROM items WHERE name_digest IS NULL AND collection_id >= '' ORDER BY collection_id LIMIT 1

-- name: items.insert
INSERT INTO items (
  collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties, data,
  created_at_ms, updated_at_ms, box, revision, page, place, name_order, name_digest
) VALUES (
  :collection_id, '', :start_ms, :end_ms, :at_ms, :west, :south, :east, :north, NULL, '', :data,
  :created_at_ms, 0, :box, 1, :page, :place, :name_order, :name_digest
)
ON CONFLICT DO NOTHING

-- name: items.inserted
SELECT number, name_order, name_digest FROM items ORDER BY number DESC LIMIT :row_limit

-- name: fact_pages.insert
INSERT INTO fact_pages (number, packed) VALUES (:number, :packed)

-- name: fact_pages.of
SELECT number, packed FROM fact_pages WHERE number IN (SELECT value FROM json_each(:numbers))

-- name: items.change
UPDATE items SET
  start_ms = :start_ms, end_ms = :end_ms, at_ms = :at_ms, west = :west, south = :south, east = :east,
  north = :north, geometry = :geometry, properties = :properties, data = :data, updated_at_ms = :updated_at_ms,
  revision = revision + 1
WHERE number = :number
RETURNING revision

-- name: items.touch
UPDATE items SET revision = revision + 1, updated_at_ms = :updated_at_ms WHERE number = :number
RETURNING revision

-- name: item_boxes.put
INSERT OR IGNORE INTO item_boxes (number, west, east, south, north)
VALUES (:number, :west, :east, :south, :north)

-- name: item_boxes.assign
UPDATE items SET box = :box WHERE number = :number

-- name: assets.put
INSERT INTO assets (item, role, facts) VALUES (:item, :role, :facts)
ON CONFLICT (item, role) DO UPDATE SET facts = excluded.facts

-- name: assets.get
SELECT facts FROM assets WHERE item = :item AND role = :role

-- name: assets.remove
DELETE FROM assets WHERE item = :item AND role = :role RETURNING item

-- name: assets.of
SELECT item, role, facts FROM assets WHERE item IN (SELECT value FROM json_each(:items)) ORDER BY item, role

-- name: replica_items.want
INSERT INTO replica_items (replica, collection_id, item_id, wanted, sent, not_before_ms, tries)
VALUES (:replica, :collection_id, :item_id, :wanted, 0, 0, 0)
ON CONFLICT (replica, collection_id, item_id) DO UPDATE SET
  wanted = CASE
    WHEN excluded.wanted > replica_items.wanted THEN excluded.wanted ELSE replica_items.wanted + 1
  END

-- name: replica_items.next_replica
SELECT replica FROM replica_items WHERE replica > :after ORDER BY replica LIMIT 1

-- name: items.next_collection
SELECT collection_id FROM items WHERE collection_id > :after ORDER BY collection_id LIMIT 1

-- name: items.newest
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM items
WHERE collection_id = :collection_id AND data IS NOT NULL AND (at_ms, number) < (:before_ms, :before_number)
  AND COALESCE(start_ms, at_ms) <= :until_ms AND COALESCE(end_ms, at_ms) >= :from_ms
ORDER BY at_ms DESC, number DESC LIMIT :row_limit

-- name: items.newest_in_box
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM items
WHERE collection_id = :collection_id AND data IS NOT NULL AND (at_ms, number) < (:before_ms, :before_number)
  AND COALESCE(start_ms, at_ms) <= :until_ms AND COALESCE(end_ms, at_ms) >= :from_ms
  AND EXISTS (
    SELECT 1 FROM item_boxes b
    WHERE b.west <= :east AND b.east >= :west AND b.south <= :north AND b.north >= :south
  )
  AND box IN (
    SELECT b.number FROM item_boxes b
    WHERE b.west <= :east AND b.east >= :west AND b.south <= :north AND b.north >= :south
  )
  AND south <= :north AND north >= :south
  AND CASE WHEN west > east THEN west <= :east OR east >= :west ELSE west <= :east AND east >= :west END
ORDER BY at_ms DESC, number DESC LIMIT :row_limit
