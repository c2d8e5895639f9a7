-- name: states.set
INSERT INTO states (dataset_id, state_key, value, run_id) VALUES (:dataset_id, :state_key, :value, :run_id)
ON CONFLICT (dataset_id, state_key) DO UPDATE SET value = excluded.value, run_id = excluded.run_id

-- name: states.list
SELECT state_key, value FROM states WHERE dataset_id = :dataset_id ORDER BY state_key

-- name: events.append
INSERT INTO events (run_id, dataset_id, event_type, payload, emitted_at_ms)
VALUES (:run_id, :dataset_id, :event_type, :payload, :emitted_at_ms)

-- name: events.list
SELECT event_type, payload FROM events WHERE run_id = :run_id ORDER BY number
