-- name: incidents.get_for_update
SELECT
  cause, incident_id, about, name, kind, error_class, error_code, message, subject, state, occurrence, changes,
  affected, opened_at_ms, last_at_ms, resolved_at_ms, acknowledged_at_ms, acknowledged_by, escalated_at_ms
FROM incidents WHERE cause = :cause

-- name: incidents.find
-- By the start of the id or of the cause.
SELECT
  cause, incident_id, about, name, kind, error_class, error_code, message, subject, state, occurrence, changes,
  affected, opened_at_ms, last_at_ms, resolved_at_ms, acknowledged_at_ms, acknowledged_by, escalated_at_ms
FROM incidents WHERE cause IN (
  SELECT i.cause FROM incidents i WHERE i.incident_id >= :low AND i.incident_id < :high
  UNION SELECT i.cause FROM incidents i WHERE i.cause >= :low AND i.cause < :high
) ORDER BY cause LIMIT :row_limit

-- name: incidents.list
SELECT
  cause, incident_id, about, name, kind, error_class, error_code, message, subject, state, occurrence, changes,
  affected, opened_at_ms, last_at_ms, resolved_at_ms, acknowledged_at_ms, acknowledged_by, escalated_at_ms
FROM incidents
WHERE opened_at_ms <= :before_ms AND (opened_at_ms < :before_ms OR cause > :after_cause)
ORDER BY opened_at_ms DESC, cause LIMIT :row_limit

-- name: incidents.list_open
-- By the index of the few that are open: the sum keeps SQLite from the one of all.
SELECT
  cause, incident_id, about, name, kind, error_class, error_code, message, subject, state, occurrence, changes,
  affected, opened_at_ms, last_at_ms, resolved_at_ms, acknowledged_at_ms, acknowledged_by, escalated_at_ms
FROM incidents
WHERE state = 'open'
  AND (opened_at_ms + 0 < :before_ms OR (opened_at_ms + 0 = :before_ms AND cause > :after_cause))
ORDER BY opened_at_ms DESC, cause LIMIT :row_limit

-- name: incidents.open_by_kind
SELECT kind, COUNT(*) FROM incidents WHERE state = 'open' GROUP BY kind

-- name: incidents.insert
INSERT INTO incidents (
  cause, incident_id, about, name, kind, error_class, error_code, message, subject, state, occurrence, changes,
  affected, opened_at_ms, last_at_ms, resolved_at_ms, acknowledged_at_ms, acknowledged_by, escalated_at_ms
) VALUES (
  :cause, :incident_id, :about, :name, :kind, :error_class, :error_code, :message, :subject, :state, :occurrence,
  :changes, :affected, :opened_at_ms, :last_at_ms, :resolved_at_ms, :acknowledged_at_ms, :acknowledged_by,
  :escalated_at_ms
)
ON CONFLICT (cause) DO NOTHING
RETURNING cause

-- name: incidents.change
UPDATE incidents SET
  incident_id = :incident_id, kind = :kind, message = :message, subject = :subject, state = :state,
  occurrence = :occurrence, changes = :changes, affected = :affected, opened_at_ms = :opened_at_ms,
  last_at_ms = :last_at_ms, resolved_at_ms = :resolved_at_ms, acknowledged_at_ms = :acknowledged_at_ms,
  acknowledged_by = :acknowledged_by, escalated_at_ms = :escalated_at_ms
WHERE cause = :cause

-- name: incident_subjects.add
INSERT INTO incident_subjects (
  cause, subject, dataset_id, source_id, window_start_ms, window_end_ms, partition_key
)
VALUES (
  :cause, :subject, :dataset_id, :source_id,
  COALESCE(
    :window_start_ms, (SELECT window_start_ms FROM runs WHERE run_id = :subject),
    (SELECT window_start_ms FROM requests WHERE request_id = :subject)
  ),
  COALESCE(
    :window_end_ms, (SELECT window_end_ms FROM runs WHERE run_id = :subject),
    (SELECT window_end_ms FROM requests WHERE request_id = :subject)
  ),
  (SELECT COALESCE(partition_key, '') FROM runs WHERE run_id = :subject)
)
ON CONFLICT (cause, subject) DO NOTHING
RETURNING subject

