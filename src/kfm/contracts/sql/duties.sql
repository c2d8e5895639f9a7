-- name: duties.take
SELECT 1

-- name: duties.wait_for
SELECT 1
