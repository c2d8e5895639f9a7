-- name: chain_heads.look
SELECT h.number, COALESCE((SELECT MAX(g.number) FROM governance g), 0) FROM chain_heads h WHERE h.name = 'governance'

-- name: governance.chain_on
-- After the head, which is ours: each entry linked to the one before it, as `kfm.model.audit.link_hash` does. It travels
-- with the commit, so the head is held for as long as a commit takes, and not for as long as a process does.
WITH RECURSIVE entry AS (
  SELECT * FROM ROWS FROM (json_to_recordset(:entries::json) AS (
    kind text, subject text, actor text, recorded_at_ms bigint, rationale text, ticket text, details text, content text
  )) WITH ORDINALITY AS line (kind, subject, actor, recorded_at_ms, rationale, ticket, details, content, place)
), chained AS (
  SELECT 0::bigint AS place, number, hash FROM chain_heads WHERE name = 'governance'
  UNION ALL
  SELECT e.place, c.number + 1, encode(sha256(convert_to(
    '{"content":"' || e.content || '","kfm":"audit-link/1","number":' || (c.number + 1)
      || ',"previous":"' || c.hash || '"}', 'UTF8'
  )), 'hex')
  FROM chained c JOIN entry e ON e.place = c.place + 1
), appended AS (
  INSERT INTO governance (number, kind, subject, actor, recorded_at_ms, rationale, ticket, details, hash)
  SELECT c.number, e.kind, e.subject, e.actor, e.recorded_at_ms, e.rationale, e.ticket, e.details, c.hash
  FROM chained c JOIN entry e ON e.place = c.place
)
UPDATE chain_heads SET number = last.number, hash = last.hash
FROM (SELECT number, hash FROM chained ORDER BY place DESC LIMIT 1) AS last WHERE name = 'governance'
