-- An approver's no: who, when and why. The request's state stays `requested`; what was rejected can't be approved.
ALTER TABLE approvals ADD COLUMN rejected_by TEXT;
ALTER TABLE approvals ADD COLUMN rejected_at_ms BIGINT;
ALTER TABLE approvals ADD COLUMN rejection_rationale TEXT;
