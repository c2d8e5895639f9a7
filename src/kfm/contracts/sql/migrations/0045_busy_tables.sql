-- On PostgreSQL, how tables that a fleet changes all the time are kept. Rows that are few and change with every
-- transaction get room for their next versions on their own pages, where no index has to learn of them. A queue's
-- rows end by changes of what their indexes are made of: what is left of those is vacuumed by the thousand, not when
-- a fifth of the table has changed; readers of a queue's head walk over all of it until then.
@sqlite SELECT 1;
@postgresql ALTER TABLE locks SET (fillfactor = 50);
@postgresql ALTER TABLE counters SET (fillfactor = 50);
@postgresql ALTER TABLE chain_heads SET (fillfactor = 50);
@postgresql ALTER TABLE incidents SET (fillfactor = 50);
@postgresql ALTER TABLE breakers SET (fillfactor = 50);
@postgresql ALTER TABLE unit_totals SET (fillfactor = 50);
@postgresql ALTER TABLE units SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
@postgresql ALTER TABLE requests SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
@postgresql ALTER TABLE replica_items SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
@postgresql ALTER TABLE hook_deliveries SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
@postgresql ALTER TABLE unit_deltas SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
@postgresql DO $$ DECLARE part regclass; BEGIN
@postgresql   FOR part IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'outbox'::regclass LOOP
@postgresql     EXECUTE 'ALTER TABLE ' || part
@postgresql       || ' SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)';
@postgresql   END LOOP;
@postgresql END $$;
