-- What a batch of units leaves behind is kept together, packed: JSON in zlib. Rows from before stay as they are.
@sqlite ALTER TABLE outbox ADD COLUMN packed BLOB;
@postgresql ALTER TABLE outbox ADD COLUMN packed BYTEA;
@sqlite ALTER TABLE unit_pages ADD COLUMN packed BLOB;
@postgresql ALTER TABLE unit_pages ADD COLUMN packed BYTEA;
@postgresql ALTER TABLE unit_pages ALTER COLUMN packed SET STORAGE EXTERNAL;
@postgresql ALTER TABLE outbox ALTER COLUMN packed SET STORAGE EXTERNAL;

-- The facts of units that succeeded in one transaction, and of the items that it made. A row has what is looked
-- for by; what only it tells is here, until the row changes.
CREATE TABLE fact_pages (
@sqlite   number INTEGER PRIMARY KEY,
@postgresql   number BIGINT NOT NULL PRIMARY KEY,
@sqlite   packed BLOB NOT NULL
@postgresql   packed BYTEA NOT NULL
);
@postgresql ALTER TABLE fact_pages ALTER COLUMN packed SET STORAGE EXTERNAL;
ALTER TABLE items ADD COLUMN page BIGINT;
ALTER TABLE items ADD COLUMN place BIGINT;
-- By which an item is found: the time in its name, for neighbours on disk, and a digest of its name.
ALTER TABLE items ADD COLUMN name_order BIGINT;
ALTER TABLE items ADD COLUMN name_digest BIGINT;
DROP INDEX items_by_id;
@sqlite CREATE UNIQUE INDEX items_by_id ON items (collection_id, substr(item_id, length(rtrim(item_id, '0123456789')) + 1), item_id) WHERE name_digest IS NULL;
@postgresql CREATE UNIQUE INDEX items_by_id ON items (collection_id, item_id) WHERE name_digest IS NULL;
CREATE UNIQUE INDEX items_by_digest ON items (name_order, name_digest) WHERE name_digest IS NOT NULL;

-- Who worked on units. A unit's row has the number, after a `#`.
CREATE TABLE unit_workers (
  number    SERIAL_KEY,
  worker_id TEXT NOT NULL
);
CREATE UNIQUE INDEX unit_workers_by_id ON unit_workers (worker_id);
