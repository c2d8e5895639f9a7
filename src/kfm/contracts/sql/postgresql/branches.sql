-- name: branches.take_part
SELECT pg_advisory_xact_lock_shared(4900151)

-- name: branches.keep_others_out
SELECT pg_advisory_xact_lock(4900151)

-- name: branches.get_for_update
SELECT name, head, protected, state_commit, created_at_ms, moved_at_ms FROM branches WHERE name = :name FOR UPDATE

-- name: commits.hold
SELECT commit_id FROM commits WHERE commit_id = :commit_id FOR KEY SHARE
