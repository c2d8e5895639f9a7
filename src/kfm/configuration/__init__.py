"""How a configuration file becomes settings: read, shape, check. `kfm.config` is the way in."""
