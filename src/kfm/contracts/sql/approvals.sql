-- name: approvals.get
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale, terms, fingerprint, base_sequence,
  superseded_by, revoked_by, revoked_at_ms, revocation_rationale
FROM approvals WHERE request_id = :request_id

-- name: approvals.list
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale, terms, fingerprint, base_sequence,
  superseded_by, revoked_by, revoked_at_ms, revocation_rationale
FROM approvals
WHERE (requested_at_ms, request_id) < (:before_ms, :before_id)
ORDER BY requested_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: approvals.in_state
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale, terms, fingerprint, base_sequence,
  superseded_by, revoked_by, revoked_at_ms, revocation_rationale
FROM approvals
WHERE CASE
    WHEN rejected_at_ms IS NOT NULL THEN 'rejected' WHEN superseded_by IS NOT NULL THEN 'superseded'
    WHEN revoked_at_ms IS NOT NULL THEN 'revoked' ELSE state END = :state
  AND (requested_at_ms, request_id) < (:before_ms, :before_id)
ORDER BY requested_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: approvals.of_subject
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale, terms, fingerprint, base_sequence,
  superseded_by, revoked_by, revoked_at_ms, revocation_rationale
FROM approvals
WHERE subject = :subject AND (:state = '' OR :state = CASE
    WHEN rejected_at_ms IS NOT NULL THEN 'rejected' WHEN superseded_by IS NOT NULL THEN 'superseded'
    WHEN revoked_at_ms IS NOT NULL THEN 'revoked' ELSE state END)
ORDER BY requested_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: approvals.find
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale, terms, fingerprint, base_sequence,
  superseded_by, revoked_by, revoked_at_ms, revocation_rationale
FROM approvals WHERE request_id >= :low AND request_id < :high ORDER BY request_id LIMIT :row_limit

-- name: approvals.get_for_update
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale, terms, fingerprint, base_sequence,
  superseded_by, revoked_by, revoked_at_ms, revocation_rationale
FROM approvals WHERE request_id = :request_id

-- name: approvals.insert
INSERT INTO approvals (
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale, terms, fingerprint, base_sequence,
  superseded_by, revoked_by, revoked_at_ms, revocation_rationale
) VALUES (
  :request_id, :kind, :subject, :digest, :requested_by, :requested_at_ms, :rationale, :ticket, :state,
  :approved_by, :approved_at_ms, :approval_rationale, :about, :dataset_id, :requested_names,
  :expires_at_ms, :used_by, :used_attempt, :used_at_ms, :rejected_by, :rejected_at_ms, :rejection_rationale,
  :terms, :fingerprint, :base_sequence, :superseded_by, :revoked_by, :revoked_at_ms, :revocation_rationale
)

-- name: approvals.approve
UPDATE approvals SET state = 'approved', approved_by = :approved_by, approved_at_ms = :approved_at_ms,
  approval_rationale = :approval_rationale, expires_at_ms = :expires_at_ms
WHERE request_id = :request_id AND state = 'requested' AND digest = :digest AND requested_by <> :approved_by
  AND rejected_at_ms IS NULL AND superseded_by IS NULL
RETURNING request_id

-- name: approvals.reject
UPDATE approvals SET rejected_by = :rejected_by, rejected_at_ms = :rejected_at_ms,
  rejection_rationale = :rejection_rationale
WHERE request_id = :request_id AND state = 'requested' AND requested_by <> :rejected_by
  AND rejected_at_ms IS NULL AND superseded_by IS NULL
RETURNING request_id

-- name: approvals.usable
-- Of one attempt: once. Of a preview: for every attempt of its request, if the first was in time. Standing: until then.
SELECT request_id FROM approvals
WHERE request_id = :request_id AND state = 'approved' AND digest = :digest AND revoked_at_ms IS NULL
  AND ((kind = 'attempt' AND used_at_ms IS NULL AND expires_at_ms > :now_ms)
    OR (kind = 'update' AND (used_at_ms IS NOT NULL OR expires_at_ms > :now_ms))
    OR (kind = 'standing' AND expires_at_ms > :now_ms))

-- name: approvals.use
UPDATE approvals SET used_by = :used_by, used_attempt = :used_attempt, used_at_ms = :used_at_ms
WHERE request_id = :request_id AND (kind IN ('update', 'standing') OR used_at_ms IS NULL)
RETURNING kind

-- name: approval_uses.add
INSERT INTO approval_uses (run_id, attempt, request_id, at_ms)
VALUES (:run_id, :attempt, :request_id, :at_ms) ON CONFLICT (run_id, attempt) DO NOTHING

-- name: approval_uses.count
SELECT COUNT(*) FROM approval_uses WHERE request_id = :request_id

-- name: approvals.of_attempt
-- What the attempt of a run was begun under.
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale, terms, fingerprint, base_sequence,
  superseded_by, revoked_by, revoked_at_ms, revocation_rationale
FROM approvals
WHERE request_id IN (
  SELECT a.request_id FROM approvals a WHERE a.used_by = :run_id AND a.used_attempt = :attempt
  UNION
  SELECT u.request_id FROM approval_uses u WHERE u.run_id = :run_id AND u.attempt = :attempt
)
LIMIT 1

-- name: approvals.of_terms
-- Previews of the same work with the same rights, the newest first.
SELECT
  request_id, kind, subject, digest, requested_by, requested_at_ms, rationale, ticket, state, approved_by,
  approved_at_ms, approval_rationale, about, dataset_id, requested_names, expires_at_ms, used_by,
  used_attempt, used_at_ms, rejected_by, rejected_at_ms, rejection_rationale, terms, fingerprint, base_sequence,
  superseded_by, revoked_by, revoked_at_ms, revocation_rationale
FROM approvals WHERE terms = :terms AND kind = 'update'
ORDER BY requested_at_ms DESC, request_id DESC LIMIT :row_limit

-- name: approvals.supersede
UPDATE approvals SET superseded_by = :superseded_by
WHERE subject = :subject AND kind = 'update' AND state = 'requested' AND rejected_at_ms IS NULL AND superseded_by IS NULL
RETURNING request_id

-- name: approvals.revoke
UPDATE approvals SET revoked_by = :revoked_by, revoked_at_ms = :revoked_at_ms, revocation_rationale = :rationale
WHERE request_id = :request_id AND kind IN ('standing', 'attempt') AND state = 'approved' AND revoked_at_ms IS NULL
  AND (kind = 'standing' OR used_at_ms IS NULL)
RETURNING request_id

-- name: approvals.outdated
-- Previews that wait although their dataset has a newer version. From the requests that wait to their approvals.
SELECT a.subject, a.digest FROM requests r CROSS JOIN approvals a
WHERE a.subject = r.request_id AND r.state = 'awaiting-approval' AND r.plan_digest = a.digest AND a.kind = 'update'
  AND a.state = 'requested' AND a.rejected_at_ms IS NULL AND a.superseded_by IS NULL AND a.base_sequence IS NOT NULL
  AND a.base_sequence < COALESCE(
    (SELECT MAX(p.sequence) FROM promotions p WHERE p.dataset_id = a.dataset_id), 0)
ORDER BY a.requested_at_ms, a.request_id LIMIT :row_limit
