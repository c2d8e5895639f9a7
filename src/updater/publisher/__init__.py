"""The only way in which a pipeline changes anything."""
