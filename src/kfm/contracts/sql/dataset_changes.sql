-- name: dataset_changes.insert
INSERT INTO dataset_changes (
  change_id, dataset_id, kind, base_sequence, sequence, to_sequence, digest, actor, rationale, ticket, changed_at_ms, plan
) VALUES (
  :change_id, :dataset_id, :kind, :base_sequence, :sequence, :to_sequence, :digest, :actor, :rationale, :ticket,
  :changed_at_ms, :plan
)

-- name: dataset_changes.get
SELECT
  change_id, dataset_id, kind, base_sequence, sequence, to_sequence, digest, actor, rationale, ticket, changed_at_ms, plan
FROM dataset_changes WHERE change_id = :change_id

-- name: dataset_changes.list
SELECT
  change_id, dataset_id, kind, base_sequence, sequence, to_sequence, digest, actor, rationale, ticket, changed_at_ms, plan
FROM dataset_changes ORDER BY changed_at_ms DESC, change_id DESC LIMIT :row_limit

-- name: dataset_changes.of_dataset
SELECT
  change_id, dataset_id, kind, base_sequence, sequence, to_sequence, digest, actor, rationale, ticket, changed_at_ms, plan
FROM dataset_changes WHERE dataset_id = :dataset_id
ORDER BY changed_at_ms DESC, change_id DESC LIMIT :row_limit

-- name: dataset_changes.page
SELECT
  change_id, dataset_id, kind, base_sequence, sequence, to_sequence, digest, actor, rationale, ticket, changed_at_ms, plan
FROM dataset_changes
WHERE (:dataset_id = '' OR dataset_id = :dataset_id) AND (:kind = '' OR kind = :kind)
  AND (changed_at_ms < :before_ms OR (changed_at_ms = :before_ms AND change_id < :before_id))
ORDER BY changed_at_ms DESC, change_id DESC LIMIT :row_limit

-- name: dataset_changes.newest
SELECT sequence, changed_at_ms FROM dataset_changes
WHERE dataset_id = :dataset_id AND sequence IS NOT NULL ORDER BY sequence DESC LIMIT 1

-- name: dataset_changes.times
-- Without plans, which may be long.
SELECT change_id, kind, base_sequence, sequence, changed_at_ms FROM dataset_changes
WHERE dataset_id = :dataset_id AND sequence IS NOT NULL ORDER BY sequence

-- name: dataset_changes.renames
-- Every renaming, in order.
SELECT
  change_id, dataset_id, kind, base_sequence, sequence, to_sequence, digest, actor, rationale, ticket, changed_at_ms, plan
FROM dataset_changes WHERE kind = 'rename' ORDER BY dataset_id, sequence

-- name: window_rules.list
SELECT source_id, window_length, change_id FROM window_rules

-- name: window_rules.get
SELECT window_length, change_id FROM window_rules WHERE source_id = :source_id

-- name: window_rules.ensure
INSERT INTO window_rules (source_id, window_length, change_id) VALUES (:source_id, :window_length, NULL)
ON CONFLICT (source_id) DO NOTHING

-- name: window_rules.replace
-- Guarded by the length that the plan was made for; a source that has none on record gets its first.
INSERT INTO window_rules (source_id, window_length, change_id) VALUES (:source_id, :window_length, :change_id)
ON CONFLICT (source_id) DO UPDATE SET window_length = excluded.window_length, change_id = excluded.change_id
WHERE window_rules.window_length = :old_length
RETURNING source_id

-- name: withdrawals.insert
INSERT INTO withdrawals (
  change_id, dataset_id, source_id, start_ms, end_ms, retires, purge, reason, since_sequence, withdrawn_at_ms,
  until_sequence, lifted_by, target
) VALUES (
  :change_id, :dataset_id, :source_id, :start_ms, :end_ms, :retires, :purge, :reason, :since_sequence, :withdrawn_at_ms,
  :until_sequence, :lifted_by, :target
)

-- name: withdrawals.lift
UPDATE withdrawals SET until_sequence = :until_sequence, lifted_by = :lifted_by
WHERE change_id = :change_id AND lifted_by IS NULL
RETURNING change_id

-- name: withdrawals.list
SELECT
  change_id, dataset_id, source_id, start_ms, end_ms, retires, purge, reason, since_sequence, withdrawn_at_ms,
  until_sequence, lifted_by, target
FROM withdrawals WHERE (:dataset_id = '' OR dataset_id = :dataset_id) AND target = ''
ORDER BY since_sequence, change_id

-- name: withdrawals.of_targets
SELECT
  change_id, dataset_id, source_id, start_ms, end_ms, retires, purge, reason, since_sequence, withdrawn_at_ms,
  until_sequence, lifted_by, target
FROM withdrawals WHERE (:dataset_id = '' OR dataset_id = :dataset_id) AND target <> ''
ORDER BY since_sequence, change_id

-- name: purges.put
INSERT INTO purges (change_id, place, state, removed, detail, changed_at_ms)
VALUES (:change_id, :place, :state, :removed, :detail, :changed_at_ms)
ON CONFLICT (change_id, place) DO UPDATE SET state = excluded.state, removed = purges.removed + excluded.removed,
  detail = excluded.detail, changed_at_ms = excluded.changed_at_ms

-- name: purges.list
SELECT p.change_id, c.dataset_id, p.place, p.state, p.removed, p.detail, p.changed_at_ms
FROM purges p JOIN dataset_changes c ON c.change_id = p.change_id
ORDER BY p.change_id, p.place

-- name: purges.of_change
SELECT p.change_id, c.dataset_id, p.place, p.state, p.removed, p.detail, p.changed_at_ms
FROM purges p JOIN dataset_changes c ON c.change_id = p.change_id
WHERE p.change_id = :change_id
ORDER BY p.place

-- name: purges.of_dataset
SELECT p.change_id, c.dataset_id, p.place, p.state, p.removed, p.detail, p.changed_at_ms
FROM dataset_changes c CROSS JOIN purges p
WHERE c.dataset_id = :dataset_id AND p.change_id = c.change_id
ORDER BY p.change_id, p.place

-- name: purges.outstanding
SELECT p.change_id, c.dataset_id, p.place, p.state, p.removed, p.detail, p.changed_at_ms
FROM purges p CROSS JOIN dataset_changes c
WHERE p.state <> 'done' AND c.change_id = p.change_id
ORDER BY p.changed_at_ms, p.change_id, p.place

-- name: approvals.usable_change
SELECT request_id FROM approvals
WHERE request_id = :request_id AND kind = 'change' AND state = 'approved' AND used_at_ms IS NULL
  AND expires_at_ms > :now_ms AND digest = :digest
