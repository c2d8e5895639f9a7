-- name: retention.trails
SELECT wal_id, status, trail FROM units WHERE wal_id IN (SELECT jsonb_array_elements_text(:wal_ids::jsonb))

-- name: retention.partitions
-- None while the ledger is being copied: triggers that note rows do not see a partition go.
SELECT
  c.relname::text, COALESCE(substring(pg_get_expr(c.relpartbound, c.oid) FROM 'FROM \(''?([0-9]+)'), '0')::bigint,
  substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''?([0-9]+)')::bigint,
  COALESCE(pg_sequence_last_value(to_regclass('outbox_numbers')), 0)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass('outbox') AND pg_get_expr(c.relpartbound, c.oid) <> 'DEFAULT'
  AND NOT EXISTS (SELECT 1 FROM moves m WHERE m.role = 'source' AND m.state IN ('copying', 'fenced'))
ORDER BY 3
