"""The updater under its documented names. Everything here is a thin way into `kfm`."""
