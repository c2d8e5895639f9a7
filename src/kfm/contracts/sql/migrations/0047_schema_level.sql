-- contract: Keeps in the ledger which kfm may write to it, for every write to compare.
-- `level` is the newest migration that was applied, `floor` the newest one that a process must know to write. Both
-- change in the transaction of a migration. A kfm from before knows neither: it has to be stopped first, this once.
CREATE TABLE schema_level (
  one   BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
  level BIGINT NOT NULL,
  floor BIGINT NOT NULL
);
INSERT INTO schema_level (one, level, floor) VALUES (1, 47, 47);
