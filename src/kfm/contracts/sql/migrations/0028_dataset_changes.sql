-- Changes of a dataset that no run makes: rollback, withdrawal, retirement, and the lifting of a withdrawal.
CREATE TABLE dataset_changes (
  change_id     TEXT NOT NULL PRIMARY KEY,
  dataset_id    TEXT NOT NULL,
  kind          TEXT NOT NULL CHECK (kind IN ('rollback', 'withdraw', 'retire', 'lift')),
  base_sequence BIGINT NOT NULL,
  sequence      BIGINT,
  to_sequence   BIGINT,
  digest        TEXT NOT NULL,
  actor         TEXT NOT NULL,
  rationale     TEXT NOT NULL,
  ticket        TEXT,
  changed_at_ms BIGINT NOT NULL,
  plan          TEXT NOT NULL
);

CREATE INDEX dataset_changes_by_dataset ON dataset_changes (dataset_id, changed_at_ms);

-- What may not be published: a span of time, or everything where there is no span. `until_sequence`: the first version
-- that may hold it again.
CREATE TABLE withdrawals (
  change_id       TEXT NOT NULL PRIMARY KEY REFERENCES dataset_changes (change_id),
  dataset_id      TEXT NOT NULL,
  source_id       TEXT NOT NULL,
  start_ms        BIGINT,
  end_ms          BIGINT,
  retires         BIGINT NOT NULL,
  purge           BIGINT NOT NULL,
  reason          TEXT NOT NULL,
  since_sequence  BIGINT NOT NULL,
  withdrawn_at_ms BIGINT NOT NULL,
  until_sequence  BIGINT,
  lifted_by       TEXT
);

CREATE INDEX withdrawals_by_dataset ON withdrawals (dataset_id);

-- Where withdrawn bytes have to go, each place by itself: a target, or the object store.
CREATE TABLE purges (
  change_id     TEXT NOT NULL REFERENCES dataset_changes (change_id),
  place         TEXT NOT NULL,
  state         TEXT NOT NULL CHECK (state IN ('outstanding', 'done', 'out-of-reach')),
  removed       BIGINT NOT NULL,
  detail        TEXT NOT NULL,
  changed_at_ms BIGINT NOT NULL,
  PRIMARY KEY (change_id, place)
);

-- `promotions.run_id` names what made the version: a run, or a row of dataset_changes. So it refers to no table.
@sqlite CREATE TABLE promotions_made (
@sqlite   dataset_id     TEXT NOT NULL,
@sqlite   sequence       BIGINT NOT NULL,
@sqlite   version_id     TEXT NOT NULL REFERENCES versions (version_id),
@sqlite   run_id         TEXT NOT NULL UNIQUE,
@sqlite   fence          BIGINT NOT NULL,
@sqlite   policy_epoch   BIGINT NOT NULL,
@sqlite   promoted_at_ms BIGINT NOT NULL,
@sqlite   PRIMARY KEY (dataset_id, sequence)
@sqlite );
@sqlite INSERT INTO promotions_made SELECT dataset_id, sequence, version_id, run_id, fence, policy_epoch, promoted_at_ms FROM promotions;
@sqlite DROP TABLE promotions;
@sqlite ALTER TABLE promotions_made RENAME TO promotions;
@postgresql ALTER TABLE promotions DROP CONSTRAINT promotions_run_id_fkey;
