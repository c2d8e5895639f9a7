-- name: storage.tables
-- Bytes of each table with its indexes; of one that is cut, of all its partitions.
SELECT COALESCE(p.relname, c.relname)::text AS name, SUM(pg_total_relation_size(c.oid))::bigint
FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relnamespace = to_regnamespace(current_schema()) AND c.relkind = 'r' GROUP BY 1 ORDER BY 1

-- name: storage.free
-- VACUUM knows; what it frees is used again.
SELECT 0
