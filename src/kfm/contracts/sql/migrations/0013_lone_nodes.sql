-- An attempt at one node of a run whose others come by themselves; '' is a pass over a whole pipeline.
ALTER TABLE pass_attempts ADD COLUMN node TEXT NOT NULL DEFAULT '';
