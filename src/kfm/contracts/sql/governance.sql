-- name: policy.epoch
SELECT value FROM counters WHERE name = 'policy_epoch'

-- name: policy.take_part
SELECT 1

-- name: policy.keep_others_out
SELECT 1

-- name: policy.wait_briefly
SELECT 0

-- name: policy.end_standing
SELECT 0 WHERE :stood_ms < 0

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
INSERT INTO governance (number, kind, subject, actor, recorded_at_ms, rationale, ticket, details, hash)
VALUES (:number, :kind, :subject, :actor, :recorded_at_ms, :rationale, :ticket, :details, :hash)
ON CONFLICT DO NOTHING
RETURNING number

-- name: governance.chain_on
SELECT 1

-- name: governance.list
SELECT kind, subject, actor, recorded_at_ms, rationale, ticket, details FROM governance
ORDER BY number DESC LIMIT :row_limit

-- name: governance.of_kind
SELECT kind, subject, actor, recorded_at_ms, rationale, ticket, details FROM governance
WHERE kind = :kind ORDER BY number DESC LIMIT :row_limit

-- name: governance.about
SELECT kind, subject, actor, recorded_at_ms, rationale, ticket, details FROM governance
WHERE subject = :subject AND (:kind = '' OR kind = :kind)
ORDER BY number DESC LIMIT :row_limit

-- name: governance.of_ticket
SELECT kind, subject, actor, recorded_at_ms, rationale, ticket, details FROM governance
WHERE ticket = :ticket ORDER BY number DESC LIMIT :row_limit

-- name: governance.chain
SELECT
  g.number, g.kind, g.subject, g.actor, g.recorded_at_ms, g.rationale, g.ticket, g.details,
  (SELECT p.hash FROM governance p WHERE p.number = g.number - 1), g.hash
FROM governance g WHERE g.number > :after_number
ORDER BY g.number LIMIT :row_limit

-- name: governance.of_subject
SELECT
  g.number, g.kind, g.subject, g.actor, g.recorded_at_ms, g.rationale, g.ticket, g.details,
  (SELECT p.hash FROM governance p WHERE p.number = g.number - 1), g.hash
FROM governance g WHERE g.subject = :subject
ORDER BY g.number DESC LIMIT :row_limit

-- name: governance.before
SELECT
  g.number, g.kind, g.subject, g.actor, g.recorded_at_ms, g.rationale, g.ticket, g.details,
  (SELECT p.hash FROM governance p WHERE p.number = g.number - 1), g.hash
FROM governance g WHERE g.number < :before
ORDER BY g.number DESC LIMIT :row_limit

-- name: governance.kind_before
SELECT
  g.number, g.kind, g.subject, g.actor, g.recorded_at_ms, g.rationale, g.ticket, g.details,
  (SELECT p.hash FROM governance p WHERE p.number = g.number - 1), g.hash
FROM governance g WHERE g.kind = :kind AND g.number < :before
ORDER BY g.number DESC LIMIT :row_limit

-- name: governance.subject_before
SELECT
  g.number, g.kind, g.subject, g.actor, g.recorded_at_ms, g.rationale, g.ticket, g.details,
  (SELECT p.hash FROM governance p WHERE p.number = g.number - 1), g.hash
FROM governance g WHERE g.subject = :subject AND g.number < :before
ORDER BY g.number DESC LIMIT :row_limit

-- name: governance.strays
SELECT
  g.number, g.kind, g.subject, g.actor, g.recorded_at_ms, g.rationale, g.ticket, g.details, NULL, g.hash
FROM governance g WHERE g.number < 1
ORDER BY g.number LIMIT 1

-- name: governance.unchained
SELECT number, kind, subject, actor, recorded_at_ms, rationale, ticket, details FROM governance
WHERE hash = '' ORDER BY number

-- name: governance.adopt
UPDATE governance SET hash = :hash WHERE number = :number AND hash = '' RETURNING number

-- name: chain_heads.get
SELECT number, hash FROM chain_heads WHERE name = 'governance'

-- name: chain_heads.look
-- Where the chain ends, and its highest number, if the database can link by itself. SQLite has no SHA-256, and one
-- writer: no process waits for its head.
SELECT 0, 0

-- name: chain_heads.get_for_update
SELECT number, hash FROM chain_heads WHERE name = 'governance'

-- name: chain_heads.advance
UPDATE chain_heads SET number = :number, hash = :hash
WHERE name = 'governance' AND number = :seen_number AND hash = :seen_hash
RETURNING number
