"""Object stores: folders, buckets, upstream objects, HTTP."""
