-- Incidents of further kinds; who has acknowledged one, and when it was escalated. SQLite can't widen a check, so both
-- tables are made anew there: first the subjects, which refer to the incidents.
@postgresql ALTER TABLE incidents DROP CONSTRAINT incidents_kind_check;
@postgresql ALTER TABLE incidents ADD CHECK (kind IN (
@postgresql   'circuit-open', 'dead-letter', 'quarantine', 'halt', 'overdue', 'approval-waiting', 'withdrawn'
@postgresql ));
@postgresql ALTER TABLE incidents ADD COLUMN acknowledged_at_ms BIGINT;
@postgresql ALTER TABLE incidents ADD COLUMN acknowledged_by TEXT;
@postgresql ALTER TABLE incidents ADD COLUMN escalated_at_ms BIGINT;
@postgresql ALTER TABLE incident_subjects ADD COLUMN window_start_ms BIGINT;
@postgresql ALTER TABLE incident_subjects ADD COLUMN window_end_ms BIGINT;
@postgresql ALTER TABLE incident_subjects ADD COLUMN partition_key TEXT;
@postgresql DROP INDEX incident_subjects_by_source;
@sqlite CREATE TABLE incident_subjects_kept (cause TEXT, subject TEXT, dataset_id TEXT, source_id TEXT);
@sqlite INSERT INTO incident_subjects_kept SELECT cause, subject, dataset_id, source_id FROM incident_subjects;
@sqlite DROP TABLE incident_subjects;
@sqlite CREATE TABLE incidents_anew (
@sqlite   cause              TEXT NOT NULL PRIMARY KEY,
@sqlite   incident_id        TEXT NOT NULL,
@sqlite   about              TEXT NOT NULL CHECK (about IN ('dataset', 'provider')),
@sqlite   name               TEXT NOT NULL,
@sqlite   kind               TEXT NOT NULL CHECK (kind IN (
@sqlite     'circuit-open', 'dead-letter', 'quarantine', 'halt', 'overdue', 'approval-waiting', 'withdrawn'
@sqlite   )),
@sqlite   error_class        TEXT NOT NULL,
@sqlite   error_code         TEXT NOT NULL,
@sqlite   message            TEXT NOT NULL,
@sqlite   subject            TEXT NOT NULL,
@sqlite   state              TEXT NOT NULL CHECK (state IN ('open', 'resolved')),
@sqlite   occurrence         BIGINT NOT NULL,
@sqlite   changes            BIGINT NOT NULL,
@sqlite   affected           BIGINT NOT NULL,
@sqlite   opened_at_ms       BIGINT NOT NULL,
@sqlite   last_at_ms         BIGINT NOT NULL,
@sqlite   resolved_at_ms     BIGINT,
@sqlite   acknowledged_at_ms BIGINT,
@sqlite   acknowledged_by    TEXT,
@sqlite   escalated_at_ms    BIGINT,
@sqlite   CHECK ((state = 'resolved') = (resolved_at_ms IS NOT NULL))
@sqlite );
@sqlite INSERT INTO incidents_anew SELECT
@sqlite   cause, incident_id, about, name, kind, error_class, error_code, message, subject, state, occurrence, changes,
@sqlite   affected, opened_at_ms, last_at_ms, resolved_at_ms, NULL, NULL, NULL
@sqlite FROM incidents;
@sqlite DROP TABLE incidents;
@sqlite ALTER TABLE incidents_anew RENAME TO incidents;
@sqlite CREATE INDEX incidents_open ON incidents (opened_at_ms) WHERE state = 'open';
@sqlite CREATE TABLE incident_subjects (
@sqlite   cause           TEXT NOT NULL REFERENCES incidents (cause),
@sqlite   subject         TEXT NOT NULL,
@sqlite   dataset_id      TEXT NOT NULL,
@sqlite   source_id       TEXT NOT NULL,
@sqlite   window_start_ms BIGINT,
@sqlite   window_end_ms   BIGINT,
@sqlite   partition_key   TEXT,
@sqlite   PRIMARY KEY (cause, subject)
@sqlite );
@sqlite INSERT INTO incident_subjects (cause, subject, dataset_id, source_id)
@sqlite   SELECT cause, subject, dataset_id, source_id FROM incident_subjects_kept;
@sqlite DROP TABLE incident_subjects_kept;

-- The window that a subject is about: that of its run, or of its request where it became no run. A unit has none.
UPDATE incident_subjects SET
  window_start_ms = (SELECT window_start_ms FROM runs WHERE run_id = subject),
  window_end_ms = (SELECT window_end_ms FROM runs WHERE run_id = subject),
  partition_key = (SELECT COALESCE(partition_key, '') FROM runs WHERE run_id = subject);
UPDATE incident_subjects SET
  window_start_ms = (SELECT window_start_ms FROM requests WHERE request_id = subject),
  window_end_ms = (SELECT window_end_ms FROM requests WHERE request_id = subject)
WHERE window_start_ms IS NULL;
CREATE INDEX incident_subjects_by_window ON incident_subjects (source_id, window_start_ms);

-- What sends nothing until a time: `dataset:NAME` or `incident:ID`. One is in force for each scope.
CREATE TABLE silences (
  number      SERIAL_KEY,
  scope       TEXT NOT NULL,
  set_at_ms   BIGINT NOT NULL,
  until_ms    BIGINT NOT NULL,
  set_by      TEXT NOT NULL,
  rationale   TEXT NOT NULL,
  ended_at_ms BIGINT
);

CREATE UNIQUE INDEX silences_in_force ON silences (scope) WHERE ended_at_ms IS NULL;
