"""Sources: where bytes of a dataset come from. They only read."""
