-- name: locks.ensure
INSERT INTO locks (scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms)
VALUES (:scope, 0, NULL, NULL, 0, 0)
ON CONFLICT (scope) DO NOTHING

-- name: locks.get
SELECT scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms FROM locks WHERE scope = :scope

-- name: locks.get_for_update
SELECT scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms FROM locks WHERE scope = :scope

-- name: locks.get_for_share
SELECT scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms FROM locks WHERE scope = :scope

-- name: locks.list
SELECT scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms FROM locks ORDER BY scope

-- name: locks.held
SELECT scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms FROM locks
WHERE worker_id IS NOT NULL ORDER BY CASE WHEN scope = 'gc' THEN 0 ELSE 1 END, scope

-- name: locks.take
UPDATE locks
SET fence = :fence, known_fence = :fence, worker_id = :worker_id, run_id = :run_id, acquired_at_ms = :acquired_at_ms,
    lease_until_ms = :lease_until_ms
WHERE scope = :scope AND fence = :seen_fence
RETURNING fence

-- name: locks.renew
UPDATE locks SET lease_until_ms = :lease_until_ms
WHERE scope = :scope AND fence = :fence AND worker_id IS NOT NULL
RETURNING fence, run_id

-- name: locks.release
UPDATE locks SET worker_id = NULL, run_id = NULL, lease_until_ms = 0
WHERE scope = :scope AND fence = :fence
RETURNING fence
