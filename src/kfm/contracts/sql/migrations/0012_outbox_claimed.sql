-- A letter waits for earlier ones of its subject that are claimed or at rest: only those are looked through.
CREATE INDEX outbox_claimed ON outbox (subject, number) WHERE delivered_at_ms IS NULL AND not_before_ms > 0;
