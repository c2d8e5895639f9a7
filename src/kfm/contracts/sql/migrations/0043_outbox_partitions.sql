-- On PostgreSQL the outbox is cut by number, so that retention drops what is old. What is there becomes the first
-- partition as it is: no row is written. What no partition is there for, and what waits when its partition is
-- dropped, is in the default one. A sequence in place of the identity column: partitioned tables have those from
-- PostgreSQL 17 on only.
@sqlite SELECT 1;
@postgresql ALTER TABLE outbox RENAME TO outbox_0;
@postgresql ALTER INDEX outbox_pkey RENAME TO outbox_0_pkey;
@postgresql ALTER INDEX outbox_by_subject RENAME TO outbox_0_by_subject;
@postgresql ALTER INDEX outbox_waiting RENAME TO outbox_0_waiting;
@postgresql ALTER INDEX outbox_claimed RENAME TO outbox_0_claimed;
@postgresql CREATE SEQUENCE outbox_numbers;
@postgresql SELECT setval('outbox_numbers', last_value, is_called) FROM outbox_number_seq;
@postgresql ALTER TABLE outbox_0 ALTER COLUMN number DROP IDENTITY;
@postgresql CREATE TABLE outbox (
@postgresql   number          BIGINT NOT NULL DEFAULT nextval('outbox_numbers'),
@postgresql   event_id        TEXT NOT NULL,
@postgresql   topic           TEXT NOT NULL,
@postgresql   subject         TEXT NOT NULL,
@postgresql   body            TEXT NOT NULL,
@postgresql   recorded_at_ms  BIGINT NOT NULL,
@postgresql   tries           BIGINT NOT NULL,
@postgresql   not_before_ms   BIGINT NOT NULL,
@postgresql   delivered_at_ms BIGINT,
@postgresql   packed          BYTEA,
@postgresql   CONSTRAINT outbox_pkey PRIMARY KEY (number)
@postgresql ) PARTITION BY RANGE (number);
@postgresql ALTER TABLE outbox ALTER COLUMN packed SET STORAGE EXTERNAL;
@postgresql ALTER SEQUENCE outbox_numbers OWNED BY outbox.number;
@postgresql CREATE INDEX outbox_by_subject ON outbox (subject);
@postgresql CREATE INDEX outbox_waiting ON outbox (topic, number) WHERE delivered_at_ms IS NULL;
@postgresql CREATE INDEX outbox_claimed ON outbox (subject, number) WHERE delivered_at_ms IS NULL AND not_before_ms > 0;
@postgresql CREATE TABLE outbox_rest (LIKE outbox INCLUDING DEFAULTS INCLUDING STORAGE);
@postgresql ALTER TABLE outbox_rest ADD CONSTRAINT outbox_rest_pkey PRIMARY KEY (number);
@postgresql CREATE INDEX outbox_rest_by_subject ON outbox_rest (subject);
@postgresql CREATE INDEX outbox_rest_waiting ON outbox_rest (topic, number) WHERE delivered_at_ms IS NULL;
@postgresql CREATE INDEX outbox_rest_claimed ON outbox_rest (subject, number) WHERE delivered_at_ms IS NULL AND not_before_ms > 0;
@postgresql DO $$ BEGIN
@postgresql   EXECUTE 'ALTER TABLE outbox ATTACH PARTITION outbox_0 FOR VALUES FROM (MINVALUE) TO ('
@postgresql     || ((SELECT last_value FROM outbox_numbers) / 100000 + 1) * 100000 || ')';
@postgresql END $$;
@postgresql ALTER TABLE outbox ATTACH PARTITION outbox_rest DEFAULT;
