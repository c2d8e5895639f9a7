-- name: migrations.exists
SELECT 1 WHERE to_regclass('migrations') IS NOT NULL
