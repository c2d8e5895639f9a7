-- name: policy.epoch
SELECT value FROM counters WHERE name = 'policy_epoch'

-- name: policy.epoch_for_share
SELECT value FROM counters WHERE name = 'policy_epoch'

-- name: policy.advance
UPDATE counters SET value = value + 1 WHERE name = 'policy_epoch' RETURNING value

-- name: switches.list
SELECT scope, position, rationale, actor, set_at_ms FROM switches ORDER BY scope

-- name: switches.set
INSERT INTO switches (scope, position, rationale, actor, set_at_ms)
VALUES (:scope, :position, :rationale, :actor, :set_at_ms)
ON CONFLICT (scope) DO UPDATE SET position = excluded.position, rationale = excluded.rationale,
  actor = excluded.actor, set_at_ms = excluded.set_at_ms

-- name: governance.append
INSERT INTO governance (kind, subject, actor, recorded_at_ms, rationale, ticket, details)
VALUES (:kind, :subject, :actor, :recorded_at_ms, :rationale, :ticket, :details)

-- name: governance.list
SELECT kind, subject, actor, recorded_at_ms, rationale, ticket, details FROM governance
WHERE (:kind = '' OR kind = :kind) AND (:subject = '' OR subject = :subject)
ORDER BY number DESC LIMIT :row_limit
