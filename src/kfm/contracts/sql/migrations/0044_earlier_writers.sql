-- A process of an earlier kfm that goes on while a newer one upgrades its ledger does not know what is kept otherwise
-- since: trees of versions, packed pages, items that are found by digests. What it would begin is refused in words
-- that its own errors show; a run that it has begun ends as it would have.

-- The fence, once more: an earlier kfm sets one of the two.
ALTER TABLE locks ADD COLUMN known_fence BIGINT;
-- The migration that the form of a page came with. NULL: from before; none is added.
ALTER TABLE unit_pages ADD COLUMN form BIGINT;
@sqlite CREATE TRIGGER locks_taken BEFORE UPDATE OF fence ON locks
@sqlite WHEN NEW.fence <> OLD.fence AND NEW.known_fence IS NOT NEW.fence
@sqlite BEGIN
@sqlite   SELECT RAISE(ABORT, 'the ledger was upgraded by a newer kfm: end this process and start it with that one');
@sqlite END;
@sqlite CREATE TRIGGER unit_pages_written BEFORE INSERT ON unit_pages WHEN NEW.form IS NULL
@sqlite BEGIN
@sqlite   SELECT RAISE(ABORT, 'the ledger was upgraded by a newer kfm: end this process and start it with that one');
@sqlite END;
@postgresql CREATE FUNCTION refuse_earlier_kfm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
@postgresql   -- A copy that fills this ledger brings pages from before as they are.
@postgresql   IF EXISTS (SELECT 1 FROM migrations WHERE version = 900002) THEN RETURN NEW; END IF;
@postgresql   RAISE EXCEPTION 'the ledger was upgraded by a newer kfm: end this process and start it with that one';
@postgresql END $$;
@postgresql CREATE TRIGGER locks_taken BEFORE UPDATE OF fence ON locks FOR EACH ROW
@postgresql   WHEN (NEW.fence <> OLD.fence AND NEW.known_fence IS DISTINCT FROM NEW.fence)
@postgresql   EXECUTE FUNCTION refuse_earlier_kfm();
@postgresql CREATE TRIGGER unit_pages_written BEFORE INSERT ON unit_pages FOR EACH ROW
@postgresql   WHEN (NEW.form IS NULL) EXECUTE FUNCTION refuse_earlier_kfm();
