"""Old import paths of `kfm.nodd`."""
