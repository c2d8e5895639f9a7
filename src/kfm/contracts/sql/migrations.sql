-- name: migrations.exists
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrations'

-- name: migrations.create
CREATE TABLE IF NOT EXISTS migrations (
  version       BIGINT NOT NULL PRIMARY KEY,
  name          TEXT NOT NULL,
  checksum      TEXT NOT NULL,
  applied_at_ms BIGINT NOT NULL
)

-- name: migrations.list
SELECT version, name, checksum FROM migrations ORDER BY version

-- name: migrations.insert
INSERT INTO migrations (version, name, checksum, applied_at_ms) VALUES (:version, :name, :checksum, :applied_at_ms)

-- name: schema_level.get
SELECT level, floor FROM schema_level WHERE one = 1

-- name: migrations.reach_level
UPDATE schema_level
SET level = CASE WHEN level < :level THEN :level ELSE level END,
    floor = CASE WHEN floor < :floor THEN :floor ELSE floor END
WHERE one = 1

-- name: migrations.keep_writers_out
SELECT 1
