CREATE TABLE trees (
  tree_id    TEXT NOT NULL PRIMARY KEY,
  body       TEXT NOT NULL,
  made_at_ms BIGINT NOT NULL
);

CREATE TABLE commits (
  commit_id  TEXT NOT NULL PRIMARY KEY,
  tree_id    TEXT NOT NULL,
  parents    TEXT NOT NULL,
  message    TEXT NOT NULL,
  author     TEXT NOT NULL,
  at_ms      BIGINT NOT NULL,
  meta       TEXT NOT NULL,
  generation BIGINT NOT NULL,
  made_at_ms BIGINT NOT NULL
);

-- The references are the last word: what a name points to can't be deleted, whoever is wrong about it.
CREATE TABLE branches (
  name          TEXT NOT NULL PRIMARY KEY,
  head          TEXT NOT NULL REFERENCES commits (commit_id),
  protected     BIGINT NOT NULL CHECK (protected IN (0, 1)),
  state_commit  TEXT,
  created_at_ms BIGINT NOT NULL,
  moved_at_ms   BIGINT NOT NULL
);

CREATE TABLE tags (
  name      TEXT NOT NULL PRIMARY KEY,
  commit_id TEXT NOT NULL REFERENCES commits (commit_id),
  message   TEXT NOT NULL,
  author    TEXT NOT NULL,
  at_ms     BIGINT NOT NULL
);
