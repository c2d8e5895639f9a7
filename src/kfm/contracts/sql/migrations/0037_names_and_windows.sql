-- A dataset is renamed, and a source gets another window length, by changes, too.
@postgresql ALTER TABLE dataset_changes DROP CONSTRAINT dataset_changes_kind_check;
@postgresql ALTER TABLE dataset_changes ADD CONSTRAINT dataset_changes_kind_check
@postgresql   CHECK (kind IN ('rollback', 'withdraw', 'retire', 'lift', 'rename', 'rewindow'));
@sqlite CREATE TABLE dataset_changes_made (
@sqlite   change_id     TEXT NOT NULL PRIMARY KEY,
@sqlite   dataset_id    TEXT NOT NULL,
@sqlite   kind          TEXT NOT NULL CHECK (kind IN ('rollback', 'withdraw', 'retire', 'lift', 'rename', 'rewindow')),
@sqlite   base_sequence BIGINT NOT NULL,
@sqlite   sequence      BIGINT,
@sqlite   to_sequence   BIGINT,
@sqlite   digest        TEXT NOT NULL,
@sqlite   actor         TEXT NOT NULL,
@sqlite   rationale     TEXT NOT NULL,
@sqlite   ticket        TEXT,
@sqlite   changed_at_ms BIGINT NOT NULL,
@sqlite   plan          TEXT NOT NULL
@sqlite );
@sqlite INSERT INTO dataset_changes_made
@sqlite   SELECT change_id, dataset_id, kind, base_sequence, sequence, to_sequence, digest, actor, rationale, ticket,
@sqlite     changed_at_ms, plan
@sqlite   FROM dataset_changes;
@sqlite CREATE TABLE withdrawals_made (
@sqlite   change_id       TEXT NOT NULL PRIMARY KEY REFERENCES dataset_changes_made (change_id),
@sqlite   dataset_id      TEXT NOT NULL,
@sqlite   source_id       TEXT NOT NULL,
@sqlite   start_ms        BIGINT,
@sqlite   end_ms          BIGINT,
@sqlite   retires         BIGINT NOT NULL,
@sqlite   purge           BIGINT NOT NULL,
@sqlite   reason          TEXT NOT NULL,
@sqlite   since_sequence  BIGINT NOT NULL,
@sqlite   withdrawn_at_ms BIGINT NOT NULL,
@sqlite   until_sequence  BIGINT,
@sqlite   lifted_by       TEXT,
@sqlite   target          TEXT NOT NULL DEFAULT ''
@sqlite );
@sqlite INSERT INTO withdrawals_made
@sqlite   SELECT change_id, dataset_id, source_id, start_ms, end_ms, retires, purge, reason, since_sequence,
@sqlite     withdrawn_at_ms, until_sequence, lifted_by, target
@sqlite   FROM withdrawals;
@sqlite CREATE TABLE purges_made (
@sqlite   change_id     TEXT NOT NULL REFERENCES dataset_changes_made (change_id),
@sqlite   place         TEXT NOT NULL,
@sqlite   state         TEXT NOT NULL CHECK (state IN ('outstanding', 'done', 'out-of-reach')),
@sqlite   removed       BIGINT NOT NULL,
@sqlite   detail        TEXT NOT NULL,
@sqlite   changed_at_ms BIGINT NOT NULL,
@sqlite   PRIMARY KEY (change_id, place)
@sqlite );
@sqlite INSERT INTO purges_made SELECT change_id, place, state, removed, detail, changed_at_ms FROM purges;
@sqlite DROP TABLE purges;
@sqlite DROP TABLE withdrawals;
@sqlite DROP TABLE dataset_changes;
@sqlite ALTER TABLE dataset_changes_made RENAME TO dataset_changes;
@sqlite ALTER TABLE withdrawals_made RENAME TO withdrawals;
@sqlite ALTER TABLE purges_made RENAME TO purges;
@sqlite CREATE INDEX dataset_changes_by_dataset ON dataset_changes (dataset_id, changed_at_ms);
@sqlite CREATE INDEX withdrawals_by_dataset ON withdrawals (dataset_id);

-- The window length of a source that merges windows, since its first version. `change_id`: it was changed to this one.
CREATE TABLE window_rules (
  source_id     TEXT NOT NULL PRIMARY KEY,
  window_length TEXT NOT NULL,
  change_id     TEXT REFERENCES dataset_changes (change_id)
) CLUSTERED;
