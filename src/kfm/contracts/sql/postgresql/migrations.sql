-- name: migrations.exists
SELECT 1 WHERE to_regclass('migrations') IS NOT NULL

-- name: migrations.keep_writers_out
-- Whoever works in the ledger has read this table at the beginning of its transaction. So this waits for those, and
-- who comes later waits behind it, and reads what this transaction has made of it.
LOCK TABLE schema_level IN ACCESS EXCLUSIVE MODE
