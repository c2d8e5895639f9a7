-- name: requests.accepted
SELECT request_id FROM requests ORDER BY rowid DESC LIMIT :row_limit
