-- SQLite gives a new row the highest number that is there and one more. Seals and hooks know events by their numbers,
-- so a number that was given is not given again when rows are removed by hand. PostgreSQL keeps its sequences.
@sqlite CREATE TRIGGER outbox_removed AFTER DELETE ON outbox
@sqlite BEGIN
@sqlite   INSERT INTO counters (name, value) VALUES ('outbox', OLD.number)
@sqlite   ON CONFLICT (name) DO UPDATE SET value = MAX(counters.value, excluded.value);
@sqlite END;
@sqlite CREATE TRIGGER outbox_numbered AFTER INSERT ON outbox
@sqlite WHEN NEW.number <= (SELECT value FROM counters WHERE name = 'outbox')
@sqlite BEGIN
@sqlite   UPDATE outbox SET number = (SELECT value + 1 FROM counters WHERE name = 'outbox') WHERE number = NEW.number;
@sqlite END;
@sqlite CREATE TRIGGER unit_pages_removed AFTER DELETE ON unit_pages
@sqlite BEGIN
@sqlite   INSERT INTO counters (name, value) VALUES ('unit_pages', OLD.number)
@sqlite   ON CONFLICT (name) DO UPDATE SET value = MAX(counters.value, excluded.value);
@sqlite END;
-- What the hooks have had already, in a ledger whose outbox was emptied before.
@sqlite INSERT INTO counters (name, value) SELECT 'outbox', MAX(number) FROM hook_deliveries HAVING MAX(number) IS NOT NULL;
@postgresql SELECT 1;
