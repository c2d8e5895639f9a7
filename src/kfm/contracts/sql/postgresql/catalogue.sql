-- name: items.known
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM items
WHERE name_digest IS NOT NULL AND (name_order, name_digest) IN (
  SELECT (value->>2)::bigint, (value->>3)::bigint FROM jsonb_array_elements(:pairs::jsonb)
)
UNION ALL
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM items
WHERE name_digest IS NULL AND (collection_id, item_id) IN (
  SELECT value->>0, value->>1 FROM jsonb_array_elements(:pairs::jsonb)
)

-- name: items.get_for_update
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM items
WHERE name_order = :name_order AND name_digest = :name_digest AND name_digest IS NOT NULL FOR UPDATE

-- name: items.get_old_for_update
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM items WHERE collection_id = :collection_id AND item_id = :item_id AND name_digest IS NULL FOR UPDATE

-- name: fact_pages.of
SELECT number, packed FROM fact_pages
WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:numbers::jsonb)))

-- name: item_boxes.put
SELECT 1

-- name: item_boxes.assign
SELECT 1

-- name: assets.of
SELECT item, role, facts FROM assets
WHERE item = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:items::jsonb))) ORDER BY item, role

-- name: items.newest_in_box
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms, page, place
FROM items
WHERE collection_id = :collection_id AND data IS NOT NULL AND (at_ms, number) < (:before_ms, :before_number)
  AND COALESCE(start_ms, at_ms) <= :until_ms AND COALESCE(end_ms, at_ms) >= :from_ms
  AND west IS NOT NULL
  AND box(
    point(CASE WHEN west > east THEN -180 ELSE west END, south),
    point(CASE WHEN west > east THEN 180 ELSE east END, north)
  ) && box(point(:west, :south), point(:east, :north))
  AND south <= :north AND north >= :south
  AND CASE WHEN west > east THEN west <= :east OR east >= :west ELSE west <= :east AND east >= :west END
ORDER BY at_ms DESC, number DESC LIMIT :row_limit

-- name: items.insert
INSERT INTO items (
  collection_id, start_ms, end_ms, at_ms, west, south, east, north, data, created_at_ms, page, place, name_order,
  name_digest, updated_at_ms, item_id, properties, revision
)
SELECT line.*, 0, '', '', 1
FROM json_to_recordset(:lines::json) AS line (
  collection_id text, start_ms bigint, end_ms bigint, at_ms bigint, west float8,
  south float8, east float8, north float8, data text, created_at_ms bigint,
  page bigint, place bigint, name_order bigint, name_digest bigint
)
ON CONFLICT (name_order, name_digest) WHERE name_digest IS NOT NULL DO NOTHING
RETURNING number, name_order, name_digest
