-- Indexes by which every frequent statement reads what it asks for, and not the history beside it. What is settled is
-- in none of the partial ones.

-- Runs. By window the end comes first: a span of time leaves out what ended before it.
DROP INDEX runs_by_start;
CREATE INDEX runs_by_start ON runs (start_time_ms, run_id);
DROP INDEX runs_by_window;
DROP INDEX runs_by_window_end;
CREATE INDEX runs_by_window ON runs (source_id, window_end_ms, window_start_ms, end_time_ms, start_time_ms, revision);
CREATE INDEX runs_of_source ON runs (source_id, start_time_ms, run_id);
CREATE INDEX runs_running ON runs (start_time_ms, run_id) WHERE status = 'running';
CREATE INDEX runs_failed ON runs (start_time_ms, run_id) WHERE status = 'failed';
CREATE INDEX runs_succeeded ON runs (
  source_id, window_start_ms, window_end_ms, (COALESCE(partition_key, '')), end_time_ms, start_time_ms
) WHERE status = 'success';
CREATE INDEX runs_corrections ON runs (work_base, correction, revision) WHERE correction IS NOT NULL;
CREATE INDEX runs_forced ON runs (work_base) WHERE force > 0;
DROP INDEX runs_reaped;
CREATE INDEX runs_unjudged ON runs (end_time_ms, run_id)
  WHERE status = 'failed' AND error_code IN ('WORKER_DIED', 'LEASE_EXPIRED', 'CANCELLED', 'KFM613');

-- Invocations. Many may be about one run: each that found its work done.
DROP INDEX invocations_by_run;
CREATE UNIQUE INDEX invocations_by_id ON invocations (invocation_id, run_id);
CREATE INDEX invocations_of_run ON invocations (run_id, number);
CREATE INDEX invocations_open ON invocations (run_id) WHERE outcome IS NULL;
DROP INDEX invocations_by_window;
CREATE INDEX invocations_by_window ON invocations (source_id, window_end_ms, window_start_ms, number)
  WHERE outcome IN ('refused', 'noop') OR (outcome = 'failed' AND run_id IS NULL);

CREATE INDEX events_by_run ON events (run_id);

-- Requests. Many may have ended with one run.
DROP INDEX requests_recent;
CREATE INDEX requests_recent ON requests (accepted_at_ms, request_id);
CREATE INDEX requests_of_source ON requests (source_id, accepted_at_ms, request_id);
CREATE INDEX requests_of_schedule ON requests (schedule_id, accepted_at_ms, request_id) WHERE schedule_id IS NOT NULL;
CREATE INDEX requests_of_kind ON requests (kind, accepted_at_ms, request_id) WHERE kind <> 'cron';
CREATE INDEX requests_cancelled ON requests (accepted_at_ms, request_id) WHERE state = 'cancelled';
DROP INDEX requests_due;
CREATE INDEX requests_due ON requests (not_before_ms, accepted_at_ms, request_id) WHERE state = 'open';
CREATE INDEX requests_next ON requests (dataset_id, not_before_ms, accepted_at_ms, window_start_ms, instant_ms)
  WHERE state = 'open';
CREATE INDEX requests_next_retry ON requests (dataset_id, not_before_ms, accepted_at_ms, window_start_ms, instant_ms)
  WHERE state = 'open' AND run_id IS NOT NULL;
CREATE INDEX requests_next_burst ON requests (dataset_id, not_before_ms, accepted_at_ms, window_start_ms, instant_ms)
  WHERE state = 'open' AND kind = 'upstream-event';
DROP INDEX requests_of_run;
CREATE INDEX requests_of_run ON requests (run_id, accepted_at_ms, request_id) WHERE run_id IS NOT NULL;
CREATE INDEX requests_ahead ON requests (run_id) WHERE state IN ('open', 'running', 'awaiting-approval');
CREATE INDEX requests_binding ON requests (run_id, accepted_at_ms, request_id)
  WHERE is_bound = 1 AND run_id IS NOT NULL;
CREATE INDEX requests_stopped ON requests (run_id) WHERE cancel IS NOT NULL;
DROP INDEX requests_by_window;
CREATE INDEX requests_by_window ON requests (source_id, window_end_ms, window_start_ms);
CREATE INDEX requests_approved ON requests (source_id, window_end_ms, window_start_ms)
  WHERE is_bound = 1 AND state IN ('open', 'running');
