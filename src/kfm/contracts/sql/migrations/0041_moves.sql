-- Copies of the ledger to another database and from one, and, while one is under way, the keys of rows that were
-- written meanwhile. `place` is an address without its secrets; `progress` says how far each table has come.
CREATE TABLE moves (
  move_id       TEXT NOT NULL PRIMARY KEY,
  role          TEXT NOT NULL CHECK (role IN ('source', 'target')),
  place         TEXT NOT NULL,
  state         TEXT NOT NULL CHECK (state IN ('copying', 'fenced', 'moved', 'live', 'abandoned')),
  started_at_ms BIGINT NOT NULL,
  changed_at_ms BIGINT NOT NULL,
  progress      TEXT NOT NULL
);

CREATE TABLE captured (
  number     SERIAL_KEY,
  table_name TEXT NOT NULL,
  key        TEXT NOT NULL
);
