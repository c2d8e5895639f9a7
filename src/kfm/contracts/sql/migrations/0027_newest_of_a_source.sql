-- The newest invocation of a source, without a look at those of others.
CREATE INDEX invocations_of_source ON invocations (source_id, number);
