"""Old import paths of `kfm.model`."""
