-- How far the removals of a key have come, apart from how far its announcements have: either may overtake the other.
-- The delete marker that a key ends with has a version of its own, which may be deleted like any other.
ALTER TABLE units ADD COLUMN removal_sequencer TEXT;
ALTER TABLE units ADD COLUMN removal_version_id TEXT;
