-- Which window of a source was done last: asked before each run of a source whose windows replace each other.
CREATE INDEX runs_by_window_end ON runs (source_id, window_end_ms);
