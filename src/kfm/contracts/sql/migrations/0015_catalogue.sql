-- What units tell about the objects that they stand for. STAC is made of it when somebody asks.
CREATE TABLE items (
  number        SERIAL_KEY,
  collection_id TEXT NOT NULL,
  item_id       TEXT NOT NULL,
  start_ms      BIGINT,
  end_ms        BIGINT,
  at_ms         BIGINT NOT NULL,
  west          DOUBLE PRECISION,
  south         DOUBLE PRECISION,
  east          DOUBLE PRECISION,
  north         DOUBLE PRECISION,
  geometry      TEXT,
  properties    TEXT NOT NULL,
  data          TEXT,
  revision      BIGINT NOT NULL,
  created_at_ms BIGINT NOT NULL,
  updated_at_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX items_by_id ON items (collection_id, item_id);
CREATE INDEX items_by_time ON items (collection_id, at_ms, number);
@sqlite CREATE VIRTUAL TABLE item_boxes USING rtree(number, west, east, south, north);
@postgresql CREATE INDEX item_boxes ON items USING gist (box(point(CASE WHEN west > east THEN -180 ELSE west END, south), point(CASE WHEN west > east THEN 180 ELSE east END, north))) WHERE west IS NOT NULL;

-- Files that describe an item's data. The data themselves stand in the item's row.
CREATE TABLE assets (
  item  BIGINT NOT NULL,
  role  TEXT NOT NULL,
  facts TEXT NOT NULL,
  PRIMARY KEY (item, role)
) CLUSTERED;

-- Which items an external catalogue still has to be told of: the newest revision, once.
CREATE TABLE replica_items (
  replica       TEXT NOT NULL,
  collection_id TEXT NOT NULL,
  item_id       TEXT NOT NULL,
  wanted        BIGINT NOT NULL,
  sent          BIGINT NOT NULL,
  not_before_ms BIGINT NOT NULL,
  tries         BIGINT NOT NULL,
  PRIMARY KEY (replica, collection_id, item_id)
);
CREATE INDEX replica_items_due ON replica_items (replica, not_before_ms) WHERE wanted > sent;
