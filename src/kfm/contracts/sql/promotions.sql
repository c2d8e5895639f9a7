-- name: versions.insert
-- One that was kept whole gets its tree.
INSERT INTO versions (version_id, dataset_id, manifest, tree_id, files_id)
VALUES (:version_id, :dataset_id, :manifest, :tree_id, :files_id)
ON CONFLICT (version_id) DO UPDATE
SET manifest = excluded.manifest, tree_id = excluded.tree_id, files_id = excluded.files_id
WHERE versions.tree_id IS NULL

-- name: versions.get
SELECT manifest, tree_id, files_id FROM versions WHERE version_id = :version_id

-- name: versions.whole
SELECT version_id, dataset_id FROM versions
WHERE tree_id IS NULL AND version_id > :after_id ORDER BY version_id LIMIT :row_limit

-- name: versions.count_whole
SELECT COUNT(*) FROM versions WHERE tree_id IS NULL

-- name: versions.trees
SELECT version_id, tree_id, files_id FROM versions
WHERE tree_id IS NOT NULL AND version_id > :after_id ORDER BY version_id LIMIT :row_limit

-- name: version_pages.insert
INSERT INTO version_pages (page_id, body) VALUES (:page_id, :body) ON CONFLICT (page_id) DO NOTHING

-- name: version_pages.some
SELECT page_id, body FROM version_pages WHERE page_id IN (SELECT value FROM json_each(:page_ids))

-- name: version_pages.ids
SELECT page_id FROM version_pages WHERE page_id > :after_id ORDER BY page_id LIMIT :row_limit

-- name: version_pages.delete
DELETE FROM version_pages WHERE page_id = :page_id

-- name: version_items.insert
INSERT INTO version_items (digest, document) VALUES (:digest, :document)
ON CONFLICT (digest) DO NOTHING

-- name: version_items.some
SELECT digest, document FROM version_items WHERE digest IN (SELECT value FROM json_each(:digests))

-- name: version_items.ids
SELECT digest FROM version_items WHERE digest > :after_id ORDER BY digest LIMIT :row_limit

-- name: version_items.delete
DELETE FROM version_items WHERE digest = :digest

-- name: promotions.insert
INSERT INTO promotions (dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms)
VALUES (:dataset_id, :sequence, :version_id, :run_id, :fence, :policy_epoch, :promoted_at_ms)
ON CONFLICT DO NOTHING
RETURNING sequence

-- name: promotions.head
SELECT dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms FROM promotions
WHERE dataset_id = :dataset_id ORDER BY sequence DESC LIMIT 1

-- name: promotions.head_with_manifest
SELECT p.dataset_id, p.sequence, p.version_id, p.run_id, p.fence, p.policy_epoch, p.promoted_at_ms, v.manifest,
  v.tree_id, v.files_id
FROM promotions p JOIN versions v ON v.version_id = p.version_id
WHERE p.dataset_id = :dataset_id ORDER BY p.sequence DESC LIMIT 1

-- name: promotions.heads
-- From dataset to dataset and to the last version of each, without a look at those in between.
SELECT p.dataset_id, p.sequence, p.version_id, p.run_id, p.fence, p.policy_epoch, p.promoted_at_ms
FROM (
  WITH RECURSIVE published (dataset_id) AS (
    SELECT MIN(q.dataset_id) FROM promotions q
    UNION ALL
    SELECT (SELECT MIN(q.dataset_id) FROM promotions q WHERE q.dataset_id > published.dataset_id) FROM published
    WHERE published.dataset_id IS NOT NULL
  )
  SELECT dataset_id FROM published WHERE dataset_id IS NOT NULL
) AS names CROSS JOIN promotions p
WHERE p.dataset_id = names.dataset_id
  AND p.sequence = (SELECT MAX(q.sequence) FROM promotions q WHERE q.dataset_id = names.dataset_id)
ORDER BY names.dataset_id

-- name: promotions.at
SELECT dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms FROM promotions
WHERE dataset_id = :dataset_id AND sequence = :sequence

-- name: promotions.list
SELECT dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms FROM promotions
WHERE dataset_id = :dataset_id ORDER BY sequence DESC LIMIT :row_limit

-- name: promotions.page
SELECT dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms FROM promotions
WHERE dataset_id = :dataset_id AND sequence < :before ORDER BY sequence DESC LIMIT :row_limit

-- name: projections.list
SELECT dataset_id, target, sequence FROM projections

-- name: projections.raise
INSERT INTO projections (dataset_id, target, sequence) VALUES (:dataset_id, :target, :sequence)
ON CONFLICT (dataset_id, target) DO UPDATE SET sequence = excluded.sequence
WHERE projections.sequence < excluded.sequence
