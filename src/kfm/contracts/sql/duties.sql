-- name: duties.take
SELECT 1
