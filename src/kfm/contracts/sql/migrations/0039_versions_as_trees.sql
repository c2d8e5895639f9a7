-- Versions as trees: what versions have in common is kept once.

-- Where a version has trees, its manifest is without items: those are rows of the leaves of one tree, its files rows of
-- those of the other. It is the root document of the version or, of one that was named by the hash of its whole
-- manifest, what that says beside its items. NULL: the manifest is whole, as versions were kept before.
ALTER TABLE versions ADD COLUMN tree_id TEXT;
ALTER TABLE versions ADD COLUMN files_id TEXT;
CREATE INDEX versions_whole ON versions (version_id) WHERE tree_id IS NULL;

-- Bodies of trees, by the hash of their text.
CREATE TABLE version_pages (
  page_id TEXT NOT NULL PRIMARY KEY,
  body    TEXT NOT NULL
);

-- The canonical document of each item, by its hash.
CREATE TABLE version_items (
  digest TEXT NOT NULL PRIMARY KEY,
  document    TEXT NOT NULL
);