-- name: incident_subjects.of_window
SELECT cause, subject FROM incident_subjects
WHERE source_id = :source_id AND window_start_ms = :window_start_ms AND window_end_ms = :window_end_ms
  AND (:partition_key = '*' OR partition_key IS NULL OR partition_key = :partition_key)
ORDER BY cause, subject

-- name: incident_subjects.windows
SELECT subject, source_id, window_start_ms, window_end_ms FROM incident_subjects
WHERE cause = :cause AND window_start_ms IS NOT NULL AND window_end_ms IS NOT NULL
ORDER BY subject

-- name: incident_subjects.of_subject
SELECT cause FROM incident_subjects WHERE subject = :subject ORDER BY cause

-- name: incident_subjects.remove_one
DELETE FROM incident_subjects WHERE cause = :cause AND subject = :subject

-- name: incident_subjects.clear
DELETE FROM incident_subjects WHERE cause = :cause

-- name: incident_subjects.any
SELECT 1 FROM incident_subjects WHERE cause = :cause LIMIT 1

-- name: incident_subjects.count
SELECT COUNT(*) FROM incident_subjects WHERE cause = :cause

-- name: incident_subjects.get
SELECT subject, source_id, window_start_ms, window_end_ms
FROM incident_subjects WHERE cause = :cause AND subject = :subject

-- name: incident_subjects.list
SELECT subject, source_id, window_start_ms, window_end_ms
FROM incident_subjects WHERE cause = :cause ORDER BY subject LIMIT :row_limit

-- name: held.of_cause
SELECT COUNT(*) FROM held
WHERE state = 'held' AND dataset_id = :dataset_id AND error_code = :error_code

-- name: hook_deliveries.waiting
SELECT
  o.number, o.event_id, o.topic, o.subject, o.body, o.recorded_at_ms, COALESCE(d.tries, 0),
  COALESCE(d.not_before_ms, 0), d.delivered_at_ms
FROM outbox o LEFT JOIN hook_deliveries d ON d.number = o.number AND d.hook = :hook
WHERE o.topic = :topic AND o.delivered_at_ms IS NULL AND d.delivered_at_ms IS NULL
ORDER BY o.number LIMIT :row_limit

-- name: hook_deliveries.backlog
SELECT COUNT(*), MIN(o.recorded_at_ms)
FROM outbox o LEFT JOIN hook_deliveries d ON d.number = o.number AND d.hook = :hook
WHERE o.topic = :topic AND o.delivered_at_ms IS NULL AND d.delivered_at_ms IS NULL
  AND NOT EXISTS (
    SELECT 1 FROM incidents i JOIN silences s
      ON s.scope = 'incident:' || i.incident_id OR (i.about = 'dataset' AND s.scope = 'dataset:' || i.name)
    WHERE i.cause = o.subject AND s.ended_at_ms IS NULL
  )

-- name: hook_deliveries.skip
INSERT INTO hook_deliveries (hook, number, tries, not_before_ms, delivered_at_ms)
VALUES (:hook, :number, 0, 0, :at_ms)
ON CONFLICT (number, hook) DO UPDATE SET delivered_at_ms = excluded.delivered_at_ms

-- name: hook_deliveries.claim
INSERT INTO hook_deliveries (hook, number, tries, not_before_ms, delivered_at_ms)
VALUES (:hook, :number, 1, :until_ms, NULL)
ON CONFLICT (number, hook) DO UPDATE SET
  tries = hook_deliveries.tries + 1, not_before_ms = excluded.not_before_ms

-- name: hook_deliveries.delivered
UPDATE hook_deliveries SET delivered_at_ms = :delivered_at_ms
WHERE hook = :hook AND number = :number AND delivered_at_ms IS NULL

-- name: hook_deliveries.put_back
UPDATE hook_deliveries SET not_before_ms = :not_before_ms
WHERE hook = :hook AND number = :number AND delivered_at_ms IS NULL

-- name: hook_deliveries.hasten
UPDATE hook_deliveries SET not_before_ms = 0
WHERE hook = :hook AND delivered_at_ms IS NULL AND not_before_ms > :now_ms

