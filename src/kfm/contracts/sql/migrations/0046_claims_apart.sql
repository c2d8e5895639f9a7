-- On PostgreSQL, what waits in a lane by a sixteenth of its ids, too. Claims begin at different sixteenths: those of
-- one walk over every row that others have locked, and over what is left of rows that they have just claimed. Only
-- what waits is in the index: it is written once for each unit.
@sqlite SELECT 1;
@postgresql CREATE INDEX units_due_apart ON units (dataset, provider, alone, (hashtext(wal_id) & 15), not_before_ms)
@postgresql   WHERE status = 'pending';
