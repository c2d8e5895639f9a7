-- name: approvals.get
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale
FROM approvals WHERE request_id = :request_id

-- name: approvals.list
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale
FROM approvals
WHERE (:state = '' OR :state = CASE WHEN rejected_at_ms IS NULL THEN state ELSE 'rejected' END)
  AND (:subject = '' OR subject = :subject)
ORDER BY requested_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: approvals.get_for_update
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale
FROM approvals WHERE request_id = :request_id

-- name: approvals.insert
INSERT INTO approvals (
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale
) VALUES (
  :request_id, :kind, :subject, :digest, :requested_by, :requested_at_ms, :rationale, :ticket, :state,
  :approved_by, :approved_at_ms, :approval_rationale, :about, :dataset_id, :requested_names,
  :expires_at_ms, :used_by, :used_attempt, :used_at_ms, :rejected_by, :rejected_at_ms, :rejection_rationale
)

-- name: approvals.approve
UPDATE approvals SET state = 'approved', approved_by = :approved_by, approved_at_ms = :approved_at_ms,
  approval_rationale = :approval_rationale, expires_at_ms = :expires_at_ms
WHERE request_id = :request_id AND state = 'requested' AND digest = :digest AND requested_by <> :approved_by
  AND rejected_at_ms IS NULL
RETURNING request_id

-- name: approvals.reject
UPDATE approvals SET rejected_by = :rejected_by, rejected_at_ms = :rejected_at_ms,
  rejection_rationale = :rejection_rationale
WHERE request_id = :request_id AND state = 'requested' AND requested_by <> :rejected_by
  AND rejected_at_ms IS NULL
RETURNING request_id

-- name: approvals.usable
SELECT request_id FROM approvals
WHERE request_id = :request_id AND kind = 'attempt' AND state = 'approved' AND used_at_ms IS NULL
  AND expires_at_ms > :now_ms AND digest = :digest

-- name: approvals.use
UPDATE approvals SET used_by = :used_by, used_attempt = :used_attempt, used_at_ms = :used_at_ms
WHERE request_id = :request_id AND used_at_ms IS NULL
RETURNING request_id
