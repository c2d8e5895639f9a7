-- A unit's letter is found from the page of its history that tells of the same end. On SQLite that page says how far
-- the outbox went before: the letter is the next one of its kind. So a commit writes no page of an index for it.
@sqlite ALTER TABLE unit_pages ADD COLUMN letters_before BIGINT;
@sqlite UPDATE unit_pages SET letters_before = (SELECT MIN(number) - 1 FROM outbox WHERE subject = 'units/' || at_ms);
@sqlite DROP INDEX outbox_by_subject;
@sqlite CREATE INDEX outbox_by_subject ON outbox (subject) WHERE topic <> 'unit-lineage';
@postgresql SELECT 1;
