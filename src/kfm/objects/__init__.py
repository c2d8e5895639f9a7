"""Object stores: content-addressed bytes in a folder or a bucket."""
