-- name: branches.get
SELECT name, head, protected, state_commit, created_at_ms, moved_at_ms FROM branches WHERE name = :name

-- name: branches.take_part
SELECT 1

-- name: branches.keep_others_out
SELECT 1

-- name: branches.get_for_update
SELECT name, head, protected, state_commit, created_at_ms, moved_at_ms FROM branches WHERE name = :name

-- name: branches.list
SELECT name, head, protected, state_commit, created_at_ms, moved_at_ms FROM branches ORDER BY name

-- name: branches.insert
INSERT INTO branches (name, head, protected, state_commit, created_at_ms, moved_at_ms)
VALUES (:name, :head, 0, NULL, :now_ms, :now_ms)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: branches.move
UPDATE branches SET head = :head, moved_at_ms = :now_ms WHERE name = :name AND head = :seen_head
RETURNING name

-- name: branches.set_state
UPDATE branches SET state_commit = :state_commit WHERE name = :name AND head = :seen_head
RETURNING name

-- name: branches.protect
UPDATE branches SET protected = :protected WHERE name = :name
RETURNING name

-- name: branches.delete
DELETE FROM branches WHERE name = :name AND head = :seen_head
RETURNING name

-- name: tags.get
SELECT name, commit_id, message, author, at_ms FROM tags WHERE name = :name

-- name: tags.list
SELECT name, commit_id, message, author, at_ms FROM tags ORDER BY name

-- name: tags.insert
INSERT INTO tags (name, commit_id, message, author, at_ms)
VALUES (:name, :commit_id, :message, :author, :at_ms)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: tags.delete
DELETE FROM tags WHERE name = :name
RETURNING name

-- name: commits.get
SELECT commit_id, tree_id, parents, message, author, at_ms, meta, generation FROM commits
WHERE commit_id = :commit_id

-- name: commits.hold
SELECT commit_id FROM commits WHERE commit_id = :commit_id

-- name: commits.beginning
SELECT commit_id FROM commits WHERE commit_id >= :low AND commit_id < :high ORDER BY commit_id LIMIT 2

-- name: commits.insert
INSERT INTO commits (commit_id, tree_id, parents, message, author, at_ms, meta, generation, made_at_ms)
VALUES (:commit_id, :tree_id, :parents, :message, :author, :at_ms, :meta, :generation, :made_at_ms)
ON CONFLICT (commit_id) DO UPDATE SET made_at_ms = excluded.made_at_ms

-- name: commits.ages
SELECT commit_id, made_at_ms FROM commits WHERE commit_id > :after_id ORDER BY commit_id LIMIT :row_limit

-- name: commits.delete
DELETE FROM commits WHERE commit_id = :commit_id AND made_at_ms < :before_ms

-- name: trees.get
SELECT body FROM trees WHERE tree_id = :tree_id

-- name: trees.insert
INSERT INTO trees (tree_id, body, made_at_ms) VALUES (:tree_id, :body, :made_at_ms)
ON CONFLICT (tree_id) DO UPDATE SET made_at_ms = excluded.made_at_ms

-- name: trees.ages
SELECT tree_id, made_at_ms FROM trees WHERE tree_id > :after_id ORDER BY tree_id LIMIT :row_limit

-- name: trees.delete
DELETE FROM trees WHERE tree_id = :tree_id AND made_at_ms < :before_ms
