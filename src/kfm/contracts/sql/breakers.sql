-- name: breakers.get
SELECT provider, state, failures, opened_at_ms, probe_until_ms, fence, tripped_at_ms, closed_at_ms
FROM breakers WHERE provider = :provider

-- name: breakers.get_for_update
SELECT provider, state, failures, opened_at_ms, probe_until_ms, fence, tripped_at_ms, closed_at_ms
FROM breakers WHERE provider = :provider

-- name: breakers.list
SELECT provider, state, failures, opened_at_ms, probe_until_ms, fence, tripped_at_ms, closed_at_ms
FROM breakers ORDER BY provider

-- name: breakers.ensure
INSERT INTO breakers (provider, state, failures, fence) VALUES (:provider, 'closed', 0, 0)
ON CONFLICT (provider) DO NOTHING

-- name: breakers.change
UPDATE breakers
SET state = :state, failures = :failures, opened_at_ms = :opened_at_ms, probe_until_ms = :probe_until_ms,
    fence = :fence, tripped_at_ms = :tripped_at_ms, closed_at_ms = :closed_at_ms
WHERE provider = :provider AND state = :seen_state AND failures = :seen_failures AND fence = :seen_fence
  AND opened_at_ms IS NOT DISTINCT FROM :seen_opened_at_ms
  AND probe_until_ms IS NOT DISTINCT FROM :seen_probe_until_ms
  AND tripped_at_ms IS NOT DISTINCT FROM :seen_tripped_at_ms
  AND closed_at_ms IS NOT DISTINCT FROM :seen_closed_at_ms
RETURNING fence
