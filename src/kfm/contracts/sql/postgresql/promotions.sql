-- name: version_pages.insert
INSERT INTO version_pages (page_id, body)
SELECT * FROM json_to_recordset(:lines::json) AS line (page_id text, body text)
ON CONFLICT (page_id) DO NOTHING

-- name: version_pages.some
SELECT page_id, body FROM version_pages
WHERE page_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:page_ids::jsonb)))

-- name: version_items.insert
INSERT INTO version_items (digest, document)
SELECT * FROM json_to_recordset(:lines::json) AS line (digest text, document text)
ON CONFLICT (digest) DO NOTHING

-- name: version_items.some
SELECT digest, document FROM version_items
WHERE digest = ANY (ARRAY(SELECT jsonb_array_elements_text(:digests::jsonb)))

-- name: promotions.heads
-- Lateral: a join could be planned as a pass over all versions.
SELECT p.dataset_id, p.sequence, p.version_id, p.run_id, p.fence, p.policy_epoch, p.promoted_at_ms
FROM (
  WITH RECURSIVE published (dataset_id) AS (
    SELECT MIN(q.dataset_id) FROM promotions q
    UNION ALL
    SELECT (SELECT MIN(q.dataset_id) FROM promotions q WHERE q.dataset_id > published.dataset_id) FROM published
    WHERE published.dataset_id IS NOT NULL
  )
  SELECT dataset_id FROM published WHERE dataset_id IS NOT NULL
) AS names CROSS JOIN LATERAL (
  SELECT q.* FROM promotions q WHERE q.dataset_id = names.dataset_id ORDER BY q.sequence DESC LIMIT 1
) AS p
ORDER BY names.dataset_id
