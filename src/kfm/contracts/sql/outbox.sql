-- name: outbox.post
INSERT INTO outbox (event_id, topic, subject, body, recorded_at_ms, tries, not_before_ms, delivered_at_ms)
VALUES (:event_id, :topic, :subject, :body, :recorded_at_ms, 0, 0, NULL)

-- name: outbox.post_units
INSERT INTO outbox (event_id, topic, subject, body, packed, recorded_at_ms, tries, not_before_ms, delivered_at_ms)
VALUES (:event_id, :topic, :subject, :body, :packed, :recorded_at_ms, 0, 0, NULL)

-- name: outbox.hold
SELECT 1

-- name: outbox.claim
UPDATE outbox SET not_before_ms = :until_ms, tries = tries + 1
WHERE number IN (
  SELECT o.number FROM outbox o
  WHERE o.topic = :topic AND o.delivered_at_ms IS NULL
    AND (o.not_before_ms <= :now_ms OR o.not_before_ms > :last_ms)
    AND NOT EXISTS (
      SELECT 1 FROM outbox e
      WHERE e.subject = o.subject AND e.topic || '' = o.topic AND e.delivered_at_ms IS NULL
        AND e.number < o.number AND e.not_before_ms > 0 AND e.not_before_ms > :now_ms
        AND e.not_before_ms <= :last_ms
    )
  ORDER BY o.number LIMIT :row_limit
)
RETURNING number, event_id, topic, subject, body, recorded_at_ms, tries, not_before_ms, delivered_at_ms, packed

-- name: outbox.delivered
UPDATE outbox SET delivered_at_ms = :delivered_at_ms WHERE number = :number AND delivered_at_ms IS NULL

-- name: outbox.put_back
UPDATE outbox SET not_before_ms = :not_before_ms WHERE number = :number AND delivered_at_ms IS NULL

-- name: outbox.hasten
UPDATE outbox SET not_before_ms = 0
WHERE topic = :topic AND delivered_at_ms IS NULL AND not_before_ms > :now_ms

-- name: outbox.of_subject
SELECT number, event_id, topic, subject, body, recorded_at_ms, tries, not_before_ms, delivered_at_ms
FROM outbox WHERE subject = :subject AND topic <> 'unit-lineage' ORDER BY number

-- name: outbox.of_pages
SELECT DISTINCT
  o.number, o.event_id, o.topic, o.subject, o.body, o.recorded_at_ms, o.tries, o.not_before_ms, o.delivered_at_ms,
  o.packed
FROM unit_pages p CROSS JOIN outbox o
WHERE p.number IN (SELECT value FROM json_each(:numbers)) AND p.status IN ('succeeded', 'failed')
  AND o.topic = 'unit-lineage' AND o.number > p.letters_before AND o.number < COALESCE((
    SELECT l.number FROM outbox l
    WHERE l.number > p.letters_before AND l.topic = 'unit-lineage' AND l.subject <> 'units/' || p.at_ms
    ORDER BY l.number LIMIT 1
  ), 9223372036854775807)
ORDER BY o.number

-- name: outbox.backlog
SELECT COUNT(*), MIN(recorded_at_ms) FROM outbox WHERE topic = :topic AND delivered_at_ms IS NULL

-- name: outbox.between
SELECT number, event_id, topic, subject, body, recorded_at_ms, tries, not_before_ms, delivered_at_ms, packed
FROM outbox WHERE number >= :first_number AND number <= :last_number ORDER BY number LIMIT :row_limit

-- name: outbox.count
SELECT COUNT(*) FROM (SELECT o.number FROM outbox o WHERE o.number > :after_number LIMIT :row_limit) AS newer
