-- name: items.known
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms
FROM items
WHERE (collection_id, item_id) IN (
  SELECT value->>0, value->>1 FROM jsonb_array_elements(:pairs::jsonb)
)

-- name: items.get_for_update
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms
FROM items WHERE collection_id = :collection_id AND item_id = :item_id FOR UPDATE

-- name: item_boxes.put
SELECT 1

-- name: item_boxes.assign
SELECT 1

-- name: assets.of
SELECT item, role, facts FROM assets
WHERE item IN (SELECT value::bigint FROM jsonb_array_elements_text(:items::jsonb)) ORDER BY item, role

-- name: items.newest_in_box
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties,
  data, revision, created_at_ms, updated_at_ms
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
  collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry, properties, data,
  created_at_ms, updated_at_ms,
  revision
)
SELECT line.*, 1
FROM json_to_recordset(:lines::json) AS line (
  collection_id text, item_id text, start_ms bigint, end_ms bigint, at_ms bigint, west float8,
  south float8, east float8, north float8, geometry text, properties text, data text, created_at_ms bigint,
  updated_at_ms bigint
)
ON CONFLICT (collection_id, item_id) DO NOTHING
RETURNING number, collection_id, item_id
