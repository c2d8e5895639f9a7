ALTER TABLE approvals ADD COLUMN about TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN dataset_id TEXT;
ALTER TABLE approvals ADD COLUMN requested_names TEXT NOT NULL DEFAULT '[]';
ALTER TABLE approvals ADD COLUMN expires_at_ms BIGINT;
ALTER TABLE approvals ADD COLUMN used_by TEXT;
ALTER TABLE approvals ADD COLUMN used_attempt BIGINT;
ALTER TABLE approvals ADD COLUMN used_at_ms BIGINT;

CREATE INDEX approvals_by_subject ON approvals (subject);