CREATE INDEX requests_unsettled_windows ON requests (source_id, window_end_ms, window_start_ms)
  WHERE state IN ('open', 'running', 'awaiting-approval');
CREATE INDEX requests_unanswered ON requests (
  source_id, window_end_ms, window_start_ms, ended_at_ms, accepted_at_ms, request_id
) WHERE state = 'cancelled' OR (state = 'done' AND run_id IS NULL AND outcome IN ('failed', 'refused'));
CREATE INDEX requests_seen ON requests (source_id, dataset_id, window_end_ms, window_start_ms, ended_at_ms)
  WHERE state = 'done' AND run_id IS NULL AND outcome IN ('noop', 'empty');
CREATE INDEX requests_absent ON requests (source_id, dataset_id, window_end_ms, window_start_ms, ended_at_ms)
  WHERE state = 'done' AND outcome = 'absent';

-- Quarantine, approvals, incidents and notifications.
CREATE INDEX held_in_state ON held (state, number);
CREATE INDEX held_of_kind ON held (kind, number);
CREATE INDEX held_of_dataset ON held (dataset_id, number);
CREATE INDEX held_of_subject ON held (subject, number);
CREATE INDEX held_by_cause ON held (dataset_id, error_code) WHERE state = 'held';
CREATE INDEX held_by_source ON held (source_id) WHERE state = 'held';
CREATE INDEX approvals_recent ON approvals (requested_at_ms, request_id);
CREATE INDEX approvals_in_state ON approvals (
  (CASE WHEN rejected_at_ms IS NOT NULL THEN 'rejected' WHEN superseded_by IS NOT NULL THEN 'superseded'
    WHEN revoked_at_ms IS NOT NULL THEN 'revoked' ELSE state END),
  requested_at_ms, request_id
);
CREATE INDEX incidents_recent ON incidents (opened_at_ms DESC, cause);
CREATE INDEX incidents_by_id ON incidents (incident_id);
CREATE INDEX incidents_by_name ON incidents (name) WHERE about = 'dataset';
CREATE INDEX incident_subjects_by_subject ON incident_subjects (subject);
CREATE INDEX hook_deliveries_waiting ON hook_deliveries (hook, not_before_ms) WHERE delivered_at_ms IS NULL;

-- The audit log, and what people change.
DROP INDEX governance_by_subject;
CREATE INDEX governance_by_subject ON governance (subject, number);
CREATE INDEX governance_by_kind ON governance (kind, number);
CREATE INDEX governance_unchained ON governance (number) WHERE hash = '';
CREATE INDEX dataset_changes_recent ON dataset_changes (changed_at_ms, change_id);
CREATE INDEX dataset_changes_versions ON dataset_changes (dataset_id, sequence) WHERE sequence IS NOT NULL;
CREATE INDEX purges_outstanding ON purges (change_id) WHERE state <> 'done';

-- Pipelines.
CREATE INDEX run_states_reverted ON run_states (dataset_id, lakefs_branch, inputs_hash) WHERE reverted = 1;
CREATE INDEX passes_of_pipeline ON passes (pipeline_id, number);
CREATE INDEX passes_of_branch ON passes (branch, number);

-- Announced objects: replays and dead letters.
CREATE INDEX replays_recent ON replays (created_at_ms DESC, replay_id);
DROP INDEX dead_messages_by_time;
CREATE INDEX dead_messages_by_time ON dead_messages (last_at_ms DESC, envelope_hash, record_index);
CREATE INDEX dead_messages_in_state ON dead_messages (state, last_at_ms DESC, envelope_hash, record_index);
CREATE INDEX dead_messages_of_error ON dead_messages (error_code, last_at_ms DESC, envelope_hash, record_index);

-- Metrics folded up to a number, so that a new process reads on from there.
CREATE TABLE folds (
  name         TEXT NOT NULL PRIMARY KEY,
  form         TEXT NOT NULL,
  version      BIGINT NOT NULL,
  body         TEXT NOT NULL,
  digest       TEXT NOT NULL,
  folded_at_ms BIGINT NOT NULL
);
