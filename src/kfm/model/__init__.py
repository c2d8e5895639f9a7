"""Pure values and decisions, one file per aggregate: no clock, randomness, files or network."""
