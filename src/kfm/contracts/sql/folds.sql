-- name: folds.get
SELECT form, version, body, digest FROM folds WHERE name = :name

-- name: folds.put
-- In place of the one that was read, and of no other.
INSERT INTO folds (name, form, version, body, digest, folded_at_ms)
VALUES (:name, :form, 1, :body, :digest, :folded_at_ms)
ON CONFLICT (name) DO UPDATE SET form = excluded.form, version = folds.version + 1, body = excluded.body,
  digest = excluded.digest, folded_at_ms = excluded.folded_at_ms
WHERE folds.version = :seen_version
RETURNING version