-- name: hook_deliveries.arrived
SELECT o.number, d.hook
FROM outbox o LEFT JOIN hook_deliveries d ON d.number = o.number AND d.delivered_at_ms IS NOT NULL
WHERE o.topic = :topic AND o.delivered_at_ms IS NULL ORDER BY o.number

-- name: hook_deliveries.of_subject
-- What hooks got or will get: neither what was settled for a hook with no try, nor what was dropped.
SELECT o.event_id, o.recorded_at_ms, o.body, d.hook, d.tries, d.delivered_at_ms
FROM outbox o LEFT JOIN hook_deliveries d ON d.number = o.number AND d.tries > 0
WHERE o.subject = :subject AND o.topic = :topic AND o.topic <> 'unit-lineage'
  AND (o.delivered_at_ms IS NULL OR d.delivered_at_ms IS NOT NULL)
ORDER BY o.number, d.hook

-- name: hook_deliveries.known
SELECT 1 FROM outbox o JOIN hook_deliveries d ON d.number = o.number
WHERE o.subject = :subject AND o.topic = :topic AND o.topic <> 'unit-lineage'
  AND o.recorded_at_ms >= :since_ms AND d.tries > 0 AND d.delivered_at_ms IS NOT NULL
LIMIT 1

-- name: hook_deliveries.waiting_of
SELECT number FROM outbox
WHERE subject = :subject AND topic = :topic AND topic <> 'unit-lineage' AND delivered_at_ms IS NULL ORDER BY number

-- name: incidents.waiting
SELECT DISTINCT i.cause, i.about, i.name FROM incidents i JOIN outbox o ON o.subject = i.cause
WHERE o.topic = :topic AND o.delivered_at_ms IS NULL

-- name: incidents.acknowledge
UPDATE incidents SET acknowledged_at_ms = :now_ms, acknowledged_by = :actor
WHERE cause = :cause AND incident_id = :incident_id AND state = 'open' AND acknowledged_at_ms IS NULL
RETURNING cause

-- name: incidents.assign
UPDATE incidents SET acknowledged_at_ms = COALESCE(acknowledged_at_ms, :now_ms), acknowledged_by = :person
WHERE cause = :cause AND incident_id = :incident_id AND state = 'open'
RETURNING cause

-- name: silences.put
INSERT INTO silences (scope, set_at_ms, until_ms, set_by, rationale, ended_at_ms)
VALUES (:scope, :set_at_ms, :until_ms, :set_by, :rationale, NULL)

-- name: silences.end
UPDATE silences SET ended_at_ms = :now_ms WHERE scope = :scope AND ended_at_ms IS NULL
RETURNING scope

-- name: silences.in_force
SELECT scope, set_at_ms, until_ms, set_by, rationale, ended_at_ms FROM silences
WHERE ended_at_ms IS NULL ORDER BY +number

-- name: silences.lapsed
-- Also by its own length, where it was set by a clock that was ahead.
SELECT scope FROM silences
WHERE ended_at_ms IS NULL AND (until_ms <= :now_ms OR until_ms - :now_ms > 2 * (until_ms - set_at_ms))
ORDER BY +number

-- name: silences.causes
-- From the silences, which are few, to what they are about.
SELECT i.cause FROM silences s CROSS JOIN incidents i
WHERE s.ended_at_ms IS NULL AND substr(s.scope, 1, 9) = 'incident:' AND i.incident_id = substr(s.scope, 10)
UNION
SELECT i.cause FROM silences s CROSS JOIN incidents i
WHERE s.ended_at_ms IS NULL AND substr(s.scope, 1, 8) = 'dataset:' AND i.about = 'dataset' AND i.name = substr(s.scope, 9)

-- name: silences.causes_of
SELECT cause FROM incidents WHERE substr(:scope, 1, 9) = 'incident:' AND incident_id = substr(:scope, 10)
UNION
SELECT cause FROM incidents WHERE substr(:scope, 1, 8) = 'dataset:' AND about = 'dataset' AND name = substr(:scope, 9)
ORDER BY cause
