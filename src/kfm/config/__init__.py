"""Configuration: a file becomes settings: read, shape, check. `kfm.config.loader` is the way in."""
