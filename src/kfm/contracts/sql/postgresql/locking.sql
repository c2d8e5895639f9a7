-- name: locks.get_for_update
SELECT scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms FROM locks WHERE scope = :scope FOR UPDATE

-- name: locks.get_for_share
SELECT scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms FROM locks WHERE scope = :scope FOR SHARE

-- name: policy.epoch_for_share
SELECT value FROM counters WHERE name = 'policy_epoch' FOR SHARE
