-- Most items lie in one of a few boxes: sectors, sites, grids. On SQLite the spatial index holds each box once and
-- an item names its own; items from before keep the one that they have for themselves.
@sqlite ALTER TABLE items ADD COLUMN box BIGINT;
@sqlite UPDATE items SET box = number WHERE west IS NOT NULL;
@sqlite DROP INDEX items_by_time;
@sqlite CREATE INDEX items_by_time ON items (collection_id, at_ms, number, box);

-- Names that end in a time are sorted by that first: what comes together stands together, so that a commit writes
-- a page of this index or two, and not one for each channel and product.
@sqlite DROP INDEX items_by_id;
@sqlite CREATE UNIQUE INDEX items_by_id ON items (collection_id, substr(item_id, length(rtrim(item_id, '0123456789')) + 1), item_id);
@postgresql SELECT 1;
