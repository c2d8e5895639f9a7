-- name: requests.turn
-- One claimer at a time: two at once would not see each other's datasets.
SELECT pg_advisory_xact_lock(4900152)

-- name: requests.formerly
SELECT request_id, source_id FROM requests
WHERE request_id IN (SELECT jsonb_array_elements_text(:former_ids::jsonb))
