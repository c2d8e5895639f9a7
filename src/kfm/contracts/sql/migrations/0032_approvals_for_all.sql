-- An approval of a preview lets every attempt of its request begin: `terms` are the rights and the work that it was
-- given for, `fingerprint` and `base_sequence` the inputs and the version that its preview was made from. A newer
-- preview supersedes an undecided one. A standing approval holds for a source until it lapses or is revoked.
ALTER TABLE approvals ADD COLUMN terms TEXT;
ALTER TABLE approvals ADD COLUMN fingerprint TEXT;
ALTER TABLE approvals ADD COLUMN base_sequence BIGINT;
ALTER TABLE approvals ADD COLUMN superseded_by TEXT;
ALTER TABLE approvals ADD COLUMN revoked_by TEXT;
ALTER TABLE approvals ADD COLUMN revoked_at_ms BIGINT;
ALTER TABLE approvals ADD COLUMN revocation_rationale TEXT;
CREATE INDEX approvals_by_terms ON approvals (terms) WHERE terms IS NOT NULL;
CREATE INDEX approvals_by_use ON approvals (used_by) WHERE used_by IS NOT NULL;

-- Each use of an approval that is not for one attempt only.
CREATE TABLE approval_uses (
  run_id     TEXT NOT NULL,
  attempt    BIGINT NOT NULL,
  request_id TEXT NOT NULL REFERENCES approvals (request_id),
  at_ms      BIGINT NOT NULL,
  PRIMARY KEY (run_id, attempt)
) CLUSTERED;
CREATE INDEX approval_uses_of ON approval_uses (request_id);
CREATE INDEX requests_awaiting ON requests (source_id) WHERE state = 'awaiting-approval';
