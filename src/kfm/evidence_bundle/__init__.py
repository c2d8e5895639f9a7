"""Evidence bundles: what is on record of one run, verifiable without kfm."""
