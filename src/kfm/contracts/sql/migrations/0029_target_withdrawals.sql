-- A withdrawal from one target alone, which does not take the dataset any more; '': from all of them.
ALTER TABLE withdrawals ADD COLUMN target TEXT NOT NULL DEFAULT '';
