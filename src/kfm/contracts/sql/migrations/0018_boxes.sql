-- Most items lie in one of a few boxes: sectors, sites, grids. On SQLite the spatial index holds each box once and
-- an item names its own; items from before keep the one that they have for themselves.
@sqlite ALTER TABLE items ADD COLUMN box BIGINT;
@sqlite UPDATE items SET box = number WHERE west IS NOT NULL;
@sqlite DROP INDEX items_by_time;
@sqlite CREATE INDEX items_by_time ON items (collection_id, at_ms, number, box);
@postgresql SELECT 1;
