-- name: versions.insert
INSERT INTO versions (version_id, dataset_id, manifest) VALUES (:version_id, :dataset_id, :manifest)
ON CONFLICT (version_id) DO NOTHING

-- name: versions.get
SELECT manifest FROM versions WHERE version_id = :version_id

-- name: promotions.insert
INSERT INTO promotions (dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms)
VALUES (:dataset_id, :sequence, :version_id, :run_id, :fence, :policy_epoch, :promoted_at_ms)
ON CONFLICT DO NOTHING
RETURNING sequence

-- name: promotions.head
SELECT dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms FROM promotions
WHERE dataset_id = :dataset_id ORDER BY sequence DESC LIMIT 1

-- name: promotions.head_with_manifest
SELECT p.dataset_id, p.sequence, p.version_id, p.run_id, p.fence, p.policy_epoch, p.promoted_at_ms, v.manifest
FROM promotions p JOIN versions v ON v.version_id = p.version_id
WHERE p.dataset_id = :dataset_id ORDER BY p.sequence DESC LIMIT 1

-- name: promotions.heads
SELECT dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms FROM promotions p
WHERE sequence = (SELECT MAX(q.sequence) FROM promotions q WHERE q.dataset_id = p.dataset_id)
ORDER BY dataset_id

-- name: promotions.at
SELECT dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms FROM promotions
WHERE dataset_id = :dataset_id AND sequence = :sequence

-- name: promotions.list
SELECT dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms FROM promotions
WHERE dataset_id = :dataset_id ORDER BY sequence DESC LIMIT :row_limit

-- name: projections.list
SELECT dataset_id, target, sequence FROM projections

-- name: projections.raise
INSERT INTO projections (dataset_id, target, sequence) VALUES (:dataset_id, :target, :sequence)
ON CONFLICT (dataset_id, target) DO UPDATE SET sequence = excluded.sequence
WHERE projections.sequence < excluded.sequence
