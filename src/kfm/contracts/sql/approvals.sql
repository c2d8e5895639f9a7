-- name: approvals.get
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale
FROM approvals WHERE request_id = :request_id

-- name: approvals.list
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale
FROM approvals
WHERE (:state = '' OR state = :state) AND (:subject = '' OR subject = :subject)
ORDER BY requested_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: approvals.insert
INSERT INTO approvals (
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale
) VALUES (
  :request_id, :kind, :subject, :digest, :requested_by, :requested_at_ms, :rationale, :ticket, :state,
  :approved_by, :approved_at_ms, :approval_rationale
)

-- name: approvals.approve
UPDATE approvals SET state = 'approved', approved_by = :approved_by, approved_at_ms = :approved_at_ms,
  approval_rationale = :approval_rationale
WHERE request_id = :request_id AND state = 'requested' AND requested_by <> :approved_by AND digest = :digest
RETURNING request_id
