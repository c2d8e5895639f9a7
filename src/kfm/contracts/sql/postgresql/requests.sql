-- name: requests.turn
-- One claimer at a time: two at once would not see each other's datasets.
SELECT pg_advisory_xact_lock(4900152)
