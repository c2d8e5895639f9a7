-- name: window_plans.insert
INSERT INTO window_plans (
  plan_id, kind, digest, subject, name, rationale, ticket, requested_by, datasets, entries, left_out, created_at_ms
) VALUES (
  :plan_id, :kind, :digest, :subject, :name, :rationale, :ticket, :requested_by, :datasets, :entries, :left_out,
  :created_at_ms
)

-- name: window_plans.add_entry
INSERT INTO window_plan_entries (
  plan_id, number, source_id, dataset_id, window_start_ms, window_end_ms, instant_ms, was, why, request_id
) VALUES (
  :plan_id, :number, :source_id, :dataset_id, :window_start_ms, :window_end_ms, :instant_ms, :was, :why, :request_id
)

-- name: window_plans.get
SELECT
  plan_id, kind, digest, subject, name, rationale, ticket, requested_by, datasets, entries, left_out, created_at_ms
FROM window_plans WHERE plan_id = :plan_id

-- name: window_plans.find
SELECT plan_id FROM window_plans WHERE plan_id >= :low AND plan_id < :high ORDER BY plan_id LIMIT :row_limit

-- name: window_plans.list
SELECT
  plan_id, kind, digest, subject, name, rationale, ticket, requested_by, datasets, entries, left_out, created_at_ms
FROM window_plans
WHERE created_at_ms <= :before_ms AND (created_at_ms < :before_ms OR plan_id > :after_id)
ORDER BY created_at_ms DESC, plan_id LIMIT :row_limit

-- name: window_plans.entries
-- Each with what has become of its request.
SELECT
  e.number, e.source_id, e.dataset_id, e.window_start_ms, e.window_end_ms, e.instant_ms, e.was, e.why, e.request_id,
  r.state, r.outcome, r.reason, r.run_id, r.ended_at_ms
FROM window_plan_entries e LEFT JOIN requests r ON r.request_id = e.request_id
WHERE e.plan_id = :plan_id AND e.number > :after ORDER BY e.number LIMIT :row_limit

-- name: window_plans.tally
SELECT COALESCE(r.state, ''), COALESCE(r.outcome, ''), COUNT(*)
FROM window_plan_entries e LEFT JOIN requests r ON r.request_id = e.request_id
WHERE e.plan_id = :plan_id GROUP BY r.state, r.outcome
