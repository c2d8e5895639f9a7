"""`kfm.call`: single calls with limits, retries with full jitter, and circuit breakers."""
