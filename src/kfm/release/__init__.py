"""A release: what was done in a span of time, for people who were not there. Made again, it is the same."""
