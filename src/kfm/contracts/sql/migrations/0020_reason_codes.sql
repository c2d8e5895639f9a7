-- Why an invocation ended as it did, for programs: the sentence beside it is for readers. Older rows have none.
ALTER TABLE invocations ADD COLUMN reason_code TEXT;
