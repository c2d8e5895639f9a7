-- name: migrations.exists
SELECT 1 WHERE to_regclass('migrations') IS NOT NULL

-- name: migrations.keep_writers_out
-- Each transaction in the ledger has read this table at its beginning. So this waits for those under way, and what
-- comes later waits behind it, and reads what this transaction has made of it.
LOCK TABLE schema_level IN ACCESS EXCLUSIVE MODE
