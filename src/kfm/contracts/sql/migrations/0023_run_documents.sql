-- What asked for a run first: the document behind its key, the envelope, the kind and actor of the trigger. Later
-- attempts tell it from here. Runs of earlier versions have no row.
CREATE TABLE run_documents (
  run_id    TEXT NOT NULL PRIMARY KEY REFERENCES runs (run_id),
  documents TEXT NOT NULL
);
